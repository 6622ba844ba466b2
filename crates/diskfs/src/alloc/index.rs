//! What can be had of a group, in memory.

use super::chunks::Chunks;
use super::extents::FreeExtents;
use super::pending::Pending;
use super::search::{Reach, Search};
use super::zones::{UNKNOWN, ZONE_BLOCKS, Zones};
use crate::format::Run;
use crate::format::inode::CHUNK_BLOCKS;

/// In the summary of a zone: it may have a place for a chunk of inodes. Below this, how many blocks
/// the longest run has that is known of, within the zone; 0 only if nothing is free there.
const HAS_PLACE: u16 = 0x8000;

/// What can be had of a group.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    /// Free runs of the zones that are loaded.
    pub(super) free: FreeExtents,
    pub(super) zones: Zones,
    pub(super) pending: Pending,
    /// Blocks that can be had, in all zones.
    pub(super) blocks: u64,
    /// Blocks that the group's trees have: in them, set aside for them, or no longer set aside, as
    /// a transaction says that is not durable yet.
    pub(super) tree_total: u64,
    /// The most blocks that the trees can ever need.
    pub(super) tree_max: u64,
    pub(super) chunks: Chunks,
    /// No summary of a zone that is not loaded knows of a longer run.
    ceiling: u64,
    /// Where the next zone to be dropped is looked for.
    hand: u64,
    /// How many of its entries the volume's count has.
    pub(super) counted: usize,
}

/// How many of `free` blocks can be had by files, when the trees have `tree_total` of the
/// `tree_max` that they may come to need.
pub(super) fn available(free: u64, tree_total: u64, tree_max: u64) -> u64 {
    free.saturating_sub(tree_max.saturating_sub(tree_total))
}

/// Returns the longest run that a summary knows of.
fn longest(summary: u16) -> u64 {
    if summary == UNKNOWN { ZONE_BLOCKS } else { (summary & !HAS_PLACE).into() }
}

fn may_have_place(summary: u16) -> bool {
    summary & HAS_PLACE != 0
}

/// Says whether there is a place for a chunk of inodes between two blocks.
fn has_place(start: u64, end: u64) -> bool {
    start.next_multiple_of(CHUNK_BLOCKS) + CHUNK_BLOCKS <= end
}

impl Index {
    /// Makes that of a group that has `blocks` blocks from `start` on, if it is as large as it can
    /// be. Nothing is loaded.
    pub(super) fn new(start: u64, blocks: u64) -> Self {
        let zones = Zones::new(start, blocks);
        let chunks = Chunks::new(zones.clone());
        Self { chunks, zones, ceiling: ZONE_BLOCKS, ..Self::default() }
    }

    /// How many blocks can be had by files.
    pub(super) fn available(&self) -> u64 {
        available(self.blocks, self.tree_total, self.tree_max)
    }

    /// Returns how many entries it has in memory.
    pub(super) fn entries(&self) -> usize {
        self.free.len() + self.chunks.len()
    }

    /// Takes `min` to `max` blocks, near a place if possible.
    pub(super) fn claim(&mut self, near: u64, min: u64, max: u64, reach: Reach) -> Search<Run> {
        let max = max.min(self.available());
        if min == 0 || max < min {
            return Search::Nothing;
        }
        let here = self.zones.of(near);
        if reach != Reach::Loaded && self.zones.summary(here).is_some_and(|known| known != 0) {
            return Search::Load(here);
        }
        let found = self.free.find(near, min, max);
        let blocks = found.map_or(0, Run::len);
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
    pub(super) fn claim_for_chunk(&mut self, near: u64, reach: Reach) -> Search<Run> {
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

    /// Takes up to `max` blocks for the trees. From the end of the longest run that is loaded:
    /// taking that out of the tree of free space needs no further record, unless somebody else has
    /// claimed what is behind it.
    pub(super) fn claim_for_trees(&mut self, max: u64) -> Search<Run> {
        let Some((start, blocks)) = self.free.longest() else {
            let zone = self.zones.find(0, |summary| longest(summary) > 0);
            return zone.map_or(Search::Nothing, Search::Load);
        };
        let taken = blocks.min(max);
        let Ok(count @ 1..) = u32::try_from(taken) else { return Search::Nothing };
        let found = self.take(Run::new(start + blocks - taken, count));
        if let Search::Taken(run) = found {
            self.tree_total += run.len();
        }
        found
    }

    /// Takes a run that is there.
    fn take(&mut self, run: Run) -> Search<Run> {
        if !self.free.remove(run.start, run.len()) {
            return Search::Nothing;
        }
        self.blocks = self.blocks.saturating_sub(run.len());
        self.pending.add(run);
        self.zones.touch(self.zones.of(run.start));
        Search::Taken(run)
    }

    /// Lets a run be had: a claim is given back, or its being freed is durable.
    pub(super) fn release(&mut self, run: Run) {
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
                // It may be one with others, which are not known.
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

    /// Keeps a run from being had that the tree of free space is about to get, until it is
    /// [released](Self::release). False if some of it is claimed, by the same transaction.
    pub(super) fn withhold(&mut self, run: Run) -> bool {
        let is_new = !self.pending.has_of(run);
        if !is_new {
            self.pending.remove(run);
        }
        self.pending.add(run);
        is_new
    }

    /// Takes a run for one that is not free in the tree any more, or not yet.
    pub(super) fn forget(&mut self, run: Run) {
        self.pending.remove(run);
    }

    /// Loads the zones from `zone` up to `end`, where these runs are free in the tree. They are in
    /// order, without overlaps. False if some of it was there already, or does not go with what was
    /// counted.
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

    /// Drops a zone that was not touched since the last round. False at the end of a round.
    pub(super) fn drop_zone(&mut self) -> bool {
        let Some(start) = self.free.next_start(self.hand) else {
            self.hand = 0;
            return self.chunks.drop_zone();
        };
        let zone = self.zones.of(start);
        let (first, end) = (self.zones.first(zone), self.zones.first(zone + 1));
        let run_end = self.free.end_of(start);
        if start == first && run_end >= end {
            // It would be as many entries without the zone.
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

    /// Drops all zones, as if nothing had ever been known of them.
    pub(super) fn unload(&mut self) {
        self.free = FreeExtents::default();
        self.zones.reset();
        self.chunks.unload();
        self.ceiling = ZONE_BLOCKS;
    }
}

#[cfg(test)]
mod tests;
