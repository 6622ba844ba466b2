//! The calls on advisory locks; [`locks`](crate::locks) explains the semantics.
//!
//! Calls that may wait request the lock inside an RCU section, and wait outside of it.

use rustix::io::Errno;
use vfscale_sync::rcu;

use crate::base::error::{Named, Outcome, Result, check_fork};
use crate::file::failed::OnFile;
use crate::file::inode_locks::{existing, locks, release_inode};
use crate::file::open_file::File;
use crate::locks::{Acquire, LockKind, LockRange, Owner, RecordLock, WaitToken};
use crate::objects::file_description::FileMode;
use crate::syscalls::posix::Calls;

/// Waits for a lock that was not granted immediately.
fn finish(acquired: Acquire, wait: Option<&WaitToken>) -> Outcome<()> {
    match (acquired, wait) {
        (Acquire::Granted, _) => Ok(()),
        (Acquire::Waiting(pending), Some(token)) => pending.wait(token),
        (Acquire::Waiting(pending), None) => {
            if pending.cancel() {
                Ok(())
            } else {
                Err(Errno::AGAIN)
            }
        }
    }
}

impl File {
    fn check_lockable(&self, kind: Option<LockKind>) -> Outcome<()> {
        let is_open = match kind {
            None => true,
            Some(LockKind::Shared) => self.mode().intersects(FileMode::CAN_READ),
            Some(LockKind::Exclusive) => self.mode().intersects(FileMode::CAN_WRITE),
        };
        check_fork()?;
        if self.is_path() || !is_open { Err(Errno::BADF) } else { Ok(()) }
    }

    /// Requests a record lock for any owner, on behalf of other processes, as a FUSE mount does.
    /// Does not block: the lock is granted immediately or later, see [`Acquire`].
    ///
    /// # Errors
    /// `EBADF` if the file is not open for reading (a shared lock) or writing (an exclusive one),
    /// `EDEADLK`, `ENOLCK`.
    pub fn request_lock(&self, request: &RecordLock) -> Result<Acquire> {
        self.request_inner(request).of("fcntl", &self.0)
    }

    fn request_inner(&self, request: &RecordLock) -> Outcome<Acquire> {
        self.check_lockable(Some(request.kind))?;
        if matches!(request.owner, Owner::File(_)) {
            self.0.note_locks();
        }
        let guard = rcu::pin();
        let inode = self.inode();
        locks(inode, &guard).request(request, inode.sb().lock_graph())
    }

    /// Takes a record lock for any owner if that is possible immediately.
    ///
    /// # Errors
    /// As [`request_lock`](Self::request_lock); `EAGAIN`.
    pub fn try_lock_record(&self, request: &RecordLock) -> Result<()> {
        self.try_lock_inner(request).of("fcntl", &self.0)
    }

    fn try_lock_inner(&self, request: &RecordLock) -> Outcome<()> {
        self.check_lockable(Some(request.kind))?;
        if matches!(request.owner, Owner::File(_)) {
            self.0.note_locks();
        }
        let guard = rcu::pin();
        locks(self.inode(), &guard).try_lock(request)
    }

    /// Returns the first record lock that conflicts with `request`.
    ///
    /// # Errors
    /// `EBADF` for an `O_PATH` handle.
    pub fn test_lock(&self, request: &RecordLock) -> Result<Option<RecordLock>> {
        check_fork().named("fcntl")?;
        if self.is_path() {
            return Err(Errno::BADF).of("fcntl", &self.0);
        }
        let guard = rcu::pin();
        Ok(existing(self.inode(), &guard).and_then(|locks| locks.test(request)))
    }

    /// Releases the locks of `owner` within `range`.
    ///
    /// # Errors
    /// `EBADF` for an `O_PATH` handle, `ENOLCK`.
    pub fn unlock_record(&self, owner: Owner, range: LockRange) -> Result<()> {
        let unlock = || {
            self.check_lockable(None)?;
            let guard = rcu::pin();
            existing(self.inode(), &guard).map_or(Ok(()), |locks| locks.unlock(owner, range))
        };
        unlock().of("fcntl", &self.0)
    }

    /// Releases every record lock of a task on the file, as closing a descriptor does.
    pub fn release_locks_of(&self, task: u64) {
        if check_fork().is_ok() {
            release_inode(self.inode(), task);
        }
    }

    /// Takes (or with `None` releases) a record lock that belongs to the open file (`F_OFD_SETLK`,
    /// and with `wait` `F_OFD_SETLKW`).
    ///
    /// # Errors
    /// As `fcntl(2)`; `EINTR` if `wait` is cancelled.
    pub fn ofd_lock(
        &self,
        kind: Option<LockKind>,
        range: LockRange,
        wait: Option<&WaitToken>,
    ) -> Result<()> {
        let owner = Owner::File(self.id());
        self.set_lock(owner, -1, kind, range, wait).of("fcntl", &self.0)
    }

    fn set_lock(
        &self,
        owner: Owner,
        pid: i32,
        kind: Option<LockKind>,
        range: LockRange,
        wait: Option<&WaitToken>,
    ) -> Outcome<()> {
        let Some(kind) = kind else {
            self.check_lockable(None)?;
            let guard = rcu::pin();
            return existing(self.inode(), &guard)
                .map_or(Ok(()), |locks| locks.unlock(owner, range));
        };
        let request = RecordLock { owner, pid, kind, range };
        match wait {
            None => self.try_lock_inner(&request),
            Some(_) => finish(self.request_inner(&request)?, wait),
        }
    }

    /// Takes (or with `None` releases) the open file's lock of the whole file (`flock`). Without
    /// `wait`, fails if that is not possible immediately.
    ///
    /// # Errors
    /// As `flock(2)`: `EAGAIN`, `EBADF` for an `O_PATH` handle, `EINTR` if `wait` is cancelled.
    pub fn flock(&self, kind: Option<LockKind>, wait: Option<&WaitToken>) -> Result<()> {
        let flock = || {
            self.check_lockable(None)?;
            if kind.is_some() && !self.mode().intersects(FileMode::CAN_READ | FileMode::CAN_WRITE) {
                return Err(Errno::BADF);
            }
            match (kind, wait) {
                (None, _) => {
                    let guard = rcu::pin();
                    if let Some(locks) = existing(self.inode(), &guard) {
                        locks.unflock(self.id());
                    }
                    Ok(())
                }
                (Some(kind), None) => {
                    self.0.note_locks();
                    let guard = rcu::pin();
                    locks(self.inode(), &guard).try_flock(self.id(), kind)
                }
                (Some(kind), Some(_)) => finish(self.request_flock_inner(kind)?, wait),
            }
        };
        flock().of("flock", &self.0)
    }

    /// Requests a lock of the whole file; does not block, see [`Acquire`].
    ///
    /// # Errors
    /// `EBADF` for an `O_PATH` handle, `ENOLCK`.
    pub fn request_flock(&self, kind: LockKind) -> Result<Acquire> {
        self.check_lockable(None).and_then(|()| self.request_flock_inner(kind)).of("flock", &self.0)
    }

    fn request_flock_inner(&self, kind: LockKind) -> Outcome<Acquire> {
        self.0.note_locks();
        let guard = rcu::pin();
        locks(self.inode(), &guard).request_flock(self.id(), kind)
    }
}

impl Calls<'_> {
    /// Takes (or with `None` releases) a record lock that belongs to the task (`F_SETLK`, and with
    /// `wait` `F_SETLKW`). It ends when the task closes a descriptor of the file, or ends.
    ///
    /// # Errors
    /// As `fcntl(2)`; `EINTR` if `wait` is cancelled.
    pub fn posix_lock(
        &self,
        file: &File,
        kind: Option<LockKind>,
        range: LockRange,
        wait: Option<&WaitToken>,
    ) -> Result<()> {
        check_fork().named("fcntl")?;
        // Noted before the lock is requested, so the end of the task releases it in any case.
        if kind.is_some() {
            self.task.note_locked(file);
        }
        let result = file.set_lock(Owner::Task(self.task.id()), self.task.pid(), kind, range, wait);
        if kind.is_some() && result.is_ok() {
            // Another thread may have released the task's last lock on the file, and cleared the
            // note, just before this lock was taken.
            self.task.note_locked(file);
        } else {
            self.task.note_unlocked(file.inode());
        }
        result.named("fcntl")
    }

    /// Returns the first lock that conflicts with a record lock of the task (`F_GETLK`).
    ///
    /// # Errors
    /// `EBADF` for an `O_PATH` handle.
    pub fn posix_lock_test(
        &self,
        file: &File,
        kind: LockKind,
        range: LockRange,
    ) -> Result<Option<RecordLock>> {
        let owner = Owner::Task(self.task.id());
        file.test_lock(&RecordLock { owner, pid: self.task.pid(), kind, range })
    }
}
