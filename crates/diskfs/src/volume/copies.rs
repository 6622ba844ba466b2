//! The superblock and its copies: at any time one of them is valid on disk, and the search finds it
//! whatever the state of the others.
//!
//! # Writing
//!
//! The superblock in block 0 is written and flushed before the copies are touched, and the copies
//! are flushed before the call returns. A crash can tear the blocks that are being written. The
//! others are valid then: either all of them are old, or the one in block 0 is new.
//!
//! # Finding
//!
//! Of the valid ones, the one with the greatest generation counts. If block 0 is damaged, the size
//! of groups is unknown, and with it the addresses of the copies. But that size is a power of two,
//! and a copy names the volume that it belongs to. So the search tries all powers of two, which are
//! few.
//!
//! Other blocks at such addresses may look like copies: the data of a file, whoever wrote it, and
//! the copies of an older volume. A file lies there only if the address is below the size of a
//! group, since each group begins with reserved blocks. A copy lies at the size of a group or at
//! twice that, and says so. So whatever a file contains, it claims groups that are smaller than
//! those of the volume, and the copies with the largest groups are chosen. Making a volume clears
//! the copies of older ones ([`create`]). Of what is left, the id in a damaged block 0 decides; a
//! search that still finds more than one volume names them and chooses none.
//!
//! # Invariants
//!
//! * A volume is never opened by an invalid superblock, nor by one whose size exceeds the device.
//! * Reading writes nothing. Old and damaged copies are reported; the next [`write()`] replaces
//!   them.

use vfscale_block::Device;

pub use crate::base::open_error::OpenError;
use crate::format::geometry::{COPIES, GROUP_LOG2_MAX, GROUP_LOG2_MIN};
use crate::format::superblock::{DecodeError, MAGIC, Superblock, Timestamp};
use crate::format::{BLOCK_BYTES, Block, Damage, byte_of_block};

/// The state of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopyState {
    /// Identical to the valid superblock.
    Current,
    /// Valid, and older.
    Old {
        /// Its generation.
        generation: u64,
    },
    /// Invalid, or of another volume.
    Damaged(DecodeError),
    /// The device could not read it.
    Unreadable(vfscale_block::Error),
}

/// The superblock, as number 0, or one of its copies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SuperblockCopy {
    /// The address, in blocks.
    pub address: u64,
    /// Its state.
    pub state: CopyState,
}

/// A volume that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundSuperblock {
    /// The newest valid superblock.
    pub superblock: Superblock,
    /// All copies that the volume should have, the one in block 0 first.
    pub copies: Vec<SuperblockCopy>,
}

impl FoundSuperblock {
    /// Returns whether all copies are current.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.copies.iter().all(|copy| copy.state == CopyState::Current)
    }

    /// Returns whether an unknown feature forbids changes of the volume.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.superblock.features.unknown().ro_compat != 0
    }
}

/// Reads a block of a device.
pub(crate) fn read_block(
    device: &dyn Device,
    address: u64,
) -> Result<Box<Block>, vfscale_block::Error> {
    let mut block = Block::zeroed();
    device.read_at(byte_of_block(address), block.bytes_mut())?;
    Ok(block)
}

/// Reads one of the copies.
fn look(device: &dyn Device, address: u64) -> Result<Superblock, CopyState> {
    let block = read_block(device, address).map_err(CopyState::Unreadable)?;
    Superblock::decode(&block, address).map_err(CopyState::Damaged)
}

/// Returns the number of whole blocks of a device.
fn blocks_of(device: &dyn Device) -> u64 {
    device.size() / BLOCK_BYTES as u64
}

/// Finds the volume on a device. Reads three blocks, or a few more if the first one is damaged.
///
/// # Errors
/// [`OpenError`]. A read that fails is no error as long as another copy is valid.
pub fn read(device: &dyn Device) -> Result<FoundSuperblock, OpenError> {
    let found = find(device)?;
    match found.superblock.pool() {
        Some(first) => Err(OpenError::Pool { device: device.name().into(), first }),
        None => Ok(found),
    }
}

/// Finds the superblock of a device that has become a pool of branches; `None` if it has not.
/// [`Superblock::pool`] tells where the pool begins. A conversion that a crash has interrupted is
/// not over while the superblock is not [whole](FoundSuperblock::is_whole).
///
/// # Errors
/// [`OpenError`], but for a device with nothing of a volume on it.
pub fn pool(device: &dyn Device) -> Result<Option<FoundSuperblock>, OpenError> {
    match find(device) {
        Ok(found) => Ok(found.superblock.pool().is_some().then_some(found)),
        Err(OpenError::NoVolume { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Finds the superblock, of a volume or of a pool.
fn find(device: &dyn Device) -> Result<FoundSuperblock, OpenError> {
    if blocks_of(device) == 0 {
        return Err(OpenError::NoVolume { device: device.name().into() });
    }
    let first = look(device, 0);
    let known = match &first {
        Ok(superblock) => superblock.clone(),
        Err(state) => search(device, state)?,
    };
    let found = compare(device, &known, first);
    check(device, &found.superblock)?;
    Ok(found)
}

/// Reads all copies of the volume that `known` belongs to, and chooses the newest valid one.
fn compare(
    device: &dyn Device,
    known: &Superblock,
    first: Result<Superblock, CopyState>,
) -> FoundSuperblock {
    let addresses: Vec<_> = known.geometry().copies().collect();
    let others = addresses.iter().skip(1).map(|address| look(device, *address));
    let seen: Vec<_> = std::iter::once(first).chain(others).collect();
    let of_volume = seen.iter().flatten().filter(|copy| copy.volume() == known.volume());
    let best = of_volume.fold(
        known,
        |best, copy| {
            if copy.generation > best.generation { copy } else { best }
        },
    );
    let state = |seen: &Result<Superblock, CopyState>, address: u64| match seen {
        Err(state) => state.clone(),
        Ok(copy) if copy == best => CopyState::Current,
        Ok(copy) if copy.volume() == best.volume() => {
            CopyState::Old { generation: copy.generation }
        }
        Ok(copy) => CopyState::Damaged(Damage::Volume { address, found: copy.volume() }.into()),
    };
    let copies = seen.iter().zip(addresses);
    let copies =
        copies.map(|(seen, address)| SuperblockCopy { address, state: state(seen, address) });
    FoundSuperblock { superblock: best.clone(), copies: copies.collect() }
}

/// Searches for copies at all addresses at which one may lie. `first` is the state of block 0.
fn search(device: &dyn Device, first: &CopyState) -> Result<Superblock, OpenError> {
    let mut found: Vec<_> =
        places(blocks_of(device)).filter_map(|at| look(device, at).ok()).collect();
    let torn = read_block(device, 0).ok().filter(|block| block.header().magic == MAGIC);
    let is_named = |copy: &Superblock| {
        torn.as_ref().is_some_and(|block| block.header().volume == copy.volume())
    };
    if found.iter().any(is_named) {
        found.retain(is_named);
    }
    let group_blocks = |copy: &Superblock| copy.geometry().group_blocks();
    let largest = found.iter().map(group_blocks).max();
    found.retain(|copy| Some(group_blocks(copy)) == largest);
    let mut volumes: Vec<_> = found.iter().map(Superblock::volume).collect();
    volumes.sort_unstable();
    volumes.dedup();
    let name = device.name().to_string();
    if volumes.len() > 1 {
        return Err(OpenError::Several { device: name, volumes });
    }
    if let Some(best) = found.into_iter().max_by_key(Superblock::generation) {
        return Ok(best);
    }
    Err(match first.clone() {
        CopyState::Unreadable(error) => OpenError::Device(error),
        // The device begins with something else: the contents of another format are no damage.
        CopyState::Damaged(DecodeError::Damage(Damage::Magic { .. })) => {
            OpenError::NoVolume { device: name }
        }
        CopyState::Damaged(error) => OpenError::Superblock { device: name, error },
        CopyState::Current | CopyState::Old { .. } => OpenError::NoVolume { device: name },
    })
}

/// Iterates over the blocks at which copies can be on a device of `blocks` blocks, for any group
/// size.
fn places(blocks: u64) -> impl Iterator<Item = u64> {
    // The copies are at the starts of the groups after the first: at one and two times each
    // possible size of groups.
    const LAST: u8 = GROUP_LOG2_MAX + COPIES.ilog2() as u8;
    (GROUP_LOG2_MIN..=LAST).map(|log2| 1 << log2).filter(move |place| *place < blocks)
}

const _: () = assert!(COPIES == 3, "`places` knows where copies number 1 and 2 lie");

fn check(device: &dyn Device, superblock: &Superblock) -> Result<(), OpenError> {
    let bits = superblock.features.unknown().incompat;
    let name = || device.name().to_string();
    if bits != 0 {
        return Err(OpenError::Features { device: name(), bits });
    }
    let (volume_bytes, device_bytes) = (superblock.geometry().bytes(), device.size());
    if volume_bytes > device_bytes {
        return Err(OpenError::CutOff { device: name(), volume_bytes, device_bytes });
    }
    Ok(())
}

/// Writes the superblock and all its copies, with the next generation and the current time. Durable
/// when it returns.
///
/// # Errors
/// The errors of the device. The next search then finds the former state or the new one;
/// `superblock` has the new one.
pub fn write(device: &dyn Device, superblock: &mut Superblock) -> Result<(), vfscale_block::Error> {
    superblock.generation += 1;
    superblock.written = Timestamp::now();
    let addresses: Vec<_> = superblock.geometry().copies().collect();
    let blocks = (0..).zip(addresses).map(|(copy, at)| (at, superblock.encode(copy, at)));
    let blocks: Vec<_> = blocks.collect();
    let writes: Vec<_> =
        blocks.iter().map(|(at, block)| (byte_of_block(*at), block.bytes())).collect();
    let (first, others) = writes.split_at(1);
    device.write_many(first)?;
    device.flush()?;
    device.write_many(others)?;
    device.flush()
}

/// Clears the remains of former volumes at all addresses of superblocks. Durable when it returns;
/// flushes in any case. The caller ensures that a former volume may be lost.
///
/// # Errors
/// The errors of the device. Then the device has the former volume, or none.
pub fn clear(device: &dyn Device) -> Result<(), vfscale_block::Error> {
    let zeros = Block::zeroed();
    for place in std::iter::once(0).chain(places(blocks_of(device))) {
        // An unreadable block may be a leftover; if it cannot be written either, the write reports
        // it.
        let is_left = read_block(device, place).map_or(true, |block| block.header().magic == MAGIC);
        if is_left {
            device.write_at(byte_of_block(place), zeros.bytes())?;
        }
    }
    device.flush()
}

/// Clears the remains of former volumes at all addresses of superblocks, and writes the superblock
/// of a new volume. Durable when it returns. The caller ensures that a former volume may be lost.
///
/// # Errors
/// The errors of the device. Then the device has the former volume, or none, or the new one.
pub fn create(
    device: &dyn Device,
    superblock: &mut Superblock,
) -> Result<(), vfscale_block::Error> {
    clear(device)?;
    write(device, superblock)
}

#[cfg(test)]
mod tests;
