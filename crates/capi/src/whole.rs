//! Whole files and trees: calls that POSIX lacks.

use std::ffi::{c_char, c_int, c_void};

use libc::{mode_t, ssize_t};
use vfscale::{DirBuilder, Durability};

use crate::args::{fill, given, mode};
use crate::border::border;
use crate::structs::vfscale_task;
use crate::task::fill_path;
use crate::task_handle::task;

/// Copies the contents of a file to `buf`, which has `size` bytes, and returns their length; a size
/// of 0 only asks for it.
///
/// Errors: ERANGE if the buffer is too short; those of opening and reading.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_read_file(
    task: *mut vfscale_task,
    path: *const c_char,
    buf: *mut c_void,
    size: usize,
) -> ssize_t {
    border("vfscale_read_file", || {
        let (path, buf) = (given!(path(path))?, given!(buffer(buf, size))?);
        let task = self::task(task)?;
        if buf.is_empty() {
            return Ok(task.open(path)?.metadata()?.len() as usize);
        }
        fill(buf, &task.read(path)?)
    })
}

/// Writes `size` bytes to a file, which is made or truncated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_write_file(
    task: *mut vfscale_task,
    path: *const c_char,
    buf: *const c_void,
    size: usize,
) -> c_int {
    border("vfscale_write_file", || {
        let (path, bytes) = (given!(path(path))?, given!(bytes(buf, size))?);
        Ok(self::task(task)?.write(path, bytes)?)
    })
}

/// Replaces the contents of a file at once: any reader, and the volume after a crash, has all of
/// the old or all of the new contents. With `durable` not 0, the new contents survive a crash when
/// the call returns. Blocks for the I/O.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_replace_file(
    task: *mut vfscale_task,
    path: *const c_char,
    buf: *const c_void,
    size: usize,
    durable: c_int,
) -> c_int {
    border("vfscale_replace_file", || {
        let (path, bytes) = (given!(path(path))?, given!(bytes(buf, size))?);
        let durability = if durable == 0 { Durability::Ordered } else { Durability::Durable };
        Ok(self::task(task)?.replace_file(path, bytes, durability)?)
    })
}

/// Makes a directory and the missing ones above it. A directory that exists is no error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_mkdir_all(
    task: *mut vfscale_task,
    path: *const c_char,
    mode: mode_t,
) -> c_int {
    border("vfscale_mkdir_all", || {
        let path = given!(path(path))?;
        let builder = DirBuilder::new().recursive(true).mode(self::mode(mode));
        Ok(self::task(task)?.create_dir_with(path, &builder)?)
    })
}

/// Removes a directory and everything below it. Follows no symbolic link.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_remove_all(task: *mut vfscale_task, path: *const c_char) -> c_int {
    border("vfscale_remove_all", || {
        let path = given!(path(path))?;
        Ok(self::task(task)?.remove_dir_all(path)?)
    })
}

/// Copies the contents and permission bits of a file, and returns the number of bytes. `to` is made
/// or truncated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_copy_file(
    task: *mut vfscale_task,
    from: *const c_char,
    to: *const c_char,
) -> i64 {
    border("vfscale_copy_file", || {
        let (from, to) = (given!(path(from))?, given!(path(to))?);
        Ok(self::task(task)?.copy(from, to)?)
    })
}

/// Copies the tree at `from` to the new directory `to`, and returns the number of files.
///
/// Errors: EEXIST if `to` exists; EINVAL if it is in `from`; those of reading and writing. What was
/// copied before stays.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_copy_all(
    task: *mut vfscale_task,
    from: *const c_char,
    to: *const c_char,
) -> i64 {
    border("vfscale_copy_all", || {
        let (from, to) = (given!(path(from))?, given!(path(to))?);
        Ok(self::task(task)?.copy_dir_all(from, to)?)
    })
}

/// Writes the absolute path of a file without symbolic links and a zero to `buf`, which has `size`
/// bytes, as realpath(3). Returns the length of the path without the zero; a size of 0 only asks
/// for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_realpath(
    task: *mut vfscale_task,
    path: *const c_char,
    buf: *mut c_char,
    size: usize,
) -> ssize_t {
    border("realpath", || {
        let (path, buf) = (given!(path(path))?, given!(buffer(buf.cast(), size))?);
        fill_path(buf, &self::task(task)?.canonicalize(path)?)
    })
}
