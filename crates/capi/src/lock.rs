//! Advisory locks.

use std::ffi::{c_int, c_short};

use vfscale::posix::{Fd, LockKind, LockRange, Owner, RecordLock, Whence};
use vfscale::{Errno, File, Task};

use crate::args::given;
use crate::border::{Failure, border};
use crate::structs::{vfscale_flock, vfscale_task, vfscale_token};
use crate::task_handle::{file, task};
use crate::token::Waiting;

/// Takes or releases the lock of an open file, as flock(2). `operation`: LOCK_SH, LOCK_EX or
/// LOCK_UN, with LOCK_NB to fail with EWOULDBLOCK instead of waiting. `token` interrupts the wait;
/// NULL for none.
///
/// Errors: those of flock(2); EINTR if the token is cancelled.
#[unsafe(no_mangle)]
pub extern "C" fn vfscale_flock(
    task: *mut vfscale_task,
    fd: c_int,
    operation: c_int,
    token: *mut vfscale_token,
) -> c_int {
    border("flock", || {
        let kind = match operation & !libc::LOCK_NB {
            libc::LOCK_SH => Some(LockKind::Shared),
            libc::LOCK_EX => Some(LockKind::Exclusive),
            libc::LOCK_UN => None,
            _ => return Err(Failure::new(Errno::INVAL, "an unknown operation")),
        };
        let waiting = Waiting::new(token)?;
        let file = file(&*self::task(task)?, fd)?;
        let wait = (operation & libc::LOCK_NB == 0).then(|| waiting.token());
        Ok(file.flock(kind, wait)?)
    })
}

/// Returns the kind of a lock; `None` releases one.
fn kind(l_type: i32) -> Result<Option<LockKind>, Failure> {
    Ok(match l_type {
        libc::F_RDLCK => Some(LockKind::Shared),
        libc::F_WRLCK => Some(LockKind::Exclusive),
        libc::F_UNLCK => None,
        _ => return Err(Failure::new(Errno::INVAL, "an unknown l_type")),
    })
}

/// Returns the bytes that a lock covers.
fn range(file: &File, lock: &vfscale_flock) -> Result<LockRange, Failure> {
    let base = match lock.l_whence {
        libc::SEEK_SET => 0,
        libc::SEEK_CUR => file.seek(Whence::Current(0))?,
        libc::SEEK_END => file.stat()?.size,
        _ => return Err(Failure::new(Errno::INVAL, "an unknown l_whence")),
    };
    let base = i64::try_from(base).unwrap_or(i64::MAX);
    let range = LockRange::from_flock(base, lock.l_start, lock.l_len);
    range.map_err(|errno| Failure::new(errno, "the range is not in a file"))
}

/// Stores the lock that conflicts with a request, if there is one.
fn tell(found: Option<&RecordLock>, lock: &mut vfscale_flock) {
    let Some(found) = found else {
        lock.l_type = libc::F_UNLCK;
        return;
    };
    lock.l_type = match found.kind {
        LockKind::Shared => libc::F_RDLCK,
        LockKind::Exclusive => libc::F_WRLCK,
    };
    lock.l_whence = c_int::from(libc::SEEK_SET as c_short);
    lock.l_start = i64::try_from(found.range.start()).unwrap_or(i64::MAX);
    lock.l_len = i64::try_from(found.range.flock_len()).unwrap_or(0);
    lock.l_pid = found.pid;
}

/// Makes the request of a command.
fn request(
    task: &Task,
    fd: c_int,
    cmd: c_int,
    lock: &mut vfscale_flock,
    waiting: &Waiting,
) -> Result<(), Failure> {
    let sys = task.posix();
    let file = sys.file(Fd(fd))?;
    let kind = kind(lock.l_type)?;
    let range = range(&file, lock)?;
    let wait = matches!(cmd, libc::F_SETLKW | libc::F_OFD_SETLKW).then(|| waiting.token());
    match cmd {
        libc::F_SETLK | libc::F_SETLKW => Ok(sys.posix_lock(&file, kind, range, wait)?),
        libc::F_OFD_SETLK | libc::F_OFD_SETLKW => Ok(file.ofd_lock(kind, range, wait)?),
        libc::F_GETLK | libc::F_OFD_GETLK => {
            let kind = kind.ok_or_else(|| Failure::new(Errno::INVAL, "l_type is F_UNLCK"))?;
            let found = if cmd == libc::F_GETLK {
                sys.posix_lock_test(&file, kind, range)?
            } else {
                let owner = Owner::File(file.id());
                file.test_lock(&RecordLock { owner, pid: -1, kind, range })?
            };
            tell(found.as_ref(), lock);
            Ok(())
        }
        _ => Err(Failure::new(Errno::INVAL, "an unknown command")),
    }
}

/// Takes, releases or tests a record lock, as fcntl(2) with F_SETLK, F_SETLKW, F_GETLK (locks of
/// the task) and F_OFD_SETLK, F_OFD_SETLKW, F_OFD_GETLK (locks of the open file). `token`
/// interrupts a wait; NULL for none.
///
/// Errors: those of fcntl(2), EDEADLK among them; EINTR if the token is cancelled.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_fcntl_lock(
    task: *mut vfscale_task,
    fd: c_int,
    cmd: c_int,
    lock: *mut vfscale_flock,
    token: *mut vfscale_token,
) -> c_int {
    border("fcntl", || {
        let Some(lock) = given!(in_out(lock))? else {
            return Err(Failure::new(Errno::FAULT, "the lock is NULL"));
        };
        request(&*self::task(task)?, fd, cmd, lock, &Waiting::new(token)?)
    })
}
