//! Extended attributes, access control lists among them.

use std::ffi::{OsString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;

use libc::ssize_t;
use vfscale::Errno;
use vfscale::posix::{At, AtFlags, XattrFlags};

use crate::args::{at, at_flags, fill, given};
use crate::border::{Failure, border};
use crate::structs::vfscale_task;
use crate::task_handle::{changeable, task};

const NAME: &str = "the name of the attribute";
const NOFOLLOW: c_int = libc::AT_SYMLINK_NOFOLLOW;

/// Refuses a size that no attribute has, before memory is read.
fn check_size(size: usize) -> Result<(), Failure> {
    if size > 65_536 {
        return Err(Failure::new(Errno::TOOBIG, "a value has at most 65,536 bytes"));
    }
    Ok(())
}

/// Returns how an attribute is set.
fn how(flags: c_int) -> Result<XattrFlags, Failure> {
    let how = XattrFlags::from_bits(flags.cast_unsigned());
    how.ok_or_else(|| Failure::new(Errno::INVAL, "unknown flags"))
}

/// Copies the names, each with a zero behind it, and returns their length.
fn fill_names(buf: &mut [u8], names: &[OsString]) -> Result<usize, Failure> {
    let mut all = Vec::new();
    for name in names {
        all.extend_from_slice(name.as_bytes());
        all.push(0);
    }
    fill(buf, &all)
}

/// Copies the value of an extended attribute to `value`, which has `size` bytes, and returns its
/// length; a size of 0 only asks for the length. Follows a symbolic link, as getxattr(2).
///
/// Errors: ENODATA if there is no such attribute; ERANGE if the buffer is too short.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_getxattr(
    task: *mut vfscale_task,
    path: *const c_char,
    name: *const c_char,
    value: *mut c_void,
    size: usize,
) -> ssize_t {
    // SAFETY: the caller has promised what the header says.
    unsafe { vfscale_getxattrat(task, libc::AT_FDCWD, path, 0, name, value, size) }
}

/// Copies the value of an extended attribute of a file or symbolic link, as lgetxattr(2); see
/// vfscale_getxattr.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_lgetxattr(
    task: *mut vfscale_task,
    path: *const c_char,
    name: *const c_char,
    value: *mut c_void,
    size: usize,
) -> ssize_t {
    // SAFETY: the caller has promised what the header says.
    unsafe { vfscale_getxattrat(task, libc::AT_FDCWD, path, NOFOLLOW, name, value, size) }
}

/// Copies the value of an extended attribute of an open file, as fgetxattr(2); see
/// vfscale_getxattr.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_fgetxattr(
    task: *mut vfscale_task,
    fd: c_int,
    name: *const c_char,
    value: *mut c_void,
    size: usize,
) -> ssize_t {
    border("fgetxattr", || {
        let (name, buf) = (given!(string(name, NAME))?, given!(buffer(value, size))?);
        let task = self::task(task)?;
        let (file, flags) = (changeable(&task, fd)?, AtFlags::EMPTY_PATH);
        fill(buf, &task.posix().getxattrat(At::File(&file), "", name, flags)?)
    })
}

/// Copies the value of an extended attribute relative to a directory, as getxattrat(2). `flags`:
/// AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH. See vfscale_getxattr.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_getxattrat(
    task: *mut vfscale_task,
    dirfd: c_int,
    path: *const c_char,
    flags: c_int,
    name: *const c_char,
    value: *mut c_void,
    size: usize,
) -> ssize_t {
    border("getxattrat", || {
        let (path, name) = (given!(path(path))?, given!(string(name, NAME))?);
        let buf = given!(buffer(value, size))?;
        let task = self::task(task)?;
        fill(buf, &task.posix().getxattrat(at(dirfd), path, name, at_flags(flags))?)
    })
}

/// Sets an extended attribute to the `size` bytes at `value`. `how`: XATTR_CREATE, XATTR_REPLACE.
/// Follows a symbolic link, as setxattr(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_setxattr(
    task: *mut vfscale_task,
    path: *const c_char,
    name: *const c_char,
    value: *const c_void,
    size: usize,
    how: c_int,
) -> c_int {
    // SAFETY: the caller has promised what the header says.
    unsafe { vfscale_setxattrat(task, libc::AT_FDCWD, path, 0, name, value, size, how) }
}

/// Sets an extended attribute of a file or symbolic link, as lsetxattr(2); see vfscale_setxattr.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_lsetxattr(
    task: *mut vfscale_task,
    path: *const c_char,
    name: *const c_char,
    value: *const c_void,
    size: usize,
    how: c_int,
) -> c_int {
    // SAFETY: the caller has promised what the header says.
    unsafe { vfscale_setxattrat(task, libc::AT_FDCWD, path, NOFOLLOW, name, value, size, how) }
}

/// Sets an extended attribute of an open file, as fsetxattr(2); see vfscale_setxattr.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_fsetxattr(
    task: *mut vfscale_task,
    fd: c_int,
    name: *const c_char,
    value: *const c_void,
    size: usize,
    how: c_int,
) -> c_int {
    border("fsetxattr", || {
        check_size(size)?;
        let (name, value) = (given!(string(name, NAME))?, given!(bytes(value, size))?);
        let (task, how) = (self::task(task)?, self::how(how)?);
        let (file, flags) = (changeable(&task, fd)?, AtFlags::EMPTY_PATH);
        Ok(task.posix().setxattrat(At::File(&file), "", name, value, how, flags)?)
    })
}

/// Sets an extended attribute relative to a directory, as setxattrat(2). `flags`:
/// AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH. See vfscale_setxattr.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_setxattrat(
    task: *mut vfscale_task,
    dirfd: c_int,
    path: *const c_char,
    flags: c_int,
    name: *const c_char,
    value: *const c_void,
    size: usize,
    how: c_int,
) -> c_int {
    border("setxattrat", || {
        check_size(size)?;
        let (path, name) = (given!(path(path))?, given!(string(name, NAME))?);
        let (value, how) = (given!(bytes(value, size))?, self::how(how)?);
        let (task, flags) = (self::task(task)?, at_flags(flags));
        Ok(task.posix().setxattrat(at(dirfd), path, name, value, how, flags)?)
    })
}

/// Copies the names of all extended attributes to `list`, each with a zero behind it, and returns
/// their length; a size of 0 only asks for it. Follows a symbolic link, as listxattr(2).
///
/// Errors: ERANGE if the buffer is too short.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_listxattr(
    task: *mut vfscale_task,
    path: *const c_char,
    list: *mut c_char,
    size: usize,
) -> ssize_t {
    // SAFETY: the caller has promised what the header says.
    unsafe { vfscale_listxattrat(task, libc::AT_FDCWD, path, 0, list, size) }
}

/// Copies the names of the extended attributes of a file or symbolic link, as llistxattr(2); see
/// vfscale_listxattr.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_llistxattr(
    task: *mut vfscale_task,
    path: *const c_char,
    list: *mut c_char,
    size: usize,
) -> ssize_t {
    // SAFETY: the caller has promised what the header says.
    unsafe { vfscale_listxattrat(task, libc::AT_FDCWD, path, NOFOLLOW, list, size) }
}

/// Copies the names of the extended attributes of an open file, as flistxattr(2); see
/// vfscale_listxattr.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_flistxattr(
    task: *mut vfscale_task,
    fd: c_int,
    list: *mut c_char,
    size: usize,
) -> ssize_t {
    border("flistxattr", || {
        let buf = given!(buffer(list.cast(), size))?;
        let task = self::task(task)?;
        let (file, flags) = (changeable(&task, fd)?, AtFlags::EMPTY_PATH);
        fill_names(buf, &task.posix().listxattrat(At::File(&file), "", flags)?)
    })
}

/// Copies the names of the extended attributes relative to a directory, as listxattrat(2). `flags`:
/// AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH. See vfscale_listxattr.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_listxattrat(
    task: *mut vfscale_task,
    dirfd: c_int,
    path: *const c_char,
    flags: c_int,
    list: *mut c_char,
    size: usize,
) -> ssize_t {
    border("listxattrat", || {
        let (path, buf) = (given!(path(path))?, given!(buffer(list.cast(), size))?);
        let task = self::task(task)?;
        fill_names(buf, &task.posix().listxattrat(at(dirfd), path, at_flags(flags))?)
    })
}

/// Removes an extended attribute; follows a symbolic link, as removexattr(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_removexattr(
    task: *mut vfscale_task,
    path: *const c_char,
    name: *const c_char,
) -> c_int {
    // SAFETY: the caller has promised what the header says.
    unsafe { vfscale_removexattrat(task, libc::AT_FDCWD, path, 0, name) }
}

/// Removes an extended attribute of a file or symbolic link, as lremovexattr(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_lremovexattr(
    task: *mut vfscale_task,
    path: *const c_char,
    name: *const c_char,
) -> c_int {
    // SAFETY: the caller has promised what the header says.
    unsafe { vfscale_removexattrat(task, libc::AT_FDCWD, path, NOFOLLOW, name) }
}

/// Removes an extended attribute of an open file, as fremovexattr(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_fremovexattr(
    task: *mut vfscale_task,
    fd: c_int,
    name: *const c_char,
) -> c_int {
    border("fremovexattr", || {
        let name = given!(string(name, NAME))?;
        let task = self::task(task)?;
        let (file, flags) = (changeable(&task, fd)?, AtFlags::EMPTY_PATH);
        Ok(task.posix().removexattrat(At::File(&file), "", name, flags)?)
    })
}

/// Removes an extended attribute relative to a directory, as removexattrat(2). `flags`:
/// AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_removexattrat(
    task: *mut vfscale_task,
    dirfd: c_int,
    path: *const c_char,
    flags: c_int,
    name: *const c_char,
) -> c_int {
    border("removexattrat", || {
        let (path, name) = (given!(path(path))?, given!(string(name, NAME))?);
        let (task, flags) = (self::task(task)?, at_flags(flags));
        Ok(task.posix().removexattrat(at(dirfd), path, name, flags)?)
    })
}
