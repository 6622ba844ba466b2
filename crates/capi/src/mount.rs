//! Mounts.

use std::ffi::{c_char, c_int, c_ulong};
use std::fmt::Write as _;

use libc::ssize_t;
use vfscale::posix::{FstrimRange, MountFlags, Propagation, UmountFlags};
use vfscale::{Errno, ProcFs};

use crate::args::{at, fill, given};
use crate::border::{Failure, border};
use crate::fs::memory_options;
use crate::structs::{vfscale_fstrim_range, vfscale_memory_options, vfscale_task};
use crate::task_handle::task;

/// Returns the flags of a mount.
fn mount_flags(flags: c_ulong) -> Result<MountFlags, Failure> {
    let flags = u32::try_from(flags).ok().and_then(MountFlags::from_bits);
    flags.ok_or_else(|| Failure::new(Errno::INVAL, "unknown flags of a mount"))
}

/// Mounts a new file system in memory at `target`. `options` are `options_size` bytes, sizeof
/// *options; NULL means the default of each. `flags`: MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC,
/// MS_NOATIME and others of mount(2).
///
/// Errors: EPERM without CAP_SYS_ADMIN; those of a walk; ENOTDIR.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_mount_memory(
    task: *mut vfscale_task,
    target: *const c_char,
    flags: c_ulong,
    options: *const vfscale_memory_options,
    options_size: usize,
) -> c_int {
    border("mount", || {
        let (target, flags) = (given!(path(target))?, mount_flags(flags)?);
        let options = given!(options(options, options_size))?;
        let text = given!(optional_text(options.text, "the options"))?;
        let options = memory_options(&options, text.as_deref())?;
        let builder = options.memory(vfscale::memory()).map_err(vfscale::Error::from)?;
        Ok(self::task(task)?.posix().mount(builder.driver(), target, flags)?)
    })
}

/// Mounts the state of the task's tree as text at `target`: mounts, counts, locks, as /proc shows
/// them. `flags` as for vfscale_mount_memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_mount_proc(
    task: *mut vfscale_task,
    target: *const c_char,
    flags: c_ulong,
) -> c_int {
    border("mount", || {
        let (target, flags) = (given!(path(target))?, mount_flags(flags)?);
        let task = self::task(task)?;
        Ok(task.posix().mount(ProcFs::new(task.vfs()), target, flags)?)
    })
}

/// Makes the file or directory at `source` visible at `target` too, as mount(2) with MS_BIND;
/// `recursive` is 1 to include the mounts below it, otherwise 0.
///
/// Errors: EPERM without CAP_SYS_ADMIN; those of a walk.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_bind(
    task: *mut vfscale_task,
    source: *const c_char,
    target: *const c_char,
    recursive: c_int,
) -> c_int {
    border("mount", || {
        let (source, target) = (given!(path(source))?, given!(path(target))?);
        Ok(self::task(task)?.posix().bind(source, target, recursive != 0)?)
    })
}

/// Moves the mount at `source` to `target`, as mount(2) with MS_MOVE.
///
/// Errors: EPERM without CAP_SYS_ADMIN; EINVAL if `source` is no mount; ELOOP.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_move_mount(
    task: *mut vfscale_task,
    source: *const c_char,
    target: *const c_char,
) -> c_int {
    border("move_mount", || {
        let (source, target) = (given!(path(source))?, given!(path(target))?);
        Ok(self::task(task)?.posix().move_mount(source, target)?)
    })
}

/// Unmounts the topmost mount at `path`, as umount2(2). `flags`: MNT_DETACH, MNT_EXPIRE, MNT_FORCE,
/// UMOUNT_NOFOLLOW.
///
/// Errors: EPERM without CAP_SYS_ADMIN; EINVAL if `path` is no mount; EBUSY if it is in use; EAGAIN
/// for the first MNT_EXPIRE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_umount2(
    task: *mut vfscale_task,
    path: *const c_char,
    flags: c_int,
) -> c_int {
    border("umount2", || {
        let path = given!(path(path))?;
        let flags = UmountFlags::from_bits_retain(flags.cast_unsigned());
        Ok(self::task(task)?.posix().umount(path, flags)?)
    })
}

/// Sets the flags of the mount at `path`, and MS_RDONLY also of its file system; with `bind` not 0,
/// those of the mount only, as mount(2) with MS_REMOUNT and MS_BIND.
///
/// Errors: EPERM without CAP_SYS_ADMIN; EINVAL if `path` is no mount; EBUSY for MS_RDONLY while a
/// file is open for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_remount(
    task: *mut vfscale_task,
    path: *const c_char,
    flags: c_ulong,
    bind: c_int,
) -> c_int {
    border("mount", || {
        let (path, flags) = (given!(path(path))?, mount_flags(flags)?);
        let task = self::task(task)?;
        if bind != 0 {
            return Ok(task.posix().remount_bind(path, flags)?);
        }
        Ok(task.posix().remount(path, flags)?)
    })
}

/// Sets the propagation of the mount at `path`: MS_SHARED, MS_PRIVATE, MS_SLAVE or MS_UNBINDABLE,
/// with MS_REC for the mounts below it.
///
/// Errors: EPERM without CAP_SYS_ADMIN; EINVAL if `path` is no mount.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_set_propagation(
    task: *mut vfscale_task,
    path: *const c_char,
    flags: c_ulong,
) -> c_int {
    border("mount", || {
        let path = given!(path(path))?;
        let propagation = match flags & !libc::MS_REC {
            libc::MS_SHARED => Propagation::Shared,
            libc::MS_PRIVATE => Propagation::Private,
            libc::MS_SLAVE => Propagation::Slave,
            libc::MS_UNBINDABLE => Propagation::Unbindable,
            _ => return Err(Failure::new(Errno::INVAL, "an unknown propagation")),
        };
        let recursive = flags & libc::MS_REC != 0;
        Ok(self::task(task)?.posix().set_propagation(path, propagation, recursive)?)
    })
}

/// Writes the mounts that the task sees to `buf`, which has `size` bytes: the lines of
/// /proc/self/mountinfo, without a zero. Returns their length; a size of 0 only asks for it.
///
/// Errors: ERANGE if the buffer is too short.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_mountinfo(
    task: *mut vfscale_task,
    buf: *mut c_char,
    size: usize,
) -> ssize_t {
    border("vfscale_mountinfo", || {
        let buf = given!(buffer(buf.cast(), size))?;
        let mut text = String::new();
        for mount in self::task(task)?.posix().mounts() {
            // A string has no errors.
            let _ = writeln!(text, "{}", mount.mountinfo());
        }
        fill(buf, text.as_bytes())
    })
}

/// Grows the file system of a path while it is in use to `bytes`, rounded down to a valid size.
/// Returns its durable size in bytes. Blocks for the I/O.
///
/// Errors: EPERM without CAP_SYS_ADMIN; EOPNOTSUPP if it has no fixed size; EINVAL if it is larger
/// already; EFBIG; EROFS; ENOSPC; EIO.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_grow_fs(
    task: *mut vfscale_task,
    dirfd: c_int,
    path: *const c_char,
    bytes: u64,
) -> i64 {
    border("grow_fs", || {
        let path = given!(path(path))?;
        Ok(self::task(task)?.posix().grow_fs(at(dirfd), path, bytes)?)
    })
}

/// Discards the free blocks of the file system of a path, as the ioctl FITRIM does, and returns how
/// many bytes. `range` NULL means all of them. Blocks for the I/O; other calls go on.
///
/// Errors: EPERM without CAP_SYS_ADMIN; EOPNOTSUPP if the file system or its device can't do that;
/// EINVAL for a range outside of it, or of less than a block; EROFS; EIO.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_trim_fs(
    task: *mut vfscale_task,
    dirfd: c_int,
    path: *const c_char,
    range: *const vfscale_fstrim_range,
) -> i64 {
    border("trim_fs", || {
        let path = given!(path(path))?;
        let range = match *given!(values(range, usize::from(!range.is_null())))? {
            [vfscale_fstrim_range { start, len, minlen }, ..] => FstrimRange { start, len, minlen },
            [] => FstrimRange { start: 0, len: u64::MAX, minlen: 0 },
        };
        Ok(self::task(task)?.posix().trim_fs(at(dirfd), path, range)?)
    })
}

/// Drops the unused dentries below a path, and returns their number. Later walks look them up
/// again.
///
/// Errors: EPERM without CAP_SYS_ADMIN.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_drop_cached(
    task: *mut vfscale_task,
    dirfd: c_int,
    path: *const c_char,
) -> ssize_t {
    border("drop_cached", || {
        let path = given!(path(path))?;
        Ok(self::task(task)?.posix().drop_cached(at(dirfd), path)?)
    })
}
