//! File locks of a mount that shares them with the library. (In exclusive use the kernel manages
//! locks itself.)
//!
//! A request for a lock that is not free waits without a thread: the release of the lock calls
//! back, and the callback sends the reply. So waiting requests, however many, occupy no worker.
//! `INTERRUPT` (a signal, a killed process) and the end of the connection cancel the wait.
//!
//! The kernel identifies the owner of a record lock by a number that stands for a process or, for
//! an open file description lock, for the open file; it does not say which. The lock table treats
//! both as a task. The locks of a process end when it closes a descriptor (`FLUSH` carries its
//! number). Those of an open file end with its `RELEASE`, when it is the only remaining owner of
//! those that locked through the handle.

use vfscale::posix::{Acquire, LockKind, LockRange, Owner, RecordLock};
use vfscale::{Errno, File};

use super::files::Open;
use super::{RequestCtx, Server};
use crate::session::{DeferredReply, Served};
use crate::wire::request::Lock;

const F_RDLCK: u32 = 0;
const F_WRLCK: u32 = 1;
const F_UNLCK: u32 = 2;

/// Distinguishes owners that the kernel names from tasks of the library, whose numbers count up
/// from 1.
const OF_KERNEL: u64 = 1 << 63;

fn owner_of(number: u64) -> Owner {
    Owner::Task(number | OF_KERNEL)
}

fn kind_of(lock: &Lock) -> Result<Option<LockKind>, Errno> {
    match lock.kind {
        F_RDLCK => Ok(Some(LockKind::Shared)),
        F_WRLCK => Ok(Some(LockKind::Exclusive)),
        F_UNLCK => Ok(None),
        _ => Err(Errno::INVAL),
    }
}

fn record(lock: &Lock, kind: LockKind) -> Result<RecordLock, Errno> {
    let range = LockRange::new(lock.start, lock.end)?;
    Ok(RecordLock { owner: owner_of(lock.owner), pid: lock.pid.cast_signed(), kind, range })
}

impl Server {
    pub(super) fn getlk(&self, ctx: &mut RequestCtx<'_>, lock: &Lock) -> Result<(), Errno> {
        let open = self.files.get(lock.fh)?;
        let kind = kind_of(lock)?.ok_or(Errno::INVAL)?;
        match open.file.test_lock(&record(lock, kind)?)? {
            Some(other) => {
                let kind = if other.kind == LockKind::Shared { F_RDLCK } else { F_WRLCK };
                let (start, end) = (other.range.start(), other.range.end());
                ctx.reply.lock(start, end, kind, other.pid.cast_unsigned());
            }
            None => ctx.reply.lock(lock.start, lock.end, F_UNLCK, 0),
        }
        Ok(())
    }

    pub(super) fn setlk(
        &self,
        lock: &Lock,
        wait: bool,
        later: &dyn Fn() -> DeferredReply,
    ) -> Result<Served, Errno> {
        if self.config.is_exclusive() {
            return Err(Errno::NOSYS);
        }
        let open = self.files.get(lock.fh)?;
        let Some(kind) = kind_of(lock)? else {
            release(&open, lock)?;
            return Ok(Served::Reply);
        };
        if !wait {
            try_lock(&open, lock, kind)?;
            return Ok(Served::Reply);
        }
        let later = later();
        let unique = later.unique();
        let token = self.waiting.enter(unique);
        match request(&open, lock, kind) {
            Ok(Acquire::Granted) => {
                self.waiting.leave(unique);
                Ok(Served::Reply)
            }
            Ok(Acquire::Waiting(pending)) => {
                self.waiting.answer_later(pending, &token, later);
                Ok(Served::Deferred)
            }
            Err(errno) => {
                self.waiting.leave(unique);
                Err(errno)
            }
        }
    }

    /// Ends the locks of a process that closes a descriptor of an open file.
    pub(super) fn flush(&self, fh: u64, owner: u64) -> Result<(), Errno> {
        if self.config.is_exclusive() {
            // There are no locks here, and no data is held back that would have to be written.
            return Err(Errno::NOSYS);
        }
        let open = self.files.get(fh)?;
        let owner = owner_of(owner);
        open.drop_owner(owner);
        end_locks(&open.file, owner);
        Ok(())
    }

    /// Closes an open file whose last descriptor is closed.
    pub(super) fn release(&self, fh: u64) -> Result<(), Errno> {
        let _working = self.reclaim.work();
        if let Some(open) = self.files.remove(fh) {
            close(&open);
        }
        Ok(())
    }

    /// Ends all remaining locks and open files when the connection has ended.
    pub(super) fn end_files(&self) {
        self.waiting.end();
        self.files.take_all().iter().for_each(|open| close(open));
    }
}

fn close(open: &Open) {
    for owner in open.take_owners() {
        end_locks(&open.file, owner);
    }
    // The lock ends with the last handle anyway, but a request may still use that handle.
    let _ = open.file.flock(None, None);
}

fn end_locks(file: &File, owner: Owner) {
    if let Owner::Task(task) = owner {
        file.release_locks_of(task);
    }
}

fn release(open: &Open, lock: &Lock) -> Result<(), Errno> {
    if lock.flock {
        return Ok(open.file.flock(None, None)?);
    }
    let range = LockRange::new(lock.start, lock.end)?;
    Ok(open.file.unlock_record(owner_of(lock.owner), range)?)
}

fn try_lock(open: &Open, lock: &Lock, kind: LockKind) -> Result<(), Errno> {
    if lock.flock {
        return Ok(open.file.flock(Some(kind), None)?);
    }
    open.note_owner(owner_of(lock.owner));
    Ok(open.file.try_lock_record(&record(lock, kind)?)?)
}

fn request(open: &Open, lock: &Lock, kind: LockKind) -> Result<Acquire, Errno> {
    if lock.flock {
        return Ok(open.file.request_flock(kind)?);
    }
    open.note_owner(owner_of(lock.owner));
    Ok(open.file.request_lock(&record(lock, kind)?)?)
}
