//! The superblock and its copies: written so that one is always whole, and found whatever has
//! become of the others.
//!
//! # Writing
//!
//! The superblock in block 0 is written and flushed before the copies are touched, and the copies
//! are flushed before the call returns. A crash can tear what is being written; the others are
//! whole then, and all of them old, or the first one new.
//!
//! # Finding
//!
//! Of those that are whole the one with the greatest generation counts. If that in block 0 is
//! damaged, nothing says how large groups are, and so where the copies lie; but it is a power of
//! two, and a copy says what it belongs to. So all powers of two are tried, which are few.
//!
//! An older volume's copies may lie at such places, too. Making a volume clears them
//! ([`create`]), and a search that finds more than one volume names them and chooses none.
//!
//! # Invariants
//!
//! * A volume is never opened by a superblock that is not whole, nor by one whose size is not
//!   there.
//! * Reading writes nothing. Copies that are old or damaged are reported; the next [`write()`]
//!   makes them new.

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
    /// Whole, and older.
    Old {
        /// Its generation.
        generation: u64,
    },
    /// Not whole, or not of this volume.
    Damaged(DecodeError),
    /// The device could not read it.
    Unreadable(vfscale_block::Error),
}

/// The superblock, as number 0, or one of its copies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SuperblockCopy {
    /// Where it lies, in blocks.
    pub address: u64,
    /// Its state.
    pub state: CopyState,
}

/// A volume that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundSuperblock {
    /// The superblock that counts.
    pub superblock: Superblock,
    /// All there should be, that in block 0 first.
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
/// [`OpenError`]. A device that fails one of the reads is none, as long as another copy is whole.
pub fn read(device: &dyn Device) -> Result<FoundSuperblock, OpenError> {
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

/// Looks at all copies of the volume that `known` is of, and takes the best of them.
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

/// Looks for a copy wherever one may lie. `first` is what has become of the superblock.
fn search(device: &dyn Device, first: &CopyState) -> Result<Superblock, OpenError> {
    let found: Vec<_> = places(blocks_of(device)).filter_map(|at| look(device, at).ok()).collect();
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
        // Something else begins the device: the bytes of others are no damage of ours.
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
    // The copies begin the groups after the first: with groups of each size, one and two times
    // that.
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

/// Writes the superblock and all its copies, with the next generation and the time. Durable when it
/// returns.
///
/// # Errors
/// Those of the device. The volume is found then as it was before or as it was to become, and
/// `superblock` is as it was to become.
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

/// Clears what former volumes have left where superblocks lie. Durable when it returns; a flush is
/// made in any case. Whether a former volume may be lost is for the caller to ask.
///
/// # Errors
/// Those of the device. The former volume is there then, or none.
pub fn clear(device: &dyn Device) -> Result<(), vfscale_block::Error> {
    let zeros = Block::zeroed();
    for place in std::iter::once(0).chain(places(blocks_of(device))) {
        // An unreadable block counts as no leftover; if it cannot be written either, the write
        // reports it.
        let is_left = read_block(device, place).map_or(true, |block| block.header().magic == MAGIC);
        if is_left {
            device.write_at(byte_of_block(place), zeros.bytes())?;
        }
    }
    device.flush()
}

/// Clears what former volumes have left where superblocks lie, and writes the superblock of a new
/// one. Durable when it returns. Whether a former volume may be lost is for the caller to ask.
///
/// # Errors
/// Those of the device. The former volume is there then, or none, or the new one.
pub fn create(
    device: &dyn Device,
    superblock: &mut Superblock,
) -> Result<(), vfscale_block::Error> {
    clear(device)?;
    write(device, superblock)
}

#[cfg(test)]
mod tests;
