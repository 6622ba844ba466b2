//! The error of opening a volume.

use crate::format::superblock::DecodeError;
use crate::format::uuid::Uuid;

/// Reason why a volume can't be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The device failed.
    #[error(transparent)]
    Device(#[from] vfscale_block::Error),
    /// The device has neither a superblock nor a copy of one.
    #[error("{device}: no volume")]
    NoVolume {
        /// The device's name.
        device: String,
    },
    /// A superblock was found, but neither it nor a copy can be read.
    #[error("{device}: {error}")]
    Superblock {
        /// The device's name.
        device: String,
        /// The damage of the superblock in block 0.
        error: DecodeError,
    },
    /// The volume uses features that this program does not know.
    #[error("{device}: the volume has features that this program does not know: {bits:#x}")]
    Features {
        /// The device's name.
        device: String,
        /// The unknown bits of `incompat`.
        bits: u64,
    },
    /// The device has become a pool of branches, and the volume is one of them.
    #[error("{device}: a pool of branches, not a single volume")]
    Pool {
        /// The device's name.
        device: String,
        /// Where the pool begins, in blocks of 4096 bytes.
        first: u64,
    },
    /// The image was truncated, or is on a smaller device than before.
    #[error("{device}: the volume has {volume_bytes} bytes, and the device only {device_bytes}")]
    CutOff {
        /// The device's name.
        device: String,
        /// The size of the volume, in bytes.
        volume_bytes: u64,
        /// The size of the device, in bytes.
        device_bytes: u64,
    },
    /// The superblock is damaged, and the device has copies of several volumes.
    #[error("{device}: no superblock, and copies of several volumes: {}", shown(.volumes))]
    Several {
        /// The device's name.
        device: String,
        /// The ids of these volumes.
        volumes: Vec<Uuid>,
    },
}

fn shown(volumes: &[Uuid]) -> String {
    volumes.iter().map(Uuid::to_string).collect::<Vec<_>>().join(", ")
}
