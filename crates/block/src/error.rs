//! What can go wrong with a device, and where it went wrong.
//!
//! # Invariants
//!
//! * An error is a value: it can be kept, compared and handed to every waiter of a shared write.
//!   So what the system said is kept as its number ([`OsError`]) and not as an `io::Error`.
//! * Every error names its device, so that a log line is enough to know which disk to look at.

use std::fmt;
use std::io;
use std::sync::Arc;

use crate::Holder;

/// A kind of call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// [`read_at`](crate::Device::read_at), or one element of a batch.
    Read,
    /// [`write_at`](crate::Device::write_at), or one element of a batch.
    Write,
    /// [`flush`](crate::Device::flush).
    Flush,
    /// [`discard`](crate::Device::discard).
    Discard,
    /// Opening or creating the device.
    Open,
    /// [`set_size`](crate::Device::set_size).
    Resize,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::Discard => "discard",
            Self::Open => "open",
            Self::Resize => "resize",
        })
    }
}

/// A number that the operating system gave as the reason: an `errno` of Linux.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct OsError(i32);

impl OsError {
    /// Input or output failed: also what a device says that returned less than it was asked for.
    pub const IO: Self = Self(5);
    /// An argument that the system does not take.
    pub const INVALID: Self = Self(22);
    /// The file system that an image lies in is full.
    pub const NO_SPACE: Self = Self(28);

    /// The error with the number `code`.
    #[must_use]
    pub const fn new(code: i32) -> Self {
        Self(code)
    }

    /// Its number.
    #[must_use]
    pub const fn code(self) -> i32 {
        self.0
    }

    /// Its kind, as the standard library sorts it.
    #[must_use]
    pub fn kind(self) -> io::ErrorKind {
        io::Error::from_raw_os_error(self.0).kind()
    }
}

impl From<&io::Error> for OsError {
    /// The number in `error`; [`OsError::IO`] if it has none, which is how the standard library reports that
    /// a file ended too early.
    fn from(error: &io::Error) -> Self {
        error.raw_os_error().map_or(Self::IO, Self)
    }
}

impl From<OsError> for io::Error {
    fn from(error: OsError) -> Self {
        Self::from_raw_os_error(error.0)
    }
}

impl fmt::Display for OsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        io::Error::from(*self).fmt(f)
    }
}

impl fmt::Debug for OsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OsError({self})")
    }
}

impl std::error::Error for OsError {}

/// What a device answers instead of success.
///
/// `Clone` and `Eq`: one failed flush may have many waiters, and each gets the error itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system, or the hardware behind it, failed the call. What the range holds is undefined
    /// after a failed write: the old bytes, the new ones, or some of each.
    #[error("{device}: {operation} of {length} bytes at {offset}: {source}")]
    Io {
        /// The device's name.
        device: Arc<str>,
        /// What was tried.
        operation: Operation,
        /// Where, in bytes; 0 for calls about the whole device.
        offset: u64,
        /// How much, in bytes; 0 for calls about the whole device.
        length: u64,
        /// What the system said.
        source: OsError,
    },
    /// The range is not inside of the device. Nothing was done.
    #[error("{device}: {operation} of {length} bytes at {offset}: the device has {size} bytes")]
    OutOfRange {
        /// The device's name.
        device: Arc<str>,
        /// What was tried.
        operation: Operation,
        /// Where, in bytes.
        offset: u64,
        /// How much, in bytes.
        length: u64,
        /// The size of the device, in bytes.
        size: u64,
    },
    /// A write, or a size, that is no whole number of blocks. Nothing was done.
    #[error("{device}: {operation} of {length} bytes at {offset}: not in blocks of {block_size}")]
    Misaligned {
        /// The device's name.
        device: Arc<str>,
        /// What was tried.
        operation: Operation,
        /// Where, in bytes.
        offset: u64,
        /// How much, in bytes.
        length: u64,
        /// The device's block size, in bytes.
        block_size: u32,
    },
    /// The device was opened for reading only. Nothing was done.
    #[error("{device}: {operation}: opened for reading only")]
    ReadOnly {
        /// The device's name.
        device: Arc<str>,
        /// What was tried.
        operation: Operation,
    },
    /// Somebody else has the device open.
    #[error("{device}: in use{}", by(.holder.as_ref()))]
    Locked {
        /// The device's name.
        device: Arc<str>,
        /// Who, if that can be known: a mounted file system does not say.
        holder: Option<Holder>,
    },
    /// This kind of device, or this one, can't do that. Nothing was done.
    #[error("{device}: {operation}: {why}")]
    Unsupported {
        /// The device's name.
        device: Arc<str>,
        /// What was tried.
        operation: Operation,
        /// Why not.
        why: &'static str,
    },
}

fn by(holder: Option<&Holder>) -> String {
    holder.map_or_else(String::new, |holder| format!(" by {holder}"))
}

impl Error {
    /// The name of the device that failed.
    #[must_use]
    pub fn device(&self) -> &str {
        match self {
            Self::Io { device, .. }
            | Self::OutOfRange { device, .. }
            | Self::Misaligned { device, .. }
            | Self::ReadOnly { device, .. }
            | Self::Locked { device, .. }
            | Self::Unsupported { device, .. } => device,
        }
    }

    /// What the system said, if the system said it.
    #[must_use]
    pub fn os(&self) -> Option<OsError> {
        match self {
            Self::Io { source, .. } => Some(*source),
            _ => None,
        }
    }
}
