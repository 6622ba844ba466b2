//! Attributes: reading and changing them.

use std::ffi::{c_char, c_int};
use std::path::Path;

use libc::{gid_t, mode_t, timespec, uid_t};
use vfscale::posix::{Access, At, AtFlags, Fd, InodeFlags, SetTime, StatMask};
use vfscale::{Errno, Timestamp};

use crate::args::{at, at_flags, given, mode};
use crate::border::{Failure, border};
use crate::structs::{vfscale_stat, vfscale_statfs, vfscale_task};
use crate::task_handle::{changeable, file, task};

/// Reads the attributes of a file; follows a symbolic link, as stat(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_stat(
    task: *mut vfscale_task,
    path: *const c_char,
    st: *mut vfscale_stat,
) -> c_int {
    border("stat", || {
        let (path, place) = (given!(path(path))?, given!(place(st))?);
        place.set(self::task(task)?.posix().fstatat(At::Cwd, path, AtFlags::empty())?.into());
        Ok(())
    })
}

/// Reads the attributes of a file or symbolic link, as lstat(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_lstat(
    task: *mut vfscale_task,
    path: *const c_char,
    st: *mut vfscale_stat,
) -> c_int {
    border("lstat", || {
        let (path, place) = (given!(path(path))?, given!(place(st))?);
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        place.set(self::task(task)?.posix().fstatat(At::Cwd, path, flags)?.into());
        Ok(())
    })
}

/// Reads the attributes of an open file, as fstat(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_fstat(
    task: *mut vfscale_task,
    fd: c_int,
    st: *mut vfscale_stat,
) -> c_int {
    border("fstat", || {
        let place = given!(place(st))?;
        place.set(self::task(task)?.posix().fstat(Fd(fd))?.into());
        Ok(())
    })
}

/// Reads the attributes of a file relative to a directory, as fstatat(2). `flags`:
/// AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_fstatat(
    task: *mut vfscale_task,
    dirfd: c_int,
    path: *const c_char,
    st: *mut vfscale_stat,
    flags: c_int,
) -> c_int {
    border("fstatat", || {
        let (path, place) = (given!(path(path))?, given!(place(st))?);
        let flags = at_flags(flags);
        place.set(self::task(task)?.posix().fstatat(at(dirfd), path, flags)?.into());
        Ok(())
    })
}

/// Reads the attributes that `mask` requests, with the STATX_* bits, as statx(2). The others are 0,
/// except file system, inode number, type, device and mount.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_statx(
    task: *mut vfscale_task,
    dirfd: c_int,
    path: *const c_char,
    flags: c_int,
    mask: u32,
    st: *mut vfscale_stat,
) -> c_int {
    border("statx", || {
        let (path, place) = (given!(path(path))?, given!(place(st))?);
        let (flags, mask) = (at_flags(flags), StatMask::from_bits_truncate(mask));
        place.set(self::task(task)?.posix().statx(at(dirfd), path, flags, mask)?.into());
        Ok(())
    })
}

/// Reads the state of the file system of a path, as statfs(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_statfs(
    task: *mut vfscale_task,
    path: *const c_char,
    st: *mut vfscale_statfs,
) -> c_int {
    border("statfs", || {
        let (path, place) = (given!(path(path))?, given!(place(st))?);
        place.set(self::task(task)?.posix().statfs(At::Cwd, path)?.into());
        Ok(())
    })
}

/// Reads the state of the file system of an open file, as fstatfs(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_fstatfs(
    task: *mut vfscale_task,
    fd: c_int,
    st: *mut vfscale_statfs,
) -> c_int {
    border("fstatfs", || {
        let place = given!(place(st))?;
        place.set(file(&*self::task(task)?, fd)?.statfs()?.into());
        Ok(())
    })
}

/// Checks whether the real user may read (R_OK), write (W_OK) and execute (X_OK) a file, or whether
/// it exists (F_OK), as access(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_access(
    task: *mut vfscale_task,
    path: *const c_char,
    want: c_int,
) -> c_int {
    border("access", || access(task, At::Cwd, given!(path(path))?, want, 0))
}

/// Checks as vfscale_access, relative to a directory, as faccessat(2). `flags`: AT_EACCESS,
/// AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_faccessat(
    task: *mut vfscale_task,
    dirfd: c_int,
    path: *const c_char,
    want: c_int,
    flags: c_int,
) -> c_int {
    border("faccessat", || access(task, at(dirfd), given!(path(path))?, want, flags))
}

fn access(
    task: *mut vfscale_task,
    at: At<'_>,
    path: &Path,
    want: c_int,
    flags: c_int,
) -> Result<(), Failure> {
    let want = u8::try_from(want).ok().and_then(Access::from_bits);
    let want = want.ok_or_else(|| Failure::new(Errno::INVAL, "unknown rights"))?;
    Ok(self::task(task)?.posix().faccessat(at, path, want, at_flags(flags))?)
}

/// Changes the permission bits of a file, as chmod(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_chmod(
    task: *mut vfscale_task,
    path: *const c_char,
    mode: mode_t,
) -> c_int {
    border("chmod", || {
        let (path, mode) = (given!(path(path))?, self::mode(mode));
        Ok(self::task(task)?.posix().fchmodat(At::Cwd, path, mode, AtFlags::empty())?)
    })
}

/// Changes the permission bits of an open file, as fchmod(2).
#[unsafe(no_mangle)]
pub extern "C" fn vfscale_fchmod(task: *mut vfscale_task, fd: c_int, mode: mode_t) -> c_int {
    border("fchmod", || {
        let task = self::task(task)?;
        let file = changeable(&task, fd)?;
        Ok(task.posix().fchmodat((&file).into(), "", self::mode(mode), AtFlags::EMPTY_PATH)?)
    })
}

/// Changes permission bits relative to a directory, as fchmodat2(2). `flags`: AT_SYMLINK_NOFOLLOW,
/// AT_EMPTY_PATH.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_fchmodat(
    task: *mut vfscale_task,
    dirfd: c_int,
    path: *const c_char,
    mode: mode_t,
    flags: c_int,
) -> c_int {
    border("fchmodat", || {
        let (path, mode) = (given!(path(path))?, self::mode(mode));
        Ok(self::task(task)?.posix().fchmodat(at(dirfd), path, mode, at_flags(flags))?)
    })
}

/// Returns an owner or group; -1 leaves it as it is.
fn id(id: u32) -> Option<u32> {
    (id != u32::MAX).then_some(id)
}

/// Changes owner and group of a file, as chown(2); -1 leaves one as it is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_chown(
    task: *mut vfscale_task,
    path: *const c_char,
    uid: uid_t,
    gid: gid_t,
) -> c_int {
    border("chown", || {
        let path = given!(path(path))?;
        Ok(self::task(task)?.posix().fchownat(At::Cwd, path, id(uid), id(gid), AtFlags::empty())?)
    })
}

/// Changes owner and group of a file or symbolic link, as lchown(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_lchown(
    task: *mut vfscale_task,
    path: *const c_char,
    uid: uid_t,
    gid: gid_t,
) -> c_int {
    border("lchown", || {
        let (path, flags) = (given!(path(path))?, AtFlags::SYMLINK_NOFOLLOW);
        Ok(self::task(task)?.posix().fchownat(At::Cwd, path, id(uid), id(gid), flags)?)
    })
}

/// Changes owner and group of an open file, as fchown(2).
#[unsafe(no_mangle)]
pub extern "C" fn vfscale_fchown(
    task: *mut vfscale_task,
    fd: c_int,
    uid: uid_t,
    gid: gid_t,
) -> c_int {
    border("fchown", || {
        let task = self::task(task)?;
        let (file, flags) = (changeable(&task, fd)?, AtFlags::EMPTY_PATH);
        Ok(task.posix().fchownat((&file).into(), "", id(uid), id(gid), flags)?)
    })
}

/// Changes owner and group relative to a directory, as fchownat(2). `flags`: AT_SYMLINK_NOFOLLOW,
/// AT_EMPTY_PATH.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_fchownat(
    task: *mut vfscale_task,
    dirfd: c_int,
    path: *const c_char,
    uid: uid_t,
    gid: gid_t,
    flags: c_int,
) -> c_int {
    border("fchownat", || {
        let (path, flags) = (given!(path(path))?, at_flags(flags));
        Ok(self::task(task)?.posix().fchownat(at(dirfd), path, id(uid), id(gid), flags)?)
    })
}

/// Reads access and modification time; a null pointer means that both are now.
fn times(from: &[timespec]) -> Result<[SetTime; 2], Failure> {
    let [atime, mtime] = from else { return Ok([SetTime::Now; 2]) };
    let time = |time: &timespec| match time.tv_nsec {
        libc::UTIME_NOW => Ok(SetTime::Now),
        libc::UTIME_OMIT => Ok(SetTime::Omit),
        nanos => match u32::try_from(nanos) {
            Ok(nanos) if nanos < 1_000_000_000 => {
                Ok(SetTime::At(Timestamp::new(time.tv_sec, nanos)))
            }
            _ => Err(Failure::new(Errno::INVAL, "tv_nsec is not 0 to 999,999,999")),
        },
    };
    Ok([time(atime)?, time(mtime)?])
}

/// Changes access and modification time, as utimensat(2): `times` are two, with UTIME_NOW and
/// UTIME_OMIT; NULL means that both are now. `flags`: AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_utimensat(
    task: *mut vfscale_task,
    dirfd: c_int,
    path: *const c_char,
    times: *const timespec,
    flags: c_int,
) -> c_int {
    border("utimensat", || {
        let (path, count) = (given!(path(path))?, if times.is_null() { 0 } else { 2 });
        let times = self::times(given!(values(times, count))?)?;
        Ok(self::task(task)?.posix().utimensat(at(dirfd), path, times, at_flags(flags))?)
    })
}

/// Changes access and modification time of an open file, as futimens(3); see vfscale_utimensat.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_futimens(
    task: *mut vfscale_task,
    fd: c_int,
    times: *const timespec,
) -> c_int {
    border("futimens", || {
        let count = if times.is_null() { 0 } else { 2 };
        let times = self::times(given!(values(times, count))?)?;
        let task = self::task(task)?;
        let file = changeable(&task, fd)?;
        Ok(task.posix().utimensat((&file).into(), "", times, AtFlags::EMPTY_PATH)?)
    })
}

/// Stores the flags of an inode in `flags`: FS_IMMUTABLE_FL and others of <linux/fs.h>, as the
/// ioctl FS_IOC_GETFLAGS.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_getflags(
    task: *mut vfscale_task,
    fd: c_int,
    flags: *mut u32,
) -> c_int {
    border("ioctl", || {
        let (place, task) = (given!(place(flags))?, self::task(task)?);
        place.set(task.posix().ioctl_getflags(&file(&task, fd)?)?.bits());
        Ok(())
    })
}

/// Replaces the flags of an inode, as the ioctl FS_IOC_SETFLAGS.
///
/// Errors: EPERM for a task that does not own the file, and without CAP_LINUX_IMMUTABLE for some;
/// EOPNOTSUPP for a flag that the file system does not store.
#[unsafe(no_mangle)]
pub extern "C" fn vfscale_setflags(task: *mut vfscale_task, fd: c_int, flags: u32) -> c_int {
    border("ioctl", || {
        let task = self::task(task)?;
        let flags = InodeFlags::from_bits_retain(flags);
        Ok(task.posix().ioctl_setflags(&file(&task, fd)?, flags)?)
    })
}
