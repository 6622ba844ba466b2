//! Errors of devices.
//!
//! # Invariants
//!
//! * An error is a value: it can be stored, compared and returned to every waiter of a shared
//!   write. So it contains the error number of the system ([`OsError`]) and not an `io::Error`.
//! * Every error names its device, so a log line is enough to find the disk.

use std::fmt;
use std::io;
use std::sync::Arc;

use crate::Holder;

/// The kind of a call.
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
    /// [`reserve_ranges`](crate::Device::reserve_ranges).
    Reserve,
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
            Self::Reserve => "reservation",
        })
    }
}

/// An error number of the operating system: an `errno` of Linux.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct OsError(i32);

impl OsError {
    /// Input or output failed. Also used for a device that transferred less than requested.
    pub const IO: Self = Self(5);
    /// The file system that contains an image is full.
    pub const NO_SPACE: Self = Self(28);
    /// The device has as much of the storage below it as it may have.
    pub const LIMIT: Self = Self(122);

    /// Returns the error with the number `code`.
    pub const fn new(code: i32) -> Self {
        Self(code)
    }

    /// Returns the number.
    pub const fn code(self) -> i32 {
        self.0
    }

    /// Returns the kind, as the standard library classifies it.
    pub fn kind(self) -> io::ErrorKind {
        io::Error::from_raw_os_error(self.0).kind()
    }
}

impl From<&io::Error> for OsError {
    /// Converts the number in `error`; [`OsError::IO`] if it has none, which is how the standard
    /// library reports that a file ended too early.
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

/// Returns the range of a failed call in words; nothing for one about the whole device.
fn range(operation: Operation, offset: u64, length: u64) -> String {
    match operation {
        Operation::Flush | Operation::Open => String::new(),
        _ => format!(" of {length} bytes at {offset}"),
    }
}

/// The error of a device call.
///
/// `Clone` and `Eq`: one failed flush may have many waiters, and each gets a copy of the error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system, or the hardware, failed the call. After a failed write the contents of the range
    /// are undefined: the old bytes, the new ones, or a mixture.
    #[error("{device}: {operation}{}: {source}", range(*.operation, *.offset, *.length))]
    Io {
        /// Name of the device.
        device: Arc<str>,
        /// The failed operation.
        operation: Operation,
        /// Offset in bytes; 0 for calls about the whole device.
        offset: u64,
        /// Length in bytes; 0 for calls about the whole device.
        length: u64,
        /// The error that the system reported.
        source: OsError,
    },
    /// The file system that contains an image is full, or a quota there is used up. What a write
    /// should have changed is as after [`Error::Io`].
    #[error("the file system of {device} is full")]
    Full {
        /// Name of the image.
        device: Arc<str>,
    },
    /// The range is not inside of the device. Nothing was done.
    #[error("{device}: {operation} of {length} bytes at {offset}: the device has {size} bytes")]
    OutOfRange {
        /// Name of the device.
        device: Arc<str>,
        /// The failed operation.
        operation: Operation,
        /// Offset in bytes.
        offset: u64,
        /// Length in bytes.
        length: u64,
        /// Size of the device, in bytes.
        size: u64,
    },
    /// The range of a write, or a size, is not in whole blocks. Nothing was done.
    #[error("{device}: {operation} of {length} bytes at {offset}: not in blocks of {block_size}")]
    Misaligned {
        /// Name of the device.
        device: Arc<str>,
        /// The failed operation.
        operation: Operation,
        /// Offset in bytes.
        offset: u64,
        /// Length in bytes.
        length: u64,
        /// Block size of the device, in bytes.
        block_size: u32,
    },
    /// The device was opened for reading only, or released. Nothing was done.
    #[error("{device}: {operation}: opened for reading only, or released")]
    ReadOnly {
        /// Name of the device.
        device: Arc<str>,
        /// The failed operation.
        operation: Operation,
    },
    /// Another process has the device open.
    #[error("{device}: in use{}", by(.way.as_deref(), .holder.as_deref(), .client.as_deref()))]
    Locked {
        /// Name of the device.
        device: Arc<str>,
        /// The process, if it is known: a mounted file system does not record it.
        holder: Option<Box<Holder>>,
        /// The other name by which the process has it open, if it is known to be another one: of
        /// the image below a loop device, or of a device above the image.
        way: Option<Arc<str>>,
        /// Address of the client of Ceph that has the image's lock, as `rbd lock ls` shows it.
        client: Option<Arc<str>>,
    },
    /// Another process has taken the device over. Nothing was done, nor will be: all later writes
    /// and flushes fail.
    #[error("{device}: {operation}: another client has taken it over; nothing more is written")]
    Fenced {
        /// Name of the device.
        device: Arc<str>,
        /// The failed operation.
        operation: Operation,
    },
    /// The service behind the device does not answer, and nothing is known about the device.
    #[error("{device}: {why}")]
    Unreachable {
        /// Name of the device.
        device: Arc<str>,
        /// Says who does not answer.
        why: &'static str,
    },
    /// The device can't be opened as it is named or configured. Nothing was done.
    #[error("{device}: {why}")]
    Refused {
        /// Name of the device.
        device: Arc<str>,
        /// The reason, and the remedy.
        why: Arc<str>,
    },
    /// This kind of device, or this device, does not support the operation. Nothing was done.
    #[error("{device}: {operation}: {why}")]
    Unsupported {
        /// Name of the device.
        device: Arc<str>,
        /// The failed operation.
        operation: Operation,
        /// The reason.
        why: &'static str,
    },
}

fn by(way: Option<&str>, holder: Option<&Holder>, client: Option<&str>) -> String {
    let way = way.map_or(String::new(), |way| format!(" through {way}"));
    match (holder, client) {
        (None, None) => way,
        (Some(holder), None) => format!("{way} by {holder}"),
        (None, Some(client)) => format!("{way} by the client {client}"),
        (Some(holder), Some(client)) => format!("{way} by {holder}, as the client {client}"),
    }
}

impl Error {
    /// Returns the name of the device that failed.
    pub fn device(&self) -> &str {
        match self {
            Self::Io { device, .. }
            | Self::Full { device }
            | Self::OutOfRange { device, .. }
            | Self::Misaligned { device, .. }
            | Self::ReadOnly { device, .. }
            | Self::Locked { device, .. }
            | Self::Fenced { device, .. }
            | Self::Refused { device, .. }
            | Self::Unreachable { device, .. }
            | Self::Unsupported { device, .. } => device,
        }
    }

    /// Returns the error of the system, if the system reported one.
    pub fn os(&self) -> Option<OsError> {
        match self {
            Self::Io { source, .. } => Some(*source),
            Self::Full { .. } => Some(OsError::NO_SPACE),
            _ => None,
        }
    }

    /// Returns whether storage is short below the device.
    pub fn is_no_space(&self) -> bool {
        self.os() == Some(OsError::NO_SPACE)
    }

    /// Returns whether there is nothing at the path of a device that was to be opened.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Io { operation: Operation::Open, source, .. }
            if source.kind() == io::ErrorKind::NotFound)
    }

    /// Returns whether the device could not be changed: this says nothing about what can be read.
    pub fn is_of_writing(&self) -> bool {
        match self {
            Self::Io { operation, .. } => !matches!(operation, Operation::Read | Operation::Open),
            Self::Full { .. } | Self::ReadOnly { .. } | Self::Fenced { .. } => true,
            _ => false,
        }
    }
}
