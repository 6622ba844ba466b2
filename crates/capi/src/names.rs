//! Names: making, linking, renaming and removing them; file handles.

use std::ffi::{c_char, c_int};

use libc::{mode_t, ssize_t};
use vfscale::posix::{At, AtFlags, FileHandle, OFlags, RenameFlags};
use vfscale::{Errno, FileType};

use crate::args::{at, at_flags, given, mode, o_flags};
use crate::border::{Failure, border};
use crate::structs::{vfscale_file_handle, vfscale_task};
use crate::task_handle::{file, task};

/// Makes a directory, as mkdir(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_mkdir(
    task: *mut vfscale_task,
    path: *const c_char,
    mode: mode_t,
) -> c_int {
    border("mkdir", || {
        let path = given!(path(path))?;
        Ok(self::task(task)?.posix().mkdirat(At::Cwd, path, self::mode(mode))?)
    })
}

/// Makes a directory relative to another one, as mkdirat(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_mkdirat(
    task: *mut vfscale_task,
    dirfd: c_int,
    path: *const c_char,
    mode: mode_t,
) -> c_int {
    border("mkdirat", || {
        let path = given!(path(path))?;
        Ok(self::task(task)?.posix().mkdirat(at(dirfd), path, self::mode(mode))?)
    })
}

/// Makes a node, as mknodat(2): a regular file, fifo, socket or device. Sockets and devices can't
/// be opened, except with O_PATH.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_mknodat(
    task: *mut vfscale_task,
    dirfd: c_int,
    path: *const c_char,
    mode: mode_t,
    dev: u64,
) -> c_int {
    border("mknodat", || {
        let path = given!(path(path))?;
        let kind = match mode & libc::S_IFMT {
            0 => FileType::RegularFile,
            bits => FileType::from_raw_mode(bits),
        };
        let bits = self::mode(mode & 0o7777);
        Ok(self::task(task)?.posix().mknodat(at(dirfd), path, kind, bits, dev)?)
    })
}

/// Makes a fifo, as mkfifo(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_mkfifo(
    task: *mut vfscale_task,
    path: *const c_char,
    mode: mode_t,
) -> c_int {
    border("mkfifo", || {
        let (path, bits) = (given!(path(path))?, self::mode(mode & 0o7777));
        Ok(self::task(task)?.posix().mknodat(At::Cwd, path, FileType::Fifo, bits, 0)?)
    })
}

/// Makes a symbolic link at `path`, as symlink(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_symlink(
    task: *mut vfscale_task,
    target: *const c_char,
    path: *const c_char,
) -> c_int {
    border("symlink", || {
        let (target, path) = (given!(path(target))?, given!(path(path))?);
        Ok(self::task(task)?.posix().symlinkat(At::Cwd, path, target)?)
    })
}

/// Makes a symbolic link relative to a directory, as symlinkat(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_symlinkat(
    task: *mut vfscale_task,
    target: *const c_char,
    dirfd: c_int,
    path: *const c_char,
) -> c_int {
    border("symlinkat", || {
        let (target, path) = (given!(path(target))?, given!(path(path))?);
        Ok(self::task(task)?.posix().symlinkat(at(dirfd), path, target)?)
    })
}

/// Makes another name of a file, as link(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_link(
    task: *mut vfscale_task,
    old_path: *const c_char,
    new_path: *const c_char,
) -> c_int {
    border("link", || {
        let (old, new) = (given!(path(old_path))?, given!(path(new_path))?);
        Ok(self::task(task)?.posix().linkat(At::Cwd, old, At::Cwd, new, AtFlags::empty())?)
    })
}

/// Makes another name of a file, as linkat(2). `flags`: AT_SYMLINK_FOLLOW, AT_EMPTY_PATH.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_linkat(
    task: *mut vfscale_task,
    old_dirfd: c_int,
    old_path: *const c_char,
    new_dirfd: c_int,
    new_path: *const c_char,
    flags: c_int,
) -> c_int {
    border("linkat", || {
        let (old, new) = (given!(path(old_path))?, given!(path(new_path))?);
        let (old_at, new_at) = (at(old_dirfd), at(new_dirfd));
        Ok(self::task(task)?.posix().linkat(old_at, old, new_at, new, at_flags(flags))?)
    })
}

/// Removes a name that is not that of a directory, as unlink(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_unlink(task: *mut vfscale_task, path: *const c_char) -> c_int {
    border("unlink", || {
        let path = given!(path(path))?;
        Ok(self::task(task)?.posix().unlinkat(At::Cwd, path, AtFlags::empty())?)
    })
}

/// Removes a name, as unlinkat(2). `flags`: AT_REMOVEDIR.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_unlinkat(
    task: *mut vfscale_task,
    dirfd: c_int,
    path: *const c_char,
    flags: c_int,
) -> c_int {
    border("unlinkat", || {
        let path = given!(path(path))?;
        Ok(self::task(task)?.posix().unlinkat(at(dirfd), path, at_flags(flags))?)
    })
}

/// Removes an empty directory, as rmdir(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_rmdir(task: *mut vfscale_task, path: *const c_char) -> c_int {
    border("rmdir", || {
        let path = given!(path(path))?;
        Ok(self::task(task)?.posix().unlinkat(At::Cwd, path, AtFlags::REMOVEDIR)?)
    })
}

/// Renames a file, as rename(2): replaces the file at `new_path`, if there is one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_rename(
    task: *mut vfscale_task,
    old_path: *const c_char,
    new_path: *const c_char,
) -> c_int {
    border("rename", || {
        let (old, new) = (given!(path(old_path))?, given!(path(new_path))?);
        let flags = RenameFlags::empty();
        Ok(self::task(task)?.posix().renameat2(At::Cwd, old, At::Cwd, new, flags)?)
    })
}

/// Renames a file, as renameat2(2). `flags`: RENAME_NOREPLACE, RENAME_EXCHANGE, RENAME_WHITEOUT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_renameat2(
    task: *mut vfscale_task,
    old_dirfd: c_int,
    old_path: *const c_char,
    new_dirfd: c_int,
    new_path: *const c_char,
    flags: u32,
) -> c_int {
    border("renameat2", || {
        let (old, new) = (given!(path(old_path))?, given!(path(new_path))?);
        let (old_at, new_at) = (at(old_dirfd), at(new_dirfd));
        let flags = RenameFlags::from_bits_retain(flags);
        Ok(self::task(task)?.posix().renameat2(old_at, old, new_at, new, flags)?)
    })
}

/// Reads the target of a symbolic link, without a zero, as readlink(2); returns its length. A
/// target that is longer than the buffer is cut.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_readlink(
    task: *mut vfscale_task,
    path: *const c_char,
    buf: *mut c_char,
    size: usize,
) -> ssize_t {
    // SAFETY: the caller has promised what the header says.
    unsafe { vfscale_readlinkat(task, libc::AT_FDCWD, path, buf, size) }
}

/// Reads the target of a symbolic link relative to a directory, as readlinkat(2); see
/// vfscale_readlink.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_readlinkat(
    task: *mut vfscale_task,
    dirfd: c_int,
    path: *const c_char,
    buf: *mut c_char,
    size: usize,
) -> ssize_t {
    border("readlinkat", || {
        let (path, buf) = (given!(path(path))?, given!(buffer(buf.cast(), size))?);
        if buf.is_empty() {
            return Err(Failure::new(Errno::INVAL, "the buffer has no bytes"));
        }
        let target = self::task(task)?.posix().readlinkat(at(dirfd), path)?;
        let target = target.as_os_str().as_encoded_bytes();
        let kept = target.len().min(buf.len());
        buf[..kept].copy_from_slice(&target[..kept]);
        Ok(kept)
    })
}

/// Stores in `handle` the handle of a file, which names it independent of its names, as
/// name_to_handle_at(2). `flags`: AT_SYMLINK_FOLLOW, AT_EMPTY_PATH.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_name_to_handle_at(
    task: *mut vfscale_task,
    dirfd: c_int,
    path: *const c_char,
    handle: *mut vfscale_file_handle,
    flags: c_int,
) -> c_int {
    border("name_to_handle_at", || {
        let (path, place) = (given!(path(path))?, given!(place(handle))?);
        let task = self::task(task)?;
        let handle = task.posix().name_to_handle_at(at(dirfd), path, at_flags(flags))?;
        let FileHandle { dev, ino, generation } = handle;
        place.set(vfscale_file_handle { dev, ino, generation, reserved: 0 });
        Ok(())
    })
}

/// Opens the file of a handle in the file system of `mount_fd`, as open_by_handle_at(2), and
/// returns a descriptor.
///
/// Errors: EPERM without CAP_DAC_READ_SEARCH; ESTALE if the file is gone; those of open(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_open_by_handle_at(
    task: *mut vfscale_task,
    mount_fd: c_int,
    handle: *const vfscale_file_handle,
    flags: c_int,
) -> c_int {
    border("open_by_handle_at", || {
        let [from] = given!(values(handle, 1))? else {
            return Err(Failure::new(Errno::FAULT, "the handle is NULL"));
        };
        let handle = FileHandle { dev: from.dev, ino: from.ino, generation: from.generation };
        let (task, flags) = (self::task(task)?, o_flags(flags));
        let file = task.posix().open_by_handle_at(&file(&task, mount_fd)?, &handle, flags)?;
        Ok(task.posix().install_with(file, flags.contains(OFlags::CLOEXEC))?)
    })
}
