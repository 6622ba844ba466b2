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
