//! A volume becomes a pool.

use vfscale_block::{Device, Error as DeviceError};
use vfscale_diskfs::{
    BLOCK_BYTES, DiskFs, LogPlace, OpenError, Superblock, TrimRange, Uuid, copies,
};
use vfscale_pool::Conversion;
use vfscale_vfs::Errno;

use crate::error::pool::PoolError;
use crate::place::devices::Opened;

/// How a volume has become a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Converted {
    /// The device was a pool before.
    Was,
    /// The device has grown.
    Grown,
    /// The device has a fixed size. The free blocks of the volume are to be discarded: a pool that
    /// can't grow needs them.
    Fixed,
}

/// Space that a pool gets besides the size of the volume, in blocks: 128 MiB.
const EXTRA_BLOCKS: u64 = 1 << 15;
/// Most zones of a pool, in blocks: a third for the volume, a third for as much again, and the
/// volume counts twice.
const BLOCKS_MAX: u64 = 30_000 * 31_744;

/// Makes the volume on a device a pool with the branch `main`, if it is none yet.
///
/// # Errors
/// [`PoolError::Convert`] and [`PoolError::Superblock`].
pub(crate) fn convert(name: &str, main: &str, opened: &Opened) -> Result<Converted, PoolError> {
    let device = opened.device();
    let found = match copies::read(&*device) {
        Ok(found) => found,
        Err(OpenError::Pool { .. }) => return Ok(Converted::Was),
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
    let (blocks, converted) = room(&*device, first).map_err(|cause| match cause {
        Room::Device(cause) => error(cause.to_string(), Errno::IO),
        Room::Short { found, needed } => error(
            format!(
                "its device has a fixed size, and {} MiB behind the volume, of which a pool needs {}; \
                 `vfscale mkfs --branch-space` makes a volume with room behind it",
                mib(found),
                mib(needed).max(1)
            ),
            Errno::FBIG,
        ),
    })?;
    let id = Uuid::random().map_err(|e| error(e.to_string(), Errno::IO));
    let leads = leads(&found.superblock.into_pool(first));
    let leads = [&leads[0], &leads[1], &leads[2]];
    let conversion = Conversion { id: id?.to_bytes(), name: main, first, group, blocks, leads };
    let made = vfscale_pool::Pool::convert(&device, &conversion);
    made.map(|()| converted).map_err(|cause| match cause {
        vfscale_pool::Error::Size(_) => error(cause.to_string(), Errno::OVERFLOW),
        _ => error(cause.to_string(), Errno::IO),
    })
}

/// The reason why a device has no room for a pool.
enum Room {
    Device(DeviceError),
    /// The device can't grow, and has fewer blocks behind the volume than are needed.
    Short {
        found: u64,
        needed: u64,
    },
}

/// Makes room for a pool behind a volume of `first` blocks. Returns the size of the pool in blocks,
/// with the volume, and how it got it: a device that can grow gets twice the size, and one that
/// can't is used as it is.
fn room(device: &dyn Device, first: u64) -> Result<(u64, Converted), Room> {
    // Each zone of the volume counts twice.
    let most = BLOCKS_MAX.saturating_sub(first);
    let wanted = (2 * first + EXTRA_BLOCKS).min(most);
    let found = device.size() / BLOCK_BYTES as u64;
    if found >= wanted {
        return Ok((found.min(most), Converted::Grown));
    }
    match device.set_size(wanted * BLOCK_BYTES as u64) {
        Ok(()) => return Ok((wanted, Converted::Grown)),
        Err(DeviceError::Unsupported { .. }) => {}
        Err(error) => return Err(Room::Device(error)),
    }
    let needed = needed_behind(first);
    match found.saturating_sub(first) {
        behind if behind < needed => Err(Room::Short { found: behind, needed }),
        _ => Ok((found, Converted::Fixed)),
    }
}

/// Returns how many blocks there have to be behind a volume of `first` blocks: what the pool keeps
/// for its commits and for removals, the maps of all blocks of the volume while its free ones are
/// given back, and 12 MiB for its bitmaps and for what an open volume reserves.
fn needed_behind(first: u64) -> u64 {
    (first / 50).min(4096) + (first / 32).min(8192) + first / 256 + 3072
}

fn mib(blocks: u64) -> u64 {
    (blocks * BLOCK_BYTES as u64) >> 20
}

/// Discards the free blocks of an open volume, as far as possible: other branches get their space.
pub(crate) fn discard_free(name: &str, fs: &DiskFs) {
    let all = TrimRange { start: 0, len: u64::MAX, minlen: 0 };
    if let Err(fault) = fs.volume().trim(all) {
        tracing::warn!("{name}: free blocks of the volume are not used for branches: {fault}");
    }
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
pub(crate) fn find(name: &str, device: &dyn Device) -> Result<u64, PoolError> {
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
