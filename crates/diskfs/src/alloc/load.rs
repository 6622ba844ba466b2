//! The reading of zones from a group's trees.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::ops::Range;

use zerocopy::little_endian::U64;

use super::Layout;
use super::delayed::Masks;
use super::search::Reach;
use super::zones::{ZONE_BLOCKS, ZONE_LOG2};
use crate::btree::{Error, Kind, Nodes, Record, Tree};
use crate::format::Damage;
use crate::format::damage::GroupFault;
use crate::format::group::{FreeSpace, InodeChunks, fault};
use crate::format::inode::CHUNK_BLOCKS;

/// Maximum number of records read at a time. A zone has no more, so at least one zone is loaded.
pub(super) const RECORDS_MAX: u64 = ZONE_BLOCKS / 2;
/// Maximum number of records that a claim reads in search of a better location.
const RECORDS_FOR_BETTER: u64 = 4 * RECORDS_MAX;
/// Extra cost of reading a zone, in records: for the path from the root.
const RECORDS_FOR_WAY: u64 = 16;

/// The number of records that a claim may still read.
#[derive(Debug)]
pub(super) struct Effort {
    /// Number of records left, in search of something better; `None` without limit.
    left: Option<u64>,
}

impl Effort {
    /// Starts a search for a good location, limited in its reads.
    pub(super) fn better() -> Self {
        Self { left: Some(RECORDS_FOR_BETTER) }
    }

    /// Starts a search for any location.
    pub(super) fn anything() -> Self {
        Self { left: None }
    }

    pub(super) fn reach(&self) -> Reach {
        match self.left {
            None => Reach::Anything,
            Some(0) => Reach::Loaded,
            Some(_) => Reach::Better,
        }
    }

    pub(super) fn spend(&mut self, records: usize) {
        if let Some(left) = &mut self.left {
            *left = left.saturating_sub(records as u64 + RECORDS_FOR_WAY);
        }
    }
}

/// The trees that a zone is read from, as seen by the thread that holds the group's lock.
pub(super) struct Source<'a, N> {
    pub(super) nodes: &'a N,
    pub(super) layout: &'a Layout,
    /// The chunks that differ from their records; `None` if only free space is read.
    pub(super) delayed: Option<&'a BTreeMap<u64, Masks>>,
}

/// One of the two halves of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Half {
    Free,
    Chunks,
}

/// Zones that were read: the first, the one behind the last, and the records: their keys, and their
/// lengths or masks of free inodes.
pub(super) struct Zone {
    pub(super) first: usize,
    pub(super) end: usize,
    pub(super) records: Vec<(u64, u64)>,
}

/// Checks a record of free space, and returns the start and length of the run.
fn free_run(layout: &Layout, record: &Record<FreeSpace>) -> Result<(u64, u64), Damage> {
    let (start, blocks) = (record.key.get(), record.value.get());
    if layout.is_usable(start, blocks) {
        return Ok((start, blocks));
    }
    Err(fault(layout.free_tree().root(), GroupFault::FreeRun { start, blocks }))
}

/// Checks a record of a chunk, and returns its first block, and its masks: free, orphans.
pub(super) fn chunk_masks(
    layout: &Layout,
    record: &Record<InodeChunks>,
) -> Result<(u64, Masks), Damage> {
    let (chunk, free) = (record.key.get(), record.value.free.get());
    let orphan = record.value.orphan.get();
    if !layout.is_chunk(chunk) || free & orphan != 0 {
        return Err(fault(layout.chunk_tree().root(), GroupFault::Chunk { start: chunk }));
    }
    Ok((chunk, (free, orphan)))
}

impl<N: Nodes> Source<'_, N> {
    /// Reads zones, about `most` records. Returns `None` if the first zone has more, unless it
    /// `must` be read.
    pub(super) fn read_half(
        &self,
        half: Half,
        zones: Range<usize>,
        most: u64,
        must: bool,
    ) -> Result<Option<Zone>, Error<N::Error>> {
        let layout = self.layout;
        match half {
            Half::Free => self.read(&layout.free_tree(), zones, (most, must), |record, end| {
                let (start, blocks) = free_run(layout, record)?;
                if start <= end && end > 0 {
                    let what = GroupFault::FreeRun { start, blocks };
                    return Err(fault(layout.free_tree().root(), what));
                }
                Ok(((start, blocks), start + blocks))
            }),
            Half::Chunks => self.read(&layout.chunk_tree(), zones, (most, must), |record, _| {
                let (chunk, stored) = chunk_masks(layout, record)?;
                let delayed = self.delayed.and_then(|delayed| delayed.get(&chunk));
                let (free, _) = delayed.copied().unwrap_or(stored);
                Ok(((chunk, free), chunk + CHUNK_BLOCKS))
            }),
        }
    }

    /// Reads records of a tree; `parsed` gets each record with the end of the one before it, and
    /// returns its content and its end.
    fn read<K: Kind<Key = U64>>(
        &self,
        tree: &Tree<K>,
        zones: Range<usize>,
        (most, must): (u64, bool),
        parsed: impl Fn(&Record<K>, u64) -> Result<((u64, u64), u64), Damage>,
    ) -> Result<Option<Zone>, Error<N::Error>> {
        let start = self.layout.blocks().start;
        let block = |zone: usize| start + ((zone as u64) << ZONE_LOG2);
        let (first, behind) = (block(zones.start), block(zones.end));
        let mut read = Zone { first: zones.start, end: zones.end, records: Vec::new() };
        let mut end = 0;
        // The record before the zones may extend into them.
        let before = match first.checked_sub(1) {
            Some(before) => tree.at_or_before(self.nodes, before.into())?,
            None => None,
        };
        if let Some(record) = before {
            let (before, to) = parsed(&record, 0)?;
            if to > first {
                read.records.push(before);
            }
            end = to;
        }
        // Records behind the group are corruption that has to be found.
        let is_last = behind >= self.layout.blocks().end;
        let upto = if is_last { Unbounded } else { Excluded(U64::from(behind)) };
        for record in tree.range(self.nodes, (Included(U64::from(first)), upto))? {
            let (here, to) = parsed(&record?, end)?;
            read.records.push(here);
            end = to;
            let whole = ((end - start) >> ZONE_LOG2) as usize;
            if read.records.len() as u64 >= most && whole < read.end {
                if whole > read.first {
                    read.end = whole;
                    break;
                }
                if !must {
                    return Ok(None);
                }
            }
        }
        Ok(Some(read))
    }
}
