//! The available blocks and inodes of a group, in memory.

use std::ops::Range;

use super::chunks::Chunks;
use super::extents::FreeExtents;
use super::pending::Pending;
use super::search::{FreeRuns, Reach, Search};
use super::zones::{UNKNOWN, ZONE_BLOCKS, Zones};
use crate::format::BlockRange;
use crate::format::inode::CHUNK_BLOCKS;

/// Bit in the summary of a zone: an aligned run for a chunk of inodes may exist. The bits below are
/// the length of the longest known run within the zone, in blocks; 0 only if nothing is free there.
const HAS_PLACE: u16 = 0x8000;

/// The available blocks and inodes of a group.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    /// Free runs of the zones that are loaded.
    pub(super) free: FreeExtents,
    pub(super) zones: Zones,
    pub(super) pending: Pending,
    /// Number of available blocks, in all zones.
    pub(super) blocks: u64,
    /// Number of blocks that the group's trees have: in them, set aside for them, or given back by
    /// a transaction that is not durable yet.
    pub(super) tree_total: u64,
    /// Maximum number of blocks that the trees can ever need.
    pub(super) tree_max: u64,
    pub(super) chunks: Chunks,
    /// Upper bound on the longest run in the summaries of zones that are not loaded.
    ceiling: u64,
    /// Block from which the next zone to be dropped is searched.
    hand: u64,
    /// Number of entries that the volume's count includes.
    pub(super) counted: usize,
}

/// Returns how many of `free` blocks are available to files, when the trees have `tree_total` of
/// the `tree_max` blocks that they may need.
pub(super) fn available(free: u64, tree_total: u64, tree_max: u64) -> u64 {
    free.saturating_sub(tree_max.saturating_sub(tree_total))
}

/// Returns the longest run that a summary records.
fn longest(summary: u16) -> u64 {
    if summary == UNKNOWN { ZONE_BLOCKS } else { (summary & !HAS_PLACE).into() }
}

fn may_have_place(summary: u16) -> bool {
    summary & HAS_PLACE != 0
}

/// Returns whether an aligned run for a chunk of inodes fits between two blocks.
fn has_place(start: u64, end: u64) -> bool {
    start.next_multiple_of(CHUNK_BLOCKS) + CHUNK_BLOCKS <= end
}

impl Index {
    /// Creates the index of a group that has `blocks` blocks from `start` on at full size. Nothing
    /// is loaded.
    pub(super) fn new(start: u64, blocks: u64) -> Self {
        let zones = Zones::new(start, blocks);
        let chunks = Chunks::new(zones.clone());
        Self { chunks, zones, ceiling: ZONE_BLOCKS, ..Self::default() }
    }

    /// Returns the number of blocks that are available to files.
    pub(super) fn available(&self) -> u64 {
        available(self.blocks, self.tree_total, self.tree_max)
    }

    /// Returns the number of entries in memory.
    pub(super) fn entries(&self) -> usize {
        self.free.len() + self.chunks.len()
    }

    /// Takes `min` to `max` blocks, near block `near` if possible.
    pub(super) fn claim(
        &mut self,
        near: u64,
        min: u64,
        max: u64,
        reach: Reach,
    ) -> Search<BlockRange> {
        let max = max.min(self.available());
        if min == 0 || max < min {
            return Search::Nothing;
        }
        let here = self.zones.of(near);
        if reach != Reach::Loaded && self.zones.summary(here).is_some_and(|known| known != 0) {
            return Search::Load(here);
        }
        let found = self.free.find(near, min, max);
        let blocks = found.map_or(0, BlockRange::len);
        let is_enough = match reach {
            Reach::Loaded => true,
            Reach::Better => blocks >= max,
            Reach::Anything => blocks > 0,
        };
        if !is_enough && let Some(zone) = self.better(here, blocks.max(min - 1), max) {
            return Search::Load(zone);
        }
        found.map_or(Search::Nothing, |run| self.take(run))
    }

    /// Finds a zone that is not loaded, where there may be `max` blocks, or more than `least`.
    fn better(&mut self, here: usize, least: u64, max: u64) -> Option<usize> {
        if self.zones.is_whole() || self.ceiling <= least {
            return None;
        }
        let goal = max.min(ZONE_BLOCKS);
        let known = |summary| summary != UNKNOWN && longest(summary) >= goal;
        let fits = self.zones.find(here, known);
        if let Some(zone) = fits.or_else(|| self.zones.find(here, |summary| summary == UNKNOWN)) {
            return Some(zone);
        }
        let best = self.zones.best(longest);
        self.ceiling = best.map_or(0, |(_, blocks)| blocks);
        Some(best.filter(|(_, blocks)| *blocks > least)?.0)
    }

    /// Takes blocks for a chunk of inodes.
    pub(super) fn claim_for_chunk(&mut self, near: u64, reach: Reach) -> Search<BlockRange> {
        if self.available() < CHUNK_BLOCKS {
            return Search::Nothing;
        }
        let here = self.zones.of(near);
        let may_load = reach != Reach::Loaded;
        if may_load && self.zones.summary(here).is_some_and(may_have_place) {
            return Search::Load(here);
        }
        if let Some(run) = self.free.find_aligned(near, CHUNK_BLOCKS as u32) {
            return self.take(run);
        }
        let zone = if may_load { self.zones.find(here, may_have_place) } else { None };
        zone.map_or(Search::Nothing, Search::Load)
    }

    /// Takes up to `max` blocks for the trees, from the end of the longest run that is loaded:
    /// removing these from the tree of free space needs no further record, unless another
    /// transaction has claimed the blocks behind them.
    pub(super) fn claim_for_trees(&mut self, max: u64) -> Search<BlockRange> {
        let Some((start, blocks)) = self.free.longest() else {
            let zone = self.zones.find(0, |summary| longest(summary) > 0);
            return zone.map_or(Search::Nothing, Search::Load);
        };
        let taken = blocks.min(max);
        let Ok(count @ 1..) = u32::try_from(taken) else { return Search::Nothing };
        let found = self.take(BlockRange::new(start + blocks - taken, count));
        if let Search::Taken(run) = found {
            self.tree_total += run.len();
        }
        found
    }

    /// Takes free runs within `range`, each of them of a run of at least `shortest` blocks, and up
    /// to `most` blocks in all: those of the first zone of the range.
    pub(super) fn claim_within(
        &mut self,
        range: &Range<u64>,
        (shortest, most): (u64, u64),
    ) -> Search<FreeRuns> {
        let zone = self.zones.of(range.start);
        let end = range.end.min(self.zones.first(zone + 1));
        let mut found = FreeRuns { runs: Vec::new(), next: end };
        match self.zones.summary(zone) {
            // Nothing is free there.
            Some(0) => return Search::Taken(found),
            Some(_) => return Search::Load(zone),
            None => {}
        }
        // The rest is for the trees.
        let mut left = most.min(self.available());
        let (mut from, can_take) = (range.start, left > 0);
        while let Some((start, behind)) = self.free.next_within(from, end, shortest) {
            if left == 0 {
                found.next = if can_take { start } else { range.end };
                break;
            }
            let Ok(blocks) = u32::try_from((behind - start).min(left)) else { break };
            let run = BlockRange::new(start, blocks);
            if !matches!(self.take(run), Search::Taken(_)) {
                break;
            }
            found.runs.push(run);
            left -= run.len();
            from = run.end();
        }
        Search::Taken(found)
    }

    /// Takes a run that is free in the index.
    fn take(&mut self, run: BlockRange) -> Search<BlockRange> {
        if !self.free.remove(run.start, run.len()) {
            return Search::Nothing;
        }
        self.blocks = self.blocks.saturating_sub(run.len());
        self.pending.add(run);
        self.zones.touch(self.zones.of(run.start));
        Search::Taken(run)
    }

    /// Makes a run available: a claim is given back, or the transaction that freed the run is
    /// durable.
    pub(super) fn release(&mut self, run: BlockRange) {
        self.pending.remove(run);
        self.blocks += run.len();
        let mut start = run.start;
        while start < run.end() {
            let zone = self.zones.of(start);
            let zone_end = self.zones.first(zone + 1);
            let end = if self.zones.is_whole() { run.end() } else { run.end().min(zone_end) };
            match self.zones.summary(zone) {
                None => {
                    self.free.insert(start, end - start);
                    self.zones.touch(zone);
                }
                // The run may touch others, which are not known.
                Some(known) if known != UNKNOWN => {
                    let blocks = longest(known).max(end - start) as u16;
                    self.zones.set_summary(zone, blocks | HAS_PLACE);
                    self.ceiling = self.ceiling.max(blocks.into());
                }
                Some(_) => {}
            }
            start = end;
        }
    }

    /// Marks a run that is about to enter the tree of free space as pending, until it is
    /// [released](Self::release). Returns false if some of it is claimed, by the same transaction.
    pub(super) fn withhold(&mut self, run: BlockRange) -> bool {
        let is_new = !self.pending.has_of(run);
        if !is_new {
            self.pending.remove(run);
        }
        self.pending.add(run);
        is_new
    }

    /// Removes a run from the pending runs that is no longer free in the tree, or not yet.
    pub(super) fn forget(&mut self, run: BlockRange) {
        self.pending.remove(run);
    }

    /// Loads the zones from `zone` up to `end`; `runs` are free in the tree, in order, without
    /// overlaps. Returns false if some of it was free in the index already, or if the counters
    /// disagree.
    pub(super) fn load(&mut self, zone: usize, end: usize, runs: &[(u64, u64)]) -> bool {
        let (first, last) = (self.zones.first(zone), self.zones.first(end));
        let mut is_right = true;
        for &(start, blocks) in runs {
            let (start, end) = (start.max(first), (start + blocks).min(last));
            if start < end {
                let free = &mut self.free;
                self.pending.without(start, end, |from, to| {
                    is_right &= free.insert(from, to - from);
                });
            }
        }
        (zone..end).for_each(|zone| self.zones.load(zone));
        is_right && (!self.zones.is_whole() || self.free.blocks() == self.blocks)
    }

    /// Drops a zone that was not touched since the last round. Returns false at the end of a round.
    pub(super) fn drop_zone(&mut self) -> bool {
        let Some(start) = self.free.next_start(self.hand) else {
            self.hand = 0;
            return self.chunks.drop_zone();
        };
        let zone = self.zones.of(start);
        let (first, end) = (self.zones.first(zone), self.zones.first(zone + 1));
        let run_end = self.free.end_of(start);
        if start == first && run_end >= end {
            // Dropping the zone would not save an entry.
            self.hand = self.zones.first(self.zones.of(run_end)).max(end);
            return true;
        }
        self.hand = end;
        if self.zones.was_touched(zone) {
            return true;
        }
        let (mut most, mut place) = (0, 0);
        self.free.cut(first, end, |start, end| {
            most = most.max((end - start) as u16);
            place |= if has_place(start, end) { HAS_PLACE } else { 0 };
        });
        self.zones.drop(zone, most | place);
        self.ceiling = self.ceiling.max(most.into());
        true
    }

    /// Drops all zones and their summaries.
    pub(super) fn unload(&mut self) {
        self.free = FreeExtents::default();
        self.zones.reset();
        self.chunks.unload();
        self.ceiling = ZONE_BLOCKS;
    }
}

#[cfg(test)]
mod tests;
