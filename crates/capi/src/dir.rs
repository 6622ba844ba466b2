//! Directory streams.

use std::collections::VecDeque;
use std::ffi::{OsStr, c_char, c_int, c_void};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;

use libc::ssize_t;
use vfscale::posix::{DirEntryBuf, OFlags};
use vfscale::{Errno, File, FileType};
use vfscale_sync::lock::Mutex;

use crate::args::given;
use crate::border::{Failure, border};
use crate::handles::{Kind, Table};
use crate::ranks::DirStreamLock;
use crate::structs::{copy_name, vfscale_dir, vfscale_dirent, vfscale_task};
use crate::task_handle::{file, task};

/// Number of entries that a stream reads ahead.
const AHEAD: usize = 64;

static DIRS: Table<Dir> = Table::new(Kind::Dir, false);

/// A directory stream: the open directory, and what was read ahead of it.
struct Dir {
    file: File,
    state: Mutex<Position, DirStreamLock>,
}

#[derive(Default)]
struct Position {
    /// The position of the next entry to return.
    next: u64,
    ahead: VecDeque<DirEntryBuf>,
}

impl Dir {
    fn insert(file: File) -> Result<*mut vfscale_dir, Failure> {
        let state = Mutex::new(Position::default());
        Ok(DIRS.insert(Dir { file, state })? as *mut vfscale_dir)
    }

    fn next(&self) -> Result<Option<DirEntryBuf>, Failure> {
        let mut state = self.state.lock();
        if state.ahead.is_empty() {
            let from = state.next;
            self.file.read_dir_at(from, |entry| {
                state.ahead.push_back(entry.into());
                if state.ahead.len() < AHEAD {
                    ControlFlow::Continue(())
                } else {
                    ControlFlow::Break(())
                }
            })?;
        }
        let entry = state.ahead.pop_front();
        if let Some(entry) = &entry {
            state.next = entry.next;
        }
        Ok(entry)
    }

    /// Fills `buf` with records of the next entries, and returns their length.
    fn fill(&self, buf: &mut [u8]) -> Result<usize, Failure> {
        let mut state = self.state.lock();
        let (mut len, mut is_full) = (0, false);
        while let Some(DirEntryBuf { ino, next, file_type, name }) = state.ahead.front() {
            let (next, record) =
                (*next, Record { ino: *ino, next: *next, file_type: *file_type, name });
            let Some(end) = record.put(buf, len) else { break };
            (len, state.next) = (end, next);
            state.ahead.pop_front();
        }
        if state.ahead.is_empty() {
            let mut next = state.next;
            self.file.read_dir_at(next, |entry| {
                let record = Record {
                    ino: entry.ino,
                    next: entry.next,
                    file_type: entry.file_type,
                    name: entry.name,
                };
                let Some(end) = record.put(buf, len) else {
                    is_full = true;
                    return ControlFlow::Break(());
                };
                (len, next) = (end, entry.next);
                ControlFlow::Continue(())
            })?;
            state.next = next;
        } else {
            is_full = true;
        }
        if len == 0 && is_full {
            return Err(Failure::new(Errno::INVAL, "the buffer has no room for the next entry"));
        }
        Ok(len)
    }

    fn seek(&self, to: u64) {
        *self.state.lock() = Position { next: to, ahead: VecDeque::new() };
    }
}

/// Bytes of a record of `getdents64(2)` before its name.
const RECORD_HEAD: usize = 19;

/// A record of `getdents64(2)`.
struct Record<'a> {
    ino: u64,
    next: u64,
    file_type: FileType,
    name: &'a OsStr,
}

impl Record<'_> {
    /// Writes it at `at`, and returns its end; `None` if there is no room for it.
    #[expect(clippy::host_endian_bytes, reason = "the caller speaks the machine's byte order")]
    fn put(&self, buf: &mut [u8], at: usize) -> Option<usize> {
        let name = self.name.as_bytes();
        let len = (RECORD_HEAD + name.len() + 1).next_multiple_of(8);
        let record = buf.get_mut(at..at.checked_add(len)?)?;
        record[..8].copy_from_slice(&self.ino.to_ne_bytes());
        record[8..16].copy_from_slice(&self.next.to_ne_bytes());
        record[16..18].copy_from_slice(&u16::try_from(len).ok()?.to_ne_bytes());
        record[18] = d_type(self.file_type) as u8;
        record[RECORD_HEAD..][..name.len()].copy_from_slice(name);
        record[RECORD_HEAD + name.len()..].fill(0);
        Some(at + len)
    }
}

/// Returns the `d_type` of a type.
pub(crate) fn d_type(file_type: FileType) -> u32 {
    file_type.as_raw_mode() >> 12 & 0xf
}

/// Opens a stream of the entries of a directory, as opendir(3), and stores its handle in `dir`. It
/// takes no descriptor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_opendir(
    task: *mut vfscale_task,
    path: *const c_char,
    dir: *mut *mut vfscale_dir,
) -> c_int {
    border("opendir", || {
        let (path, place) = (given!(path(path))?, given!(place(dir))?);
        let flags = OFlags::DIRECTORY | OFlags::RDONLY;
        place.set(Dir::insert(self::task(task)?.posix().open(path, flags, 0)?)?);
        Ok(())
    })
}

/// Opens a stream of the entries of the directory of a descriptor, as fdopendir(3), and stores its
/// handle in `dir`. The stream begins at the first entry and has a position of its own; the
/// descriptor stays the caller's, who closes it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_fdopendir(
    task: *mut vfscale_task,
    fd: c_int,
    dir: *mut *mut vfscale_dir,
) -> c_int {
    border("fdopendir", || {
        let place = given!(place(dir))?;
        let file = file(&*self::task(task)?, fd)?;
        if file.is_path() {
            return Err(Failure::new(Errno::BADF, "the descriptor was opened with O_PATH"));
        }
        if file.file_type() != FileType::Directory {
            return Err(Failure::new(Errno::NOTDIR, "the descriptor is not of a directory"));
        }
        place.set(Dir::insert(file)?);
        Ok(())
    })
}

/// Stores the next entry of a directory in `entry`, `.` and `..` first, as readdir(3). Returns 1,
/// or 0 at the end. Threads that share a stream get each entry once.
///
/// Errors: ENOENT if the directory was removed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_readdir(
    dir: *mut vfscale_dir,
    entry: *mut vfscale_dirent,
) -> c_int {
    border("readdir", || {
        let place = given!(place(entry))?;
        let Some(next) = DIRS.get(dir as u64)?.next()? else { return Ok(false) };
        let mut entry = vfscale_dirent {
            d_ino: next.ino,
            d_off: next.next,
            d_namlen: 0,
            d_type: d_type(next.file_type),
            d_name: [0; 256],
        };
        entry.d_namlen = copy_name(next.name.as_bytes(), &mut entry.d_name);
        place.set(entry);
        Ok(true)
    })
}

/// Stores as many of the next entries of a directory in `buf` as its `size` bytes have room for,
/// `.` and `..` first, in the records of getdents64(2): struct dirent64 of <dirent.h>. Returns the
/// length of the records in bytes, or 0 at the end. A name takes at most 280 bytes.
///
/// Errors: EINVAL if there is no room for the next entry; ENOENT if the directory was removed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_getdents64(
    dir: *mut vfscale_dir,
    buf: *mut c_void,
    size: usize,
) -> ssize_t {
    border("getdents64", || {
        let buf = given!(buffer(buf, size))?;
        DIRS.get(dir as u64)?.fill(buf)
    })
}

/// Returns the position of a stream, as telldir(3). It is valid despite all changes of the
/// directory, also for another stream of it.
#[unsafe(no_mangle)]
pub extern "C" fn vfscale_telldir(dir: *mut vfscale_dir) -> i64 {
    border("telldir", || Ok(DIRS.get(dir as u64)?.state.lock().next))
}

/// Moves a stream to a position of vfscale_telldir or of d_off, as seekdir(3).
#[unsafe(no_mangle)]
pub extern "C" fn vfscale_seekdir(dir: *mut vfscale_dir, position: i64) -> c_int {
    border("seekdir", || {
        let position = crate::args::offset(position, "the position")?;
        DIRS.get(dir as u64)?.seek(position);
        Ok(())
    })
}

/// Moves a stream to the first entry, as rewinddir(3).
#[unsafe(no_mangle)]
pub extern "C" fn vfscale_rewinddir(dir: *mut vfscale_dir) -> c_int {
    border("rewinddir", || {
        DIRS.get(dir as u64)?.seek(0);
        Ok(())
    })
}

/// Closes a stream and frees its handle, as closedir(3).
#[unsafe(no_mangle)]
pub extern "C" fn vfscale_closedir(dir: *mut vfscale_dir) -> c_int {
    border("closedir", || DIRS.remove(dir as u64))
}
