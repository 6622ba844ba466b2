//! The growth of an open volume.
//!
//! # Order of the steps
//!
//! 1. The device becomes larger, if it is an image.
//! 2. The new groups are written behind the end of the volume, into unused space. Flush.
//! 3. The superblock and its copies get the new size: the volume is larger, even after a crash.
//! 4. The volume in memory gets the new size: from here on the new groups are used.
//! 5. A transaction frees the rest of the former last group. The header of that group records how
//!    many blocks it accounts for. So the opening after a crash between 3 and 5 finds that this
//!    step is missing, and executes it.
//!
//! A crash at any time leaves a volume of the former size or of the new one, intact in both cases.
//!
//! # Locks
//!
//! `growth` is held during the whole call, so one thread at a time grows a volume. The caller holds
//! no lock.

use rustix::io::Errno;
use vfscale_block::Error;

use crate::alloc::Layout;
use crate::alloc::initial::write_group;
use crate::base::fault::Fault;
use crate::format::BLOCK_BYTES;
use crate::format::geometry::SizeError;
use crate::volume::tx::TxReservation;
use crate::{Geometry, Volume};

/// The reason why a volume did not grow.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GrowError {
    /// The volume cannot have this size.
    #[error(transparent)]
    Size(#[from] SizeError),
    /// The volume has grown too often since it was opened. Nothing was changed.
    #[error("the volume has grown too often since it was opened: open it again")]
    TooOften,
    /// The volume or its device failed.
    #[error(transparent)]
    Fault(#[from] Fault),
}

impl GrowError {
    /// Returns the error number of a system call.
    #[must_use]
    pub fn errno(&self) -> Errno {
        match self {
            Self::Size(SizeError::TooLarge { .. }) => Errno::FBIG,
            Self::Size(_) => Errno::INVAL,
            Self::TooOften => Errno::BUSY,
            // A block device that is too small.
            Self::Fault(Fault::Device(Error::Unsupported { .. })) => Errno::NOSPC,
            Self::Fault(fault) => fault.errno(),
        }
    }
}

impl From<vfscale_block::Error> for GrowError {
    fn from(error: vfscale_block::Error) -> Self {
        Self::Fault(error.into())
    }
}

/// Blocks that are written for each new group.
const GROUP_BLOCKS: u64 = 3;

impl Volume {
    /// Grows the volume to `bytes` bytes, or to the size of its device, rounded down to a size that
    /// a volume can have. Durable when it returns. Changes nothing if the volume has that size
    /// already.
    ///
    /// Blocks for the I/O; other calls on the volume continue during that time.
    ///
    /// # Errors
    /// [`GrowError`]. Then the volume has its former size or the new one.
    pub fn grow(&self, bytes: Option<u64>) -> Result<Geometry, GrowError> {
        if self.is_read_only() {
            return Err(Fault::ReadOnly.into());
        }
        let _guard = self.groups().growth();
        finish(self)?;
        let (device, former) = (self.device(), self.geometry());
        let geometry = former.grown(bytes.unwrap_or(device.size()) / BLOCK_BYTES as u64)?;
        if geometry == former {
            return Ok(geometry);
        }
        if !self.groups().can_grow(geometry) {
            return Err(GrowError::TooOften);
        }
        if device.size() < geometry.bytes() {
            device.set_size(geometry.bytes())?;
        }
        let groups = geometry.groups() - former.groups();
        let _reserved = self.reserve_blocks(u64::from(groups) * GROUP_BLOCKS)?;
        write_groups(self, former, geometry)?;
        self.update_superblock(|superblock| {
            if let Some(grown) = superblock.clone().with_geometry(geometry) {
                *superblock = grown;
            }
        })?;
        let before = self.groups().totals().blocks;
        if !self.set_geometry(geometry)? {
            return Err(GrowError::TooOften);
        }
        self.space().grow(self.groups().totals().blocks.saturating_sub(before));
        finish(self)?;
        Ok(geometry)
    }
}

/// Writes the groups by which a volume grows. Their storage is reserved. Durable when it returns.
fn write_groups(volume: &Volume, former: Geometry, geometry: Geometry) -> Result<(), GrowError> {
    let log = volume.superblock().log();
    for group in former.groups()..geometry.groups() {
        if let Some(layout) = Layout::new(geometry, log, group) {
            write_group(volume.device(), &layout, volume.uuid())?;
        }
    }
    Ok(volume.device().flush()?)
}

/// Frees the blocks by which the volume has grown and for which it does not account yet, if any.
/// The opening of a volume calls this, too, to complete a growth that a crash interrupted.
pub(crate) fn finish(volume: &Volume) -> Result<(), Fault> {
    let unfinished: Vec<_> = volume.groups().unfinished().collect();
    for group in unfinished {
        let log_blocks = volume.groups().log_blocks(1, 0);
        let before = volume.groups().totals().blocks;
        let mut tx = volume.begin(TxReservation { log_blocks, space: 0, from_pool: true })?;
        tx.extend_group(group);
        let sequence = tx.commit()?;
        // The new space is available when it is durable.
        volume.force(sequence)?;
        volume.space().grow(volume.groups().totals().blocks.saturating_sub(before));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
