//! What can go wrong with a log.

use std::sync::Arc;

use crate::{Lsn, Region};

/// Why a call of the journal failed.
///
/// `Clone`: the error that shut a journal down is handed to every later caller.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device of the log failed.
    #[error("log: {0}")]
    Device(#[from] vfscale_block::Error),
    /// A hook, an item or the recovery sink failed.
    #[error("log: {0}")]
    Client(Arc<dyn std::error::Error + Send + Sync>),
    /// The region can't hold a log: too small, too large, not in whole blocks, or outside of the device.
    #[error("{} bytes at {} of {device} can't hold a log: {why}", region.length, region.offset)]
    Region {
        /// The device's name.
        device: Arc<str>,
        /// What was given.
        region: Region,
        /// What is wrong with it.
        why: &'static str,
    },
    /// There is no record of this volume's log in the region.
    #[error("{device}: no log of this volume at {offset}")]
    NotALog {
        /// The device's name.
        device: Arc<str>,
        /// Where it was looked for, in bytes.
        offset: u64,
    },
    /// The log says of itself that it was complete up to a place which it does not reach.
    #[error(
        "the log is damaged: it was complete up to {promised}, and is whole up to {found} only"
    )]
    Damaged {
        /// Up to where records were durable.
        promised: Lsn,
        /// The last whole record that is connected with its tail.
        found: Lsn,
    },
    /// The log is whole, and older than what its owner has seen of it: half of a mirror that was away, or a
    /// copy that was put back. What is home is newer, and would be lost.
    #[error(
        "{device}: an older state of the log: it ends at {last} in epoch {epoch}, and had reached {known} in \
         epoch {known_epoch}; name the device with the log that was used last, or open the volume read-only \
         without a log (norecovery)"
    )]
    Stale {
        /// The device's name.
        device: Arc<str>,
        /// How often it was opened.
        epoch: u64,
        /// Its last record.
        last: Lsn,
        /// How often it was opened for all its owner knows.
        known_epoch: u64,
        /// A record that it had.
        known: Lsn,
    },
    /// The log is of the volume, but on another device than the volume's log.
    #[error(
        "{device}: the log of another volume with the same id; name the device with this one's log"
    )]
    OtherLog {
        /// The device's name.
        device: Arc<str>,
    },
    /// The log has what this program does not know, and so can't replay.
    #[error("{device}: the log has features that this program does not know: {bits:#x}")]
    Features {
        /// The device's name.
        device: Arc<str>,
        /// The unknown bits.
        bits: u32,
    },
    /// A checkpoint's contents do not parse, though its checksums are good.
    #[error("the checkpoint at {lsn} is damaged: {why}")]
    BadCheckpoint {
        /// Where it begins.
        lsn: Lsn,
        /// What is wrong.
        why: &'static str,
    },
    /// The log was filled as many times as can be counted: it has to be made anew.
    #[error("the log is worn out: its cycle number is at its end")]
    WornOut,
    /// A reservation that the log could not be sure to grant even if nobody else had one.
    #[error("a reservation of {bytes} bytes does not fit in the log: {bytes_max} at most")]
    ReservationTooLarge {
        /// The log space of the reservation, in bytes.
        bytes: u64,
        /// What fits.
        bytes_max: u64,
    },
    /// A transaction logged more than it had reserved, which shut the journal down.
    #[error(
        "a transaction overran its reservation: {used} bytes of log needed, {reserved} reserved"
    )]
    Overrun {
        /// What it needed, in bytes of log.
        used: u64,
        /// What it had left.
        reserved: u64,
    },
    /// A transaction ended without a commit after it had changed items, which shut the journal down.
    #[error("a transaction with changes was abandoned")]
    Abandoned,
    /// A hook, a callback or an item panicked in the journal's hands, which shut it down.
    #[error("a client of the journal panicked")]
    Panicked,
    /// A checkpoint had less reserved than it needs, which shut the journal down.
    #[error("checkpoint {sequence} underran: {needed} bytes of log needed, {reserved} reserved")]
    Underrun {
        /// The checkpoint.
        sequence: u64,
        /// What it needs, in bytes of log.
        needed: u64,
        /// What its transactions gave it.
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
    /// Wraps an error of a client.
    pub fn client(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Client(Arc::new(error))
    }
}

/// What most calls return.
pub type Result<T> = std::result::Result<T, Error>;
