//! Errors of the journal.

use std::sync::Arc;

use crate::{Lsn, Region};

/// The reason why a call of the journal failed.
///
/// `Clone`, because the error that shut a journal down is returned to every later caller.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device of the log failed.
    #[error("log: {0}")]
    Device(#[from] vfscale_block::Error),
    /// A transaction was refused: the log is full, and storage is short where its items are to be
    /// written back. Nothing has failed, and a later one may find room.
    #[error("the log is full, and there is no room for what it has to be written back to")]
    Full,
    /// A hook, an item or the recovery sink failed.
    #[error("log: {0}")]
    Client(Arc<dyn std::error::Error + Send + Sync>),
    /// The region can't hold a log: it is too small, too large, not in whole blocks, or outside of
    /// the device.
    #[error("{} bytes at {} of {device} can't hold a log: {why}", region.length, region.offset)]
    Region {
        /// Name of the device.
        device: Arc<str>,
        /// The region.
        region: Region,
        /// The reason.
        why: &'static str,
    },
    /// The region contains no record of this volume's log.
    #[error("{device}: no log of this volume at {offset}")]
    NotALog {
        /// Name of the device.
        device: Arc<str>,
        /// Offset of the region on the device, in bytes.
        offset: u64,
    },
    /// The records of the log promise that it was complete up to an LSN which it does not reach.
    #[error(
        "the log is damaged: it was durable up to {promised}, but is intact only up to {found}"
    )]
    Damaged {
        /// LSN up to which records were durable.
        promised: Lsn,
        /// The last whole record that is connected with its tail.
        found: Lsn,
    },
    /// The device can't read the place behind the last record, where changes that were synced may
    /// be. It may be able to do so later.
    #[error(
        "{error}: the end of the log can't be read, from {lsn} on, where synced changes may be"
    )]
    EndUnread {
        /// The error of the device.
        error: vfscale_block::Error,
        /// The place behind the last record that was read.
        lsn: Lsn,
    },
    /// The log is whole, but older than the state that its owner has recorded: half of a mirror
    /// that was detached, or a restored copy. The volume is newer than this log; its changes would
    /// be lost.
    #[error(
        "{device}: an older state of the log: it ends at {last} in epoch {epoch}, and had reached {known} in \
         epoch {known_epoch}; name the device with the log that was used last, or open the volume read-only \
         without a log (norecovery)"
    )]
    Stale {
        /// Name of the device.
        device: Arc<str>,
        /// Epoch of the log: how often it was opened.
        epoch: u64,
        /// Last record of the log.
        last: Lsn,
        /// Epoch that its owner has recorded.
        known_epoch: u64,
        /// LSN that the log had reached, as its owner has recorded.
        known: Lsn,
    },
    /// The log belongs to a volume with this id, but is on another device than this volume's log.
    #[error(
        "{device}: the log of another volume with the same id; name the device with this one's log"
    )]
    OtherLog {
        /// Name of the device.
        device: Arc<str>,
    },
    /// The log uses features that this program does not know, so it can't be replayed.
    #[error("{device}: the log has features that this program does not know: {bits:#x}")]
    Features {
        /// Name of the device.
        device: Arc<str>,
        /// The unknown feature bits.
        bits: u32,
    },
    /// The contents of a checkpoint do not parse, although its checksums are correct.
    #[error("the checkpoint at {lsn} is damaged: {why}")]
    BadCheckpoint {
        /// First record of the checkpoint.
        lsn: Lsn,
        /// The reason.
        why: &'static str,
    },
    /// The log was filled as many times as its cycle number can count. A new log must be created.
    #[error("the log is worn out: its cycle number can't grow any further")]
    WornOut,
    /// The reservation is so large that the log could not grant it even without any other
    /// reservation.
    #[error("a reservation of {bytes} bytes does not fit in the log: {bytes_max} at most")]
    ReservationTooLarge {
        /// Log space of the reservation, in bytes.
        bytes: u64,
        /// Largest possible reservation, in bytes.
        bytes_max: u64,
    },
    /// A transaction logged more than it reserved, which shut the journal down.
    #[error(
        "a transaction overran its reservation: {used} bytes of log needed, {reserved} reserved"
    )]
    Overrun {
        /// Log space that it needed, in bytes.
        used: u64,
        /// Rest of its log space, in bytes.
        reserved: u64,
    },
    /// A transaction with items ended without a commit, which shut the journal down.
    #[error("a transaction with changes was abandoned")]
    Abandoned,
    /// A hook, a callback or an item panicked in a call of the journal, which shut the journal
    /// down.
    #[error("a client of the journal panicked")]
    Panicked,
    /// The reservation of a checkpoint was smaller than its needs, which shut the journal down.
    #[error("checkpoint {sequence} underran: {needed} bytes of log needed, {reserved} reserved")]
    Underrun {
        /// Sequence number of the checkpoint.
        sequence: u64,
        /// Log space that it needs, in bytes.
        needed: u64,
        /// Log space that its transactions gave it, in bytes.
        reserved: u64,
    },
    /// The journal was shut down by an earlier error.
    #[error("the journal is shut down: {0}")]
    Shutdown(Arc<Error>),
    /// The journal was closed.
    #[error("the journal is closed")]
    Closed,
}

impl Error {
    /// Returns the error of a device that could not be written, if that is the reason: the log is
    /// not damaged then.
    #[must_use]
    pub fn unwritten(&self) -> Option<&vfscale_block::Error> {
        match self {
            Self::Device(error) => Some(error).filter(|error| error.is_of_writing()),
            Self::Shutdown(error) => error.unwritten(),
            _ => None,
        }
    }

    /// Returns whether the reason is that storage is short below a device that is to be written.
    #[must_use]
    pub fn is_no_space(&self) -> bool {
        matches!(self, Self::Full)
            || self.unwritten().is_some_and(vfscale_block::Error::is_no_space)
    }

    /// Wraps an error of a hook, an item or the recovery sink.
    pub fn client(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Client(Arc::new(error))
    }
}

/// The result of most calls of the journal.
pub type Result<T> = std::result::Result<T, Error>;
