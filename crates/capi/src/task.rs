//! Tasks.

use std::ffi::{c_char, c_int};

use libc::{mode_t, ssize_t};

use crate::args::{fill, given, mode};
use crate::border::{Failure, border};
use crate::credentials::credentials;
use crate::fs::tree;
use crate::structs::{vfscale_credentials, vfscale_fs, vfscale_task};
use crate::task_handle::{self, file, insert, remove};

/// Makes a task at the root of a tree, and stores its handle in `task`. `creds` are `size` bytes,
/// sizeof *creds; NULL means user 0 with every privilege.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_task_new(
    fs: *mut vfscale_fs,
    creds: *const vfscale_credentials,
    size: usize,
    task: *mut *mut vfscale_task,
) -> c_int {
    border("vfscale_task_new", || {
        let place = given!(place(task))?;
        // SAFETY: the caller has promised what the header says.
        let creds = unsafe { credentials(creds, size) }?;
        place.set(insert(tree(fs)?.vfs()?.task_as(creds))?);
        Ok(())
    })
}

/// Makes a task whose root and working directory are the directory at `path`: a guest, which can't
/// name a file outside of it. The path is resolved with all privileges. Otherwise as
/// vfscale_task_new.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_task_in(
    fs: *mut vfscale_fs,
    path: *const c_char,
    creds: *const vfscale_credentials,
    size: usize,
    task: *mut *mut vfscale_task,
) -> c_int {
    border("vfscale_task_in", || {
        let (path, place) = (given!(path(path))?, given!(place(task))?);
        // SAFETY: the caller has promised what the header says.
        let creds = unsafe { credentials(creds, size) }?;
        place.set(insert(tree(fs)?.vfs()?.task_in(path, creds)?)?);
        Ok(())
    })
}

/// Makes a task with the same root, working directory, umask, credentials and descriptors, as
/// fork(2), and stores its handle in `child`. It does not inherit record locks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_task_fork(
    task: *mut vfscale_task,
    child: *mut *mut vfscale_task,
) -> c_int {
    border("vfscale_task_fork", || {
        let place = given!(place(child))?;
        place.set(insert(task_handle::task(task)?.fork())?);
        Ok(())
    })
}

/// Forks a task into a copy of the mount tree, as unshare(2) with CLONE_NEWNS, and stores the
/// handle of the new task in `child`.
///
/// Errors: EPERM without CAP_SYS_ADMIN.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_task_unshare(
    task: *mut vfscale_task,
    child: *mut *mut vfscale_task,
) -> c_int {
    border("vfscale_task_unshare", || {
        let place = given!(place(child))?;
        place.set(insert(task_handle::task(task)?.posix().unshare_mounts()?)?);
        Ok(())
    })
}

/// Ends a task: closes its descriptors, releases its record locks, frees its handle. If other
/// threads make calls on the task, the last of them does that when it returns.
#[unsafe(no_mangle)]
pub extern "C" fn vfscale_task_free(task: *mut vfscale_task) -> c_int {
    border("vfscale_task_free", || remove(task))
}

/// Returns the number of a task, which is l_pid of its record locks.
#[unsafe(no_mangle)]
pub extern "C" fn vfscale_task_id(task: *mut vfscale_task) -> i64 {
    border("vfscale_task_id", || Ok(task_handle::task(task)?.id()))
}

/// Closes all descriptors that are marked close-on-exec, as the execution of another program does.
#[unsafe(no_mangle)]
pub extern "C" fn vfscale_task_exec(task: *mut vfscale_task) -> c_int {
    border("vfscale_task_exec", || {
        task_handle::task(task)?.posix().exec();
        Ok(())
    })
}

/// Sets the permission bits that new files do not get, and returns the previous ones.
#[unsafe(no_mangle)]
pub extern "C" fn vfscale_umask(task: *mut vfscale_task, mask: mode_t) -> c_int {
    border("umask", || Ok(task_handle::task(task)?.umask(mode(mask)).bits().cast_signed()))
}

/// Sets the limit that the numbers of new descriptors stay below (RLIMIT_NOFILE).
///
/// Errors: EINVAL for more than 1,048,576; EPERM for a larger limit without CAP_SYS_RESOURCE.
#[unsafe(no_mangle)]
pub extern "C" fn vfscale_set_descriptors_max(task: *mut vfscale_task, max: usize) -> c_int {
    border("setrlimit", || Ok(task_handle::task(task)?.posix().set_descriptors_max(max)?))
}

/// Returns the limit that the numbers of new descriptors stay below.
#[unsafe(no_mangle)]
pub extern "C" fn vfscale_get_descriptors_max(task: *mut vfscale_task) -> ssize_t {
    border("getrlimit", || Ok(task_handle::task(task)?.posix().descriptors_max()))
}

/// Changes the working directory, as chdir(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_chdir(task: *mut vfscale_task, path: *const c_char) -> c_int {
    border("chdir", || Ok(task_handle::task(task)?.posix().chdir(given!(path(path))?)?))
}

/// Changes the working directory to that of a descriptor, as fchdir(2).
#[unsafe(no_mangle)]
pub extern "C" fn vfscale_fchdir(task: *mut vfscale_task, fd: c_int) -> c_int {
    border("fchdir", || {
        let task = task_handle::task(task)?;
        Ok(task.posix().fchdir(&file(&task, fd)?)?)
    })
}

/// Changes the root directory, as chroot(2).
///
/// Errors: EPERM without CAP_SYS_CHROOT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_chroot(task: *mut vfscale_task, path: *const c_char) -> c_int {
    border("chroot", || Ok(task_handle::task(task)?.posix().chroot(given!(path(path))?)?))
}

/// Writes the path of the working directory and a zero to `buf`, which has `size` bytes. Returns
/// the length of the path without the zero. A size of 0 only asks for the length.
///
/// Errors: ERANGE if the buffer is too short; ENOENT if the directory was removed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_getcwd(
    task: *mut vfscale_task,
    buf: *mut c_char,
    size: usize,
) -> ssize_t {
    border("getcwd", || {
        let buf = given!(buffer(buf.cast(), size))?;
        fill_path(buf, &task_handle::task(task)?.posix().getcwd()?)
    })
}

/// Writes the path of an open file and a zero to `buf`, as the target of /proc/self/fd/N. Otherwise
/// as vfscale_getcwd.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_fd_path(
    task: *mut vfscale_task,
    fd: c_int,
    buf: *mut c_char,
    size: usize,
) -> ssize_t {
    border("vfscale_fd_path", || {
        let buf = given!(buffer(buf.cast(), size))?;
        let task = task_handle::task(task)?;
        fill_path(buf, &task.posix().path_of(&file(&task, fd)?)?)
    })
}

/// Writes a path and a zero to a buffer, and returns its length.
pub(crate) fn fill_path(buf: &mut [u8], path: &std::path::Path) -> Result<usize, Failure> {
    let mut text = path.as_os_str().as_encoded_bytes().to_vec();
    text.push(0);
    Ok(fill(buf, &text)? - 1)
}
