//! Mappings of memory, which a task records.

use std::ffi::{OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use libc::ssize_t;
use vfscale::posix::{Mapping, Protection, Sharing, Source};
use vfscale::{Errno, Task};

use crate::args::given;
use crate::border::{Failure, border};
use crate::structs::{copy_name, vfscale_mapping, vfscale_task};
use crate::task_handle::{file, task};

/// The name of shared memory without a file, which is an unnamed file in Linux.
const SHARED_MEMORY: &str = "/dev/zero (deleted)";

/// Flags that concern the memory, or that every mapping has, and not the table.
const WITHOUT_EFFECT: c_int = libc::MAP_FIXED
    | libc::MAP_ANONYMOUS
    | libc::MAP_NORESERVE
    | libc::MAP_POPULATE
    | libc::MAP_NONBLOCK
    | libc::MAP_LOCKED
    | libc::MAP_STACK;

/// Returns the protection of a mapping.
fn protection(prot: c_int) -> Result<Protection, Failure> {
    let bits = u8::try_from(prot).ok().and_then(Protection::from_bits);
    bits.ok_or_else(|| Failure::new(Errno::INVAL, "an unknown protection"))
}

/// Returns the visibility of writes, and refuses flags that would not have their effect.
fn sharing(flags: c_int) -> Result<Sharing, Failure> {
    let (sharing, unknown) = match flags & libc::MAP_TYPE {
        libc::MAP_PRIVATE => (Sharing::Private, Errno::INVAL),
        libc::MAP_SHARED => (Sharing::Shared, Errno::INVAL),
        libc::MAP_SHARED_VALIDATE => (Sharing::Shared, Errno::OPNOTSUPP),
        _ => {
            let text = "the flags have neither MAP_SHARED nor MAP_PRIVATE, or both";
            return Err(Failure::new(Errno::INVAL, text));
        }
    };
    if flags & libc::MAP_FIXED == 0 {
        let text = "the library chooses no address: the flags lack MAP_FIXED";
        return Err(Failure::new(Errno::INVAL, text));
    }
    if flags & !(libc::MAP_TYPE | WITHOUT_EFFECT) != 0 {
        return Err(Failure::new(unknown, "unknown flags of a mapping"));
    }
    Ok(sharing)
}

/// Records in the table of the task that a program has mapped `len` bytes, rounded up to pages, at
/// `addr`, as mmap(2) with MAP_FIXED, in place of earlier mappings there. The library maps no
/// memory, and never follows the address, which may be of another process. The file stays open
/// while it is mapped, also if `fd` is closed.
///
/// `flags`: MAP_FIXED with MAP_SHARED, MAP_SHARED_VALIDATE or MAP_PRIVATE; MAP_ANONYMOUS, with
/// which `fd` and `offset` have no meaning; MAP_NORESERVE, MAP_POPULATE, MAP_NONBLOCK, MAP_LOCKED
/// and MAP_STACK, which change nothing in the table. Returns 0, not the address.
///
/// Errors: those of mmap(2); EINVAL without MAP_FIXED.
#[unsafe(no_mangle)]
pub extern "C" fn vfscale_mmap(
    task: *mut vfscale_task,
    addr: *mut c_void,
    len: usize,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> c_int {
    border("mmap", || {
        let (protection, sharing) = (protection(prot)?, sharing(flags)?);
        let (start, len) = (addr as u64, len as u64);
        let task = self::task(task)?;
        let map = |source| task.posix().mmap(start, len, protection, sharing, source);
        if flags & libc::MAP_ANONYMOUS != 0 {
            let name = if sharing == Sharing::Shared { SHARED_MEMORY } else { "" };
            return Ok(map(Source::Anonymous(name))?);
        }
        // Linux takes a negative offset as one beyond every file, too.
        let (file, offset) = (file(&task, fd)?, offset.cast_unsigned());
        Ok(map(Source::File { file: &file, offset })?)
    })
}

/// Records a mapping as vfscale_mmap with MAP_ANONYMOUS, of memory with a name that the table
/// shows: "[heap]", "[stack]", or another text in UTF-8.
///
/// Errors: those of vfscale_mmap; EINVAL for a name that is not in UTF-8.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_mmap_named(
    task: *mut vfscale_task,
    addr: *mut c_void,
    len: usize,
    prot: c_int,
    flags: c_int,
    name: *const c_char,
) -> c_int {
    border("mmap", || {
        let name = given!(string(name, "the name"))?;
        let (protection, sharing) = (protection(prot)?, sharing(flags)?);
        let name = name.to_str();
        let name = name.ok_or_else(|| Failure::new(Errno::INVAL, "the name is not in UTF-8"))?;
        let (start, len, source) = (addr as u64, len as u64, Source::Anonymous(name));
        Ok(self::task(task)?.posix().mmap(start, len, protection, sharing, source)?)
    })
}

/// Removes the mappings of `len` bytes, rounded up to pages, at `addr` from the table of the task,
/// as munmap(2). A gap is no error.
///
/// Errors: those of munmap(2).
#[unsafe(no_mangle)]
pub extern "C" fn vfscale_munmap(task: *mut vfscale_task, addr: *mut c_void, len: usize) -> c_int {
    border("munmap", || Ok(self::task(task)?.posix().munmap(addr as u64, len as u64)?))
}

/// Changes the protection of the mappings of a range in the table of the task, as mprotect(2).
/// After a failure, the part before it stays changed.
///
/// Errors: those of mprotect(2).
#[unsafe(no_mangle)]
pub extern "C" fn vfscale_mprotect(
    task: *mut vfscale_task,
    addr: *mut c_void,
    len: usize,
    prot: c_int,
) -> c_int {
    border("mprotect", || {
        let protection = protection(prot)?;
        Ok(self::task(task)?.posix().mprotect(addr as u64, len as u64, protection)?)
    })
}

/// Describes a mapping, as a line of `/proc/PID/maps` does.
fn described(task: &Task, mapping: &Mapping) -> vfscale_mapping {
    // `stat` of an open file does not fail.
    let stat = mapping.file.as_ref().and_then(|file| file.stat().ok()).unwrap_or_default();
    // A path that is too long is `?`, as in the text of the table.
    let path = |file| task.posix().path_of(file).unwrap_or_else(|_| PathBuf::from("?"));
    let path = mapping.file.as_ref().map(path);
    let name = path.as_ref().map_or(OsStr::new(&*mapping.name), |path| path.as_os_str());
    let sharing = match mapping.sharing {
        Sharing::Private => libc::MAP_PRIVATE,
        Sharing::Shared => libc::MAP_SHARED,
    };
    let kind = if mapping.file.is_some() { libc::MAP_FILE } else { libc::MAP_ANONYMOUS };
    let mut to = vfscale_mapping {
        start: mapping.start,
        end: mapping.end,
        offset: mapping.offset,
        dev: stat.dev,
        ino: stat.ino,
        prot: u32::from(mapping.protection.bits()),
        flags: (sharing | kind).cast_unsigned(),
        name_len: 0,
        reserved: [0; 9],
        name: [0; 4096],
    };
    to.name_len = copy_name(name.as_bytes(), &mut to.name);
    to
}

/// Stores up to `max` mappings of the task in `mappings`, in the order of addresses, and returns
/// how many it has. All are of one moment.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_mappings(
    task: *mut vfscale_task,
    mappings: *mut vfscale_mapping,
    max: usize,
) -> ssize_t {
    border("vfscale_mappings", || {
        let room = given!(room(mappings, max))?;
        let task = self::task(task)?;
        let all = task.posix().mappings();
        Ok(room.fill(all.iter().map(|mapping| described(&task, mapping))))
    })
}
