//! The error of a check or a repair.

use std::sync::Arc;

use crate::base::fault::Fault;
use crate::volume::copies::OpenError;

/// Error of a check or a repair that could not be completed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckError {
    /// No volume was found, or none that this program knows.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The log is on another device than the one that was named.
    #[error("{why}")]
    LogDevice {
        /// Description of the mismatch.
        why: String,
    },
    /// The volume has a feature that this program does not know, and may only be read.
    #[error(
        "the volume has features that this program does not know: it can be checked, not repaired"
    )]
    ReadOnly,
    /// The log can't be replayed because its contents can't be written to the volume. That is no
    /// damage: the log is as before.
    #[error(
        "{error}; this is no damage, and the log is as before: {}, then mount the volume or repair it \
         again; until then it can be mounted read-only",
        remedy(.error)
    )]
    NotReplayed {
        /// The error of the device.
        error: vfscale_block::Error,
    },
    /// A repair could not be written. The changes made so far are complete.
    #[error("the repair could not be written: {0}")]
    Repair(#[from] vfscale_journal::Error),
    /// The superblock could not be written.
    #[error(transparent)]
    Device(#[from] vfscale_block::Error),
    /// The volume is repaired, but the work that a mount had begun could not be completed.
    #[error("the volume is repaired, but inodes without a name could not be removed: {0}")]
    Finish(Arc<Fault>),
}

impl CheckError {
    /// Returns whether a device could not be written: no damage was found.
    pub fn is_of_writing(&self) -> bool {
        match self {
            Self::Repair(error) => error.unwritten().is_some(),
            Self::Device(error) | Self::NotReplayed { error } => error.is_of_writing(),
            Self::Finish(fault) => match &**fault {
                Fault::Journal(error) => error.unwritten().is_some(),
                Fault::Device(error) => error.is_of_writing(),
                _ => false,
            },
            _ => false,
        }
    }
}

/// Returns what to do about a device that can't be written.
fn remedy(error: &vfscale_block::Error) -> &'static str {
    if error.is_no_space() { "free space there" } else { "see why it can't be written" }
}
