//! Growing a volume that is open.
//!
//! # The order
//!
//! 1. The device becomes larger, if it is an image.
//! 2. New groups are written behind the end of the volume, where nothing is. Flush.
//! 3. The superblock and its copies get the new size: the volume is larger, also after a crash.
//! 4. The volume in memory gets it: from here on the new groups are used.
//! 5. A transaction makes the rest of the former last group free. That group's header says how many
//!    blocks it accounts for, so who opens the volume after a crash between 3 and 5 knows that this
//!    is still to be done, and does it.
//!
//! A crash at any time leaves a volume of the former size or of the new one, whole in both cases.
//!
//! # Locks
//!
//! `growth` is held all the time, so that one thread at a time makes a volume larger. The caller
//! holds none.

use rustix::io::Errno;
use vfscale_block::{Error, OsError};

use crate::alloc::Layout;
use crate::alloc::initial::write_group;
use crate::base::fault::Fault;
use crate::format::BLOCK_BYTES;
use crate::format::geometry::SizeError;
use crate::volume::tx::TxReservation;
use crate::{Geometry, Volume};

/// Why a volume did not grow.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GrowError {
    /// The volume cannot have this size.
    #[error(transparent)]
    Size(#[from] SizeError),
    /// The volume has grown too often since it was opened. The next opening gives it its new size.
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
            // A block device that is smaller, an image whose file system is full.
            Self::Fault(Fault::Device(Error::Unsupported { .. })) => Errno::NOSPC,
            Self::Fault(Fault::Device(Error::Io { source: OsError::NO_SPACE, .. })) => Errno::NOSPC,
            Self::Fault(fault) => fault.errno(),
        }
    }
}

impl From<vfscale_block::Error> for GrowError {
    fn from(error: vfscale_block::Error) -> Self {
        Self::Fault(error.into())
    }
}

impl Volume {
    /// Makes the volume larger: `bytes` long, or as long as its device; rounded down to what a
    /// volume can have. Durable when it returns. A volume that has the size already stays as it is.
    ///
    /// Blocks for the I/O; everybody else goes on meanwhile.
    ///
    /// # Errors
    /// [`GrowError`]. The volume has its former size then, or the new one.
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
        if device.size() < geometry.bytes() {
            device.set_size(geometry.bytes())?;
        }
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

/// Writes the groups that a volume grows by. Durable when it returns.
fn write_groups(volume: &Volume, former: Geometry, geometry: Geometry) -> Result<(), GrowError> {
    let log = volume.superblock().log();
    for group in former.groups()..geometry.groups() {
        if let Some(layout) = Layout::new(geometry, log, group) {
            write_group(volume.device(), &layout, volume.uuid())?;
        }
    }
    Ok(volume.device().flush()?)
}

/// Makes free what the volume has grown by and does not account for yet, if there is such a thing.
/// Opening a volume comes here, for what a crash has interrupted.
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
