//! The methods of an open file with the names of [`std::fs::File`].

use std::{error, fmt};

use rustix::io::Errno;

use crate::base::error::{Error, Result};
use crate::file::open_file::File;
use crate::locks::{LockKind, WaitToken};
use crate::std_like::metadata::Metadata;

/// Why a lock was not taken at once; as [`std::fs::TryLockError`].
///
/// ```
/// # use vfscale_vfs::TryLockError;
/// # fn example(task: &vfscale_vfs::Task) -> vfscale_vfs::Result<()> {
/// match task.open("/f")?.try_lock() {
///     Ok(()) => println!("mine"),
///     Err(TryLockError::WouldBlock) => println!("somebody else has it"),
///     Err(TryLockError::Error(error)) => return Err(error),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub enum TryLockError {
    /// The call failed.
    Error(Error),
    /// Another open file holds a lock that excludes this one.
    WouldBlock,
}

impl fmt::Display for TryLockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TryLockError::Error(error) => error.fmt(f),
            TryLockError::WouldBlock => f.write_str("the file is locked by another open file"),
        }
    }
}

impl error::Error for TryLockError {}

impl From<TryLockError> for Error {
    fn from(error: TryLockError) -> Error {
        match error {
            TryLockError::Error(error) => error,
            TryLockError::WouldBlock => Error::new("flock", Errno::AGAIN),
        }
    }
}

impl File {
    /// Returns the attributes of the file.
    ///
    /// # Errors
    /// `ENOTRECOVERABLE` in the child of a fork.
    pub fn metadata(&self) -> Result<Metadata> {
        self.stat().map(Metadata::from)
    }

    /// Sets the length, in bytes: cuts the file, or extends it with zeros.
    ///
    /// # Errors
    /// As `ftruncate(2)`.
    pub fn set_len(&self, bytes: u64) -> Result<()> {
        self.truncate(bytes)
    }

    /// Reads at `offset`, independent of the file's position; returns the number of bytes, 0 at the
    /// end. As `std::os::unix::fs::FileExt::read_at`.
    ///
    /// # Errors
    /// As `pread(2)`.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        self.pread(buf, offset)
    }

    /// Writes at `offset`, independent of the file's position; returns the number of bytes.
    ///
    /// # Errors
    /// As `pwrite(2)`.
    pub fn write_at(&self, buf: &[u8], offset: u64) -> Result<usize> {
        self.pwrite(buf, offset)
    }

    /// Writes all of `bytes` at the file's position.
    ///
    /// # Errors
    /// The errors of [`write`](Self::write); `ENOSPC` if only a prefix fits, which stays written.
    pub fn write_all(&self, bytes: &[u8]) -> Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            match self.write(rest)? {
                0 => return Err(Error::new("write", Errno::NOSPC)),
                n => rest = &rest[n..],
            }
        }
        Ok(())
    }

    /// Locks the whole file for this open file alone; waits until no other has a lock. The lock is
    /// advisory: it excludes other locks, not reads and writes. It ends with
    /// [`unlock`](Self::unlock), or when the last handle of the open file is dropped.
    ///
    /// # Errors
    /// As `flock(2)`.
    pub fn lock(&self) -> Result<()> {
        self.flock(Some(LockKind::Exclusive), Some(&WaitToken::new()))
    }

    /// Locks the whole file together with others that do; waits until no other open file has it
    /// alone.
    ///
    /// # Errors
    /// As `flock(2)`.
    pub fn lock_shared(&self) -> Result<()> {
        self.flock(Some(LockKind::Shared), Some(&WaitToken::new()))
    }

    /// Locks as [`lock`](Self::lock), but does not wait.
    ///
    /// # Errors
    /// [`TryLockError::WouldBlock`] if another open file has a lock; as `flock(2)`.
    pub fn try_lock(&self) -> Result<(), TryLockError> {
        self.flock(Some(LockKind::Exclusive), None).map_err(not_at_once)
    }

    /// Locks as [`lock_shared`](Self::lock_shared), but does not wait.
    ///
    /// # Errors
    /// [`TryLockError::WouldBlock`] if another open file has the lock alone; as `flock(2)`.
    pub fn try_lock_shared(&self) -> Result<(), TryLockError> {
        self.flock(Some(LockKind::Shared), None).map_err(not_at_once)
    }

    /// Releases the lock of the whole file, if there is one.
    ///
    /// # Errors
    /// As `flock(2)`.
    pub fn unlock(&self) -> Result<()> {
        self.flock(None, None)
    }
}

fn not_at_once(error: Error) -> TryLockError {
    match error.errno() {
        Errno::AGAIN => TryLockError::WouldBlock,
        _ => TryLockError::Error(error),
    }
}
