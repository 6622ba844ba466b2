//! Errors of pools.

use vfscale_block::{Error as DeviceError, OsError};

/// Error of a call on a pool. Unless documented otherwise, nothing was changed then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device of the pool failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The device has no pool.
    #[error("no pool on this device")]
    NoPool,
    /// The device already has something on it: the first block is not zero.
    #[error("the device is not empty")]
    NotEmpty,
    /// The pool has features that this version does not know.
    #[error("the pool has features that this version does not know: {0:#x}")]
    Features(u64),
    /// The device does not read a block that may have what was flushed. Nothing was written.
    #[error(
        "block {place} of the pool, {what}: {source}; it may be readable another time; \
         `vfscale fsck --repair` goes on without it, and tells what is lost"
    )]
    Unreadable {
        /// Address of the block, in blocks of 4096 bytes.
        place: u64,
        /// The kind of the block.
        what: &'static str,
        /// The error of the device.
        source: DeviceError,
    },
    /// A block of the pool is damaged.
    #[error("block {place} of the pool: {what}")]
    Damage {
        /// Address of the block, in blocks of 4096 bytes.
        place: u64,
        /// The first thing that is wrong with it.
        what: &'static str,
    },
    /// The size of the device or of a branch is outside of the limits.
    #[error("{0}")]
    Size(&'static str),
    /// A name is empty, too long, or contains a slash or a control character.
    #[error("{0:?} can't be the name of a branch")]
    Name(String),
    /// A text is too long beside the name of its branch, or has control characters.
    #[error("{text:?} can't be the text of {name:?}: one line of at most {max} bytes can")]
    Text {
        /// The branch.
        name: String,
        /// The text.
        text: String,
        /// Most bytes of it.
        max: usize,
    },
    /// A branch with this name exists.
    #[error("branch {0:?} exists")]
    Exists(String),
    /// No branch has this name.
    #[error("no branch {0:?}")]
    NoBranch(String),
    /// The branch is open.
    #[error("branch {0:?} is in use")]
    InUse(String),
    /// The branch can only be read, or has nothing to be rolled back to.
    #[error("branch {name:?}: {why}")]
    Refused {
        /// The branch.
        name: String,
        /// The reason.
        why: &'static str,
    },
    /// The branch is not what it was when the caller decided on it.
    #[error("branch {0:?} was changed meanwhile")]
    Changed(String),
    /// A stream of a branch is damaged, was cut, or is none. No branch was made of it.
    #[error("byte {at} of the stream: {what}; no branch was made of it")]
    Stream {
        /// Where the first part begins that is wrong.
        at: u64,
        /// The reason.
        what: &'static str,
    },
    /// A stream of a branch can't be read or written any more.
    #[error("the stream can't be {what} behind byte {at}: {source}")]
    StreamFailed {
        /// How far it was read or written.
        at: u64,
        /// The call: "read" or "written".
        what: &'static str,
        /// The error of the system.
        source: OsError,
    },
    /// A stream goes on from contents that no branch of the pool has that can only be read.
    #[error(
        "the stream goes on from {0:?}, which has not come to this pool, or was deleted since: \
         receive that first, or send without a branch to go on from"
    )]
    NoBase(String),
    /// The contents of a stream are there already.
    #[error("branch {0:?} has what the stream has")]
    Received(String),
    /// The branch was closed.
    #[error("the branch was closed")]
    Closed,
    /// No block is free.
    #[error("the pool is full")]
    Full,
    /// The branch has as much for itself as it may have.
    #[error("the branch is at its limit")]
    Limit,
    /// The history has as many nodes as the branch table can have: branches, and the states that
    /// they were forked from.
    #[error(
        "the pool has almost {0} branches and states that they come from, the most that it can \
         have: delete branches"
    )]
    Nodes(usize),
    /// An earlier commit failed, so memory and device differ: the pool has to be opened again.
    #[error("the pool has failed, open it again")]
    Failed,
}

impl Error {
    /// Tells of the error of a device that the block at `place` may have what was flushed.
    pub(crate) fn unreadable(self, place: u64, what: &'static str) -> Self {
        match self {
            Self::Device(source) => Self::Unreadable { place, what, source },
            error => error,
        }
    }

    /// Returns what a repair says that goes on without an unreadable block.
    pub(crate) fn loss(&self) -> String {
        match self {
            Self::Unreadable { place, what, source } => {
                format!("block {place}, {what}: {source}; what was flushed there is lost")
            }
            error => format!("{error}; what was flushed there is lost"),
        }
    }

    /// Returns the error number that a failed device call reports.
    pub(crate) fn os_error(&self) -> OsError {
        match self {
            Self::Device(error) | Self::Unreadable { source: error, .. } => {
                error.os().unwrap_or(OsError::IO)
            }
            Self::StreamFailed { source, .. } => *source,
            Self::Full | Self::Nodes(_) => OsError::NO_SPACE,
            Self::Limit => OsError::LIMIT,
            _ => OsError::IO,
        }
    }
}
