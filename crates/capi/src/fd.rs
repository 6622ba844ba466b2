//! Descriptors: open, close, duplicate, flags.

use std::ffi::{c_char, c_int, c_long};

use libc::{mode_t, ssize_t};
use vfscale::posix::{Fd, OFlags, OpenHow, ResolveFlags, SealFlags};
use vfscale::{Errno, Mode, Task};

use crate::args::{at, given, mode, o_flags};
use crate::border::{Failure, border};
use crate::structs::{vfscale_open_file, vfscale_open_how, vfscale_task, vfscale_token};
use crate::task_handle::{file, task};
use crate::token::Waiting;

fn open_at(
    task: &Task,
    dirfd: c_int,
    path: &std::path::Path,
    flags: c_int,
    mode: Mode,
) -> Result<Fd, Failure> {
    let flags = o_flags(flags);
    let file = task.posix().openat(at(dirfd), path, flags, mode)?;
    Ok(task.posix().install_with(file, flags.contains(OFlags::CLOEXEC))?)
}

/// Opens a file, and returns the lowest free descriptor of the task, as open(2). `mode` matters
/// only with O_CREAT or O_TMPFILE. Opening a fifo waits for the other end, unless O_NONBLOCK.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_open(
    task: *mut vfscale_task,
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
) -> c_int {
    border("open", || {
        let path = given!(path(path))?;
        open_at(&*self::task(task)?, libc::AT_FDCWD, path, flags, self::mode(mode))
    })
}

/// Opens a file relative to a directory, as openat(2); see vfscale_open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_openat(
    task: *mut vfscale_task,
    dirfd: c_int,
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
) -> c_int {
    border("openat", || {
        let path = given!(path(path))?;
        open_at(&*self::task(task)?, dirfd, path, flags, self::mode(mode))
    })
}

/// Opens a file for writing, made or truncated, as creat(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_creat(
    task: *mut vfscale_task,
    path: *const c_char,
    mode: mode_t,
) -> c_int {
    border("creat", || {
        let (path, flags) = (given!(path(path))?, libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC);
        open_at(&*self::task(task)?, libc::AT_FDCWD, path, flags, self::mode(mode))
    })
}

/// Opens a file under the limits of `how`, which has `size` bytes, as openat2(2). `token`
/// interrupts a wait for the other end of a fifo; NULL for none.
///
/// Errors: those of openat2(2); EINTR if the token is cancelled.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_openat2(
    task: *mut vfscale_task,
    dirfd: c_int,
    path: *const c_char,
    how: *const vfscale_open_how,
    size: usize,
    token: *mut vfscale_token,
) -> c_int {
    border("openat2", || {
        let path = given!(path(path))?;
        if how.is_null() {
            return Err(Failure::new(Errno::FAULT, "how is NULL"));
        }
        let from = given!(options(how, size))?;
        let narrow = |bits: u64| {
            u32::try_from(bits).map_err(|_| Failure::new(Errno::INVAL, "unknown flags or modes"))
        };
        let how = OpenHow {
            flags: OFlags::from_bits_retain(narrow(from.flags)?),
            mode: Mode::from_bits_retain(narrow(from.mode)?),
            resolve: ResolveFlags::from_bits_retain(from.resolve),
        };
        let (task, waiting) = (self::task(task)?, Waiting::new(token)?);
        let file = task.posix().open_interruptible(at(dirfd), path, &how, waiting.token())?;
        Ok(task.posix().install_with(file, how.flags.contains(OFlags::CLOEXEC))?)
    })
}

/// Opens the file of a descriptor again, as opening /proc/self/fd/N does.
#[unsafe(no_mangle)]
pub extern "C" fn vfscale_reopen(task: *mut vfscale_task, fd: c_int, flags: c_int) -> c_int {
    border("vfscale_reopen", || {
        let (task, flags) = (self::task(task)?, o_flags(flags));
        let file = task.posix().reopen(&file(&task, fd)?, flags)?;
        Ok(task.posix().install_with(file, flags.contains(OFlags::CLOEXEC))?)
    })
}

/// Closes a descriptor, as close(2), and releases the record locks of the task on the file.
#[unsafe(no_mangle)]
pub extern "C" fn vfscale_close(task: *mut vfscale_task, fd: c_int) -> c_int {
    border("close", || Ok(self::task(task)?.posix().close(Fd(fd))?))
}

/// Closes every descriptor of the task.
#[unsafe(no_mangle)]
pub extern "C" fn vfscale_close_all(task: *mut vfscale_task) -> c_int {
    border("vfscale_close_all", || {
        self::task(task)?.posix().close_all();
        Ok(())
    })
}

/// Stores up to `max` descriptors of the task in `fds`, in order, and returns how many it has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_descriptors(
    task: *mut vfscale_task,
    fds: *mut c_int,
    max: usize,
) -> ssize_t {
    border("vfscale_descriptors", || {
        let room = given!(room(fds, max))?;
        let open = self::task(task)?.posix().descriptor_list();
        Ok(room.fill(open.iter().map(|fd| fd.0)))
    })
}

/// Stores up to `max` open files of the file system of a path in `files`, of all tasks and mounts,
/// and returns how many it has. A file that is opened or closed meanwhile may be missing.
///
/// Errors: EPERM without CAP_SYS_ADMIN; those of a walk.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_open_files(
    task: *mut vfscale_task,
    path: *const c_char,
    files: *mut vfscale_open_file,
    max: usize,
) -> ssize_t {
    border("open_files", || {
        let (path, room) = (given!(path(path))?, given!(room(files, max))?);
        let open = self::task(task)?.posix().open_files(path)?;
        Ok(room.fill(open.into_iter().map(vfscale_open_file::from)))
    })
}

/// Duplicates a descriptor to the lowest free one, as dup(2).
#[unsafe(no_mangle)]
pub extern "C" fn vfscale_dup(task: *mut vfscale_task, fd: c_int) -> c_int {
    border("dup", || Ok(self::task(task)?.posix().dup(Fd(fd))?))
}

/// Duplicates a descriptor to `new_fd`, as dup2(2).
#[unsafe(no_mangle)]
pub extern "C" fn vfscale_dup2(task: *mut vfscale_task, fd: c_int, new_fd: c_int) -> c_int {
    border("dup2", || Ok(self::task(task)?.posix().dup2(Fd(fd), Fd(new_fd))?))
}

/// Duplicates a descriptor to `new_fd`, with O_CLOEXEC in `flags`, as dup3(2).
#[unsafe(no_mangle)]
pub extern "C" fn vfscale_dup3(
    task: *mut vfscale_task,
    fd: c_int,
    new_fd: c_int,
    flags: c_int,
) -> c_int {
    border("dup3", || Ok(self::task(task)?.posix().dup3(Fd(fd), Fd(new_fd), o_flags(flags))?))
}

/// Does what fcntl(2) does with F_DUPFD, F_DUPFD_CLOEXEC, F_GETFD, F_SETFD, F_GETFL, F_SETFL,
/// F_GETPIPE_SZ, F_SETPIPE_SZ, F_GET_SEALS and F_ADD_SEALS; vfscale_fcntl_lock has the locks. `arg`
/// is 0 for commands without one.
///
/// Errors: those of fcntl(2); EINVAL for other commands.
#[unsafe(no_mangle)]
pub extern "C" fn vfscale_fcntl(
    task: *mut vfscale_task,
    fd: c_int,
    cmd: c_int,
    arg: c_long,
) -> c_int {
    border("fcntl", || {
        let task = self::task(task)?;
        let (sys, number) = (task.posix(), Fd(fd));
        // Linux takes an integer argument as one of 32 bits, too.
        let arg = arg as c_int;
        let size = |bytes: usize| c_int::try_from(bytes).unwrap_or(c_int::MAX);
        Ok(match cmd {
            libc::F_DUPFD => sys.dup_from(number, Fd(arg), false)?.0,
            libc::F_DUPFD_CLOEXEC => sys.dup_from(number, Fd(arg), true)?.0,
            libc::F_GETFD => c_int::from(sys.close_on_exec(number)?) * libc::FD_CLOEXEC,
            libc::F_SETFD => {
                sys.set_close_on_exec(number, arg & libc::FD_CLOEXEC != 0)?;
                0
            }
            libc::F_GETFL => file(&task, fd)?.flags().bits().cast_signed(),
            libc::F_SETFL => {
                file(&task, fd)?.set_flags(o_flags(arg), &task.credentials())?;
                0
            }
            libc::F_GETPIPE_SZ => size(file(&task, fd)?.pipe_size()?),
            libc::F_SETPIPE_SZ => {
                let (file, bytes) = (file(&task, fd)?, arg.cast_unsigned());
                size(file.set_pipe_size(bytes, &task.credentials())?)
            }
            libc::F_GET_SEALS => file(&task, fd)?.seals()?.bits().cast_signed(),
            libc::F_ADD_SEALS => {
                file(&task, fd)?.add_seals(SealFlags::from_bits_retain(arg.cast_unsigned()))?;
                0
            }
            _ => return Err(Failure::new(Errno::INVAL, "an unknown command")),
        })
    })
}
