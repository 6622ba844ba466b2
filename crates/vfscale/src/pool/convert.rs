//! A volume becomes a pool.

use vfscale_block::{Device, Error as DeviceError};
use vfscale_diskfs::format::BLOCK_BYTES;
use vfscale_diskfs::{LogPlace, OpenError, Superblock, Uuid, copies};
use vfscale_pool::Conversion;
use vfscale_vfs::Errno;

use super::error::PoolError;
use crate::volume::devices::Opened;

/// Space that a pool gets besides the size of the volume, in blocks: 128 MiB.
const EXTRA_BLOCKS: u64 = 1 << 15;
/// Most zones of a pool, in blocks: a third for the volume, a third for as much again, and the
/// volume counts twice.
const BLOCKS_MAX: u64 = 30_000 * 31_744;

/// Makes the volume on a device a pool with the branch `main`, if it is none yet.
///
/// # Errors
/// [`PoolError::Convert`] and [`PoolError::Superblock`].
pub(crate) fn convert(name: &str, main: &str, opened: &Opened) -> Result<(), PoolError> {
    let device = opened.device();
    let found = match copies::read(&*device) {
        Ok(found) => found,
        Err(OpenError::Pool { .. }) => return Ok(()),
        Err(error) => return Err(PoolError::Superblock(error)),
    };
    let error = |why: String, errno| PoolError::Convert { name: name.into(), why, errno };
    let refused = |why: &str, errno| Err(error(why.into(), errno));
    if found.is_read_only() {
        return refused("it has features that this program does not know", Errno::ROFS);
    }
    if found.superblock.features.needs_repair() {
        let why = "a repair was interrupted: run `vfscale fsck --repair` again";
        return refused(why, Errno::UCLEAN);
    }
    if !found.is_whole() {
        let why = "a copy of its superblock is old or damaged: unmount it, and mount it again";
        return refused(why, Errno::UCLEAN);
    }
    if matches!(found.superblock.log(), LogPlace::Outside { .. }) {
        let why =
            "its log is on a device of its own: copy its files to a volume with its log inside";
        return refused(why, Errno::XDEV);
    }
    let first = found.superblock.geometry().blocks();
    let group = found.superblock.geometry().group_blocks();
    // Each zone of the volume counts twice.
    let blocks = (2 * first + EXTRA_BLOCKS).min(BLOCKS_MAX.saturating_sub(first));
    let id = Uuid::random().map_err(|e| error(e.to_string(), Errno::IO));
    let leads = leads(&found.superblock.into_pool(first));
    let leads = [&leads[0], &leads[1], &leads[2]];
    let conversion = Conversion { id: id?.to_bytes(), name: main, first, group, blocks, leads };
    vfscale_pool::Pool::convert(&device, &conversion).map_err(|cause| match cause {
        vfscale_pool::Error::Device(DeviceError::Unsupported { .. }) => {
            let why = "the device has a fixed size, and a pool needs space behind the volume";
            error(why.into(), Errno::FBIG)
        }
        vfscale_pool::Error::Size(_) => error(cause.to_string(), Errno::OVERFLOW),
        _ => error(cause.to_string(), Errno::IO),
    })
}

/// Returns the superblock and its copies as they are written.
fn leads(superblock: &Superblock) -> [[u8; BLOCK_BYTES]; 3] {
    let mut leads = [[0; BLOCK_BYTES]; 3];
    for ((copy, address), lead) in (0..).zip(superblock.geometry().copies()).zip(&mut leads) {
        lead.copy_from_slice(superblock.encode(copy, address).bytes());
    }
    leads
}

/// Finds the pool on a device, and returns where it begins. Ends a conversion that a crash has
/// interrupted.
///
/// # Errors
/// [`PoolError::NoPool`], [`PoolError::Superblock`], [`PoolError::Branches`].
pub(super) fn find(name: &str, device: &dyn Device) -> Result<u64, PoolError> {
    let found = copies::pool(device).map_err(PoolError::Superblock)?;
    let found = found.and_then(|found| Some((found.superblock.pool()?, found)));
    let Some((first, found)) = found else {
        return Err(PoolError::NoPool { name: name.into() });
    };
    let unknown = found.superblock.features.unknown().incompat;
    if unknown != 0 {
        let device = name.to_owned();
        return Err(PoolError::Superblock(OpenError::Features { device, bits: unknown }));
    }
    if !found.is_whole() {
        let leads = leads(&found.superblock);
        let group = found.superblock.geometry().group_blocks();
        let failed = |error| PoolError::Branches { name: name.into(), error };
        let leads = [&leads[0], &leads[1], &leads[2]];
        vfscale_pool::Pool::finish_conversion(device, group, &leads).map_err(failed)?;
    }
    Ok(first)
}
