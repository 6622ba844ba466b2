//! The device that blocks of metadata are read from and written back to.

use std::sync::Arc;

use vfscale_block::Device;

use crate::Uuid;

/// The device of a volume, and the id that its blocks carry: the part of `struct xfs_buftarg` in
/// XFS that buffers refer to.
#[derive(Debug)]
pub(crate) struct BufferTarget {
    pub(crate) device: Arc<dyn Device>,
    pub(crate) volume: Uuid,
}
