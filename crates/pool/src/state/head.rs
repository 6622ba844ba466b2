//! The head of a pool: its first block and its superblocks, each written twice.
//!
//! # Why an opening loses no commit
//!
//! Commit *g* writes its superblock and a copy of it together, and one flush makes both durable;
//! the commit before has the two other places. All that they lead to was flushed before. So:
//!
//! * A power cut during that write leaves the superblock, the copy, both or none. One of them is
//!   enough: the commit is whole. With none of them the commit was not durable, and the one before
//!   is whole, since its places were not written.
//! * A block that can't be read, or is wrong, later on has a twin that says what it said. If the
//!   twin has an older generation, the block has nothing newer that was durable: the flush would
//!   have made the twin as new.
//! * If neither is whole and one of them can't be read, it may be the newest superblock there is.
//!   Opening the pool fails then. To go back to the commit before would write over what a later
//!   commit refers to. Only a repair does so, and says it.
//! * If both can be read and neither is whole, power was cut while both were written; or both were
//!   damaged later, which nothing can tell from it.
//!
//! An opening that finds only one whole superblock of the newest commit makes another commit before
//! the pool is used. So does the first opening of a pool of an older program, which has written
//! each block once. Neither writes to a place that it could not read, since the next commit has the
//! two other ones.
//!
//! The first block never changes. An opening writes it, or its copy, again if it is wrong, from the
//! other one.

use std::sync::Arc;

use vfscale_block::Device;

use crate::Error;
use crate::disk::device::{Disk, offset};
use crate::disk::format::{
    self, Bytes, FLAT_TABLE, LEAD, Lead, PLACE_BYTES, ROWS, SPARES, SUPER, Superblock, TWICE,
    VERSION,
};
use crate::disk::layout::Layout;
use crate::state::branch_table::TABLE_LEVELS;

/// The purpose of an opening: what it does about a block that can't be read and may have something
/// that was flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Use: it fails if that may be written over, or if nothing tells which branch it concerns.
    Use,
    /// Reading: it fails if nothing tells which branch it concerns. The device is not written to.
    Read,
    /// Repair: it goes on without the block, and tells what is lost.
    Repair,
}

/// The superblock of the newest commit.
pub(crate) struct Newest {
    pub(crate) block: Superblock,
    /// Whether both of its blocks are whole.
    pub(crate) is_twice: bool,
    /// The superblock that can't be read, if a repair goes on without it.
    pub(crate) lost: Option<Error>,
}

/// The first block of a pool, and what it leads to.
pub(crate) struct Opened {
    pub(crate) disk: Disk,
    /// The block and its copy, as far as they are to be written again, each with its place.
    pub(crate) mends: Vec<(u64, Box<Bytes>)>,
}

/// Reads the first block of the pool that begins at place `first`, or its copy.
///
/// # Errors
/// Errors of [`Shared::open`](crate::state::commit::Shared::open).
pub(crate) fn open_disk(
    device: Arc<dyn Device>,
    first: u64,
    purpose: Purpose,
) -> Result<Opened, Error> {
    let places = device.size() / PLACE_BYTES as u64;
    if first >= places {
        return Err(Error::NoPool);
    }
    let layout = Layout { first, group: 0, places };
    let disk = Disk::new(device, [0; 16], layout);
    let found = [first, layout.copy_of_lead()].map(|at| read_lead(&disk, at));
    // Written over is only what could be read.
    let is_mended = |found: &Result<_, Error>| match found {
        Err(Error::Device(_)) => purpose == Purpose::Repair,
        found => found.is_err(),
    };
    let places = [first, layout.copy_of_lead()].into_iter().zip(&found);
    let mends: Vec<u64> =
        places.filter(|(_, found)| is_mended(found)).map(|(place, _)| place).collect();
    let [own, copy] = found;
    let bytes = own.or_else(|error| copy.map_err(|_| error))?;
    let disk = Disk::new(disk.device, format::header_of(&bytes).pool, layout);
    let lead: &Lead = format::read(&bytes, disk.expect(LEAD, first))?;
    let unknown = lead.incompat.get() & !ROWS;
    if unknown != 0 || lead.version.get() != VERSION {
        return Err(Error::Features(unknown));
    }
    if lead.superblocks.map(u64::from) != layout.superblocks() {
        return Err(Error::Damage { place: first, what: "the places of the superblocks" });
    }
    let layout = Layout { group: lead.group.get(), ..layout };
    let disk = Disk::new(disk.device, disk.pool, layout);
    Ok(Opened { disk, mends: mends.into_iter().map(|place| (place, bytes.clone())).collect() })
}

/// Reads the first block of a pool from the place `at`, which has it or its copy.
fn read_lead(disk: &Disk, at: u64) -> Result<Box<Bytes>, Error> {
    let mut bytes = Box::new([0; PLACE_BYTES]);
    disk.device.read_at(offset(at), &mut bytes[..])?;
    let header = format::header_of(&bytes);
    if header.magic != LEAD {
        return Err(Error::NoPool);
    }
    let disk = Disk::new(disk.device.clone(), header.pool, disk.layout());
    format::read::<Lead>(&bytes, disk.expect(LEAD, disk.layout().first))?;
    Ok(bytes)
}

/// Returns how many levels the tree of the branch table has.
pub(crate) fn table_levels(block: &Superblock) -> u8 {
    if block.incompat.get() & FLAT_TABLE == 0 { TABLE_LEVELS } else { 1 }
}

/// Writes a superblock, and its copy.
///
/// # Errors
/// Errors of the device.
pub(crate) fn write_superblock(disk: &Disk, block: &Superblock) -> Result<(), Error> {
    let (place, bytes) = (block.header.place.get(), format::seal(block));
    let copy = disk.layout().copy_of_superblock(place);
    Ok(disk.device.write_many(&[(offset(place), &bytes[..]), (offset(copy), &bytes[..])])?)
}

/// Finds the superblock of the newest commit.
///
/// # Errors
/// Errors of [`Shared::open`](crate::state::commit::Shared::open).
pub(crate) fn newest(disk: &Disk, purpose: Purpose) -> Result<Newest, Error> {
    let (mut best, mut why): (Option<Superblock>, _) = (None, Error::NoPool);
    let (mut whole, mut lost) = (0, None);
    for place in disk.layout().superblocks() {
        let copy = disk.layout().copy_of_superblock(place);
        let read = [place, copy].map(|at| disk.read_copy::<Superblock>(SUPER, place, at));
        let has_none = read.iter().all(Result::is_err);
        for block in read {
            let newest = best.as_ref().map_or(0, |best| best.header.generation.get());
            match block {
                Ok(block) if block.header.generation.get() > newest => {
                    (best, whole) = (Some(block), 1)
                }
                Ok(block) => whole += u32::from(block.header.generation.get() == newest),
                Err(error @ Error::Device(_)) if has_none => lost = Some((place, error)),
                Err(error) => why = error,
            }
        }
    }
    let lost = lost.map(|(place, error)| error.unreadable(place, "a superblock"));
    if let Some(error) = lost.clone().filter(|_| purpose != Purpose::Repair) {
        return Err(error);
    }
    let block = best.ok_or_else(|| lost.clone().unwrap_or(why))?;
    check(disk, &block)?;
    let is_twice = whole == 2 && block.incompat.get() & TWICE != 0;
    Ok(Newest { block, is_twice, lost })
}

/// Checks the fields of a superblock.
fn check(disk: &Disk, block: &Superblock) -> Result<(), Error> {
    let place = block.header.place.get();
    let unknown = block.incompat.get() & !(SPARES | FLAT_TABLE | TWICE) | block.ro_compat.get();
    if block.version.get() != VERSION || unknown != 0 {
        return Err(Error::Features(unknown));
    }
    let places = block.places.get();
    let layout = Layout { places, ..disk.layout() };
    let is_wrong = places > disk.layout().places
        || !layout.is_valid()
        || block.zones_made.get() > layout.new_zones()
        || block.used.get() > places
        || block.header.generation.get() > 1 << 62
        || block.next_node.get() > 1 << 62
        || block.table_blocks.get() > crate::state::map::span(table_levels(block));
    if is_wrong {
        return Err(Error::Damage { place, what: "the sizes of the pool" });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
