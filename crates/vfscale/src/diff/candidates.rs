//! From blocks to inodes: those that may differ.
//!
//! Of each block that the branches do not share, each side has to say whose it is: of the volume,
//! of inodes, free, of a tree, or data of an inode that differs. A block of which that is not known
//! may be data of a file whose inode is the same, so nothing is told then. A block with a valid
//! header of a tree counts as one of a tree.

use std::collections::BTreeSet;
use std::ops::Range;

use vfscale_diskfs::rescue::{BlockUse, Loss, Rescue};

use super::side::Side;
use crate::error::pool::PoolError;

/// Blocks, inodes or names do not tell what differs, or not as fast as a walk does.
pub(super) struct Unclear;

impl From<Loss> for Unclear {
    fn from(_: Loss) -> Self {
        Self
    }
}

impl From<PoolError> for Unclear {
    fn from(_: PoolError) -> Self {
        Self
    }
}

/// Returns the numbers of all inodes that may differ. Blocks for the I/O.
///
/// # Errors
/// [`Unclear`].
pub(super) fn candidates(a: &Side, b: &Side) -> Result<BTreeSet<u64>, Unclear> {
    let differing = a.branch().differing(b.branch()).map_err(|_| Unclear)?.ok_or(Unclear)?;
    if differing.is_empty() {
        return Ok(BTreeSet::new());
    }
    if !a.volume().is_like(b.volume()) {
        return Err(Unclear);
    }
    let replayed = a.volume().replayed().chain(b.volume().replayed());
    let blocks = united(differing.into_iter().chain(replayed));
    let sides = [a.volume(), b.volume()];
    let mut of_inodes = BTreeSet::new();
    for (volume, blocks) in sides.iter().flat_map(|it| blocks.iter().map(move |at| (it, at))) {
        for chunk in volume.chunks_in(blocks.clone())? {
            of_inodes.extend(blocks.start.max(chunk.start)..blocks.end.min(chunk.end));
        }
    }
    let mut found = BTreeSet::new();
    for block in &of_inodes {
        found.extend(a.volume().differing_inodes(b.volume(), *block)?);
    }
    let mut owners = BTreeSet::new();
    let mut unknown = [Vec::new(), Vec::new()];
    for (volume, unknown) in sides.iter().zip(&mut unknown) {
        let data = data_of(volume, &found)?;
        for blocks in &blocks {
            owned(volume, blocks, &data, &mut owners, unknown)?;
        }
    }
    // A tree may have changed, and the record of its inode not.
    owners.retain(|ino| !found.contains(ino));
    for (volume, unknown) in sides.iter().zip(&unknown) {
        let data = data_of(volume, &owners)?;
        if !unknown.iter().all(|block| end_of(&data, *block).is_some()) {
            return Err(Unclear);
        }
    }
    found.append(&mut owners);
    Ok(found)
}

/// Adds the owners of trees in blocks, and those blocks whose owner is not known.
fn owned(
    volume: &Rescue,
    blocks: &Range<u64>,
    data: &[Range<u64>],
    owners: &mut BTreeSet<u64>,
    unknown: &mut Vec<u64>,
) -> Result<(), Unclear> {
    let mut at = blocks.start;
    while at < blocks.end {
        if let Some(end) = end_of(data, at) {
            at = end;
            continue;
        }
        if let Some(end) = volume.end_of_chunk(at)? {
            at = end;
            continue;
        }
        let (of, end) = volume.use_of(at)?;
        match of {
            BlockUse::Volume => {}
            BlockUse::Tree(owner) => _ = owners.insert(owner),
            BlockUse::Other => unknown.push(at),
        }
        at = end;
    }
    Ok(())
}

/// Returns the blocks with the data of inodes, as far as these exist, in order.
fn data_of(volume: &Rescue, inodes: &BTreeSet<u64>) -> Result<Vec<Range<u64>>, Unclear> {
    let mut found = Vec::new();
    for ino in inodes {
        let Some(core) = volume.existing(*ino)?.filter(|core| core.is_regular()) else { continue };
        let (extents, losses) = volume.file_extents(*ino, &core);
        if !losses.is_empty() {
            return Err(Unclear);
        }
        found.extend(extents.iter().map(|extent| extent.start..extent.place_end()));
    }
    Ok(united(found.into_iter()))
}

/// Returns the end of the range that has a block.
fn end_of(ranges: &[Range<u64>], block: u64) -> Option<u64> {
    let range = ranges.get(ranges.partition_point(|range| range.end <= block))?;
    (range.start <= block).then_some(range.end)
}

/// Returns ranges in order, those that touch as one.
fn united(ranges: impl Iterator<Item = Range<u64>>) -> Vec<Range<u64>> {
    let mut sorted: Vec<_> = ranges.collect();
    sorted.sort_unstable_by_key(|range| range.start);
    sorted.dedup_by(|next, last| {
        let touches = next.start <= last.end;
        if touches {
            last.end = last.end.max(next.end);
        }
        touches
    });
    sorted
}
