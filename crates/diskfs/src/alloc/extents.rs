//! Free runs in memory, by start and by length.

use std::collections::{BTreeMap, BTreeSet};

use crate::format::BlockRange;

/// Number of runs on each side of `near` that are examined before the best fit is preferred to a
/// short distance.
const NEAR_RUNS: usize = 16;

/// Free runs of a group, which don't touch each other.
#[derive(Clone, Debug, Default)]
pub(super) struct FreeExtents {
    by_start: BTreeMap<u64, u64>,
    /// Pairs of length and start.
    by_length: BTreeSet<(u64, u64)>,
    blocks: u64,
}

impl FreeExtents {
    /// Returns the number of free blocks.
    pub(super) fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Returns the number of runs.
    pub(super) fn len(&self) -> usize {
        self.by_start.len()
    }

    /// Returns the start of the first run that begins at `block` or behind it.
    pub(super) fn next_start(&self, block: u64) -> Option<u64> {
        self.by_start.range(block..).next().map(|(start, _)| *start)
    }

    /// Returns the end of the run that begins at `start`.
    pub(super) fn end_of(&self, start: u64) -> u64 {
        start + self.by_start.get(&start).copied().unwrap_or(0)
    }

    /// Returns the start and end of the first free part of `from..end` that belongs to a run of at
    /// least `shortest` blocks.
    pub(super) fn next_within(&self, from: u64, end: u64, shortest: u64) -> Option<(u64, u64)> {
        let here = self.at_or_before(from).filter(|(at, blocks)| at + blocks > from);
        let behind = (from < end).then(|| self.by_start.range(from + 1..end));
        let behind = behind.into_iter().flatten().map(|(start, blocks)| (*start, *blocks));
        let mut runs = here.into_iter().chain(behind).filter(|_| from < end);
        let (start, blocks) = runs.find(|(_, blocks)| *blocks >= shortest)?;
        Some((start.max(from), (start + blocks).min(end)))
    }

    /// Removes all free blocks from `start` to `end`, and calls `piece` with the start and end of
    /// each removed part of a run.
    pub(super) fn cut(&mut self, start: u64, end: u64, mut piece: impl FnMut(u64, u64)) {
        let crossing = self.at_or_before(start).filter(|(at, blocks)| at + blocks > start);
        let mut next = crossing.map(|(at, _)| at).or_else(|| self.next_start(start));
        while let Some(at) = next.filter(|at| *at < end) {
            let Some(blocks) = self.take(at) else { return };
            let behind = at + blocks;
            if at < start {
                self.put(at, start - at);
            }
            if end < behind {
                self.put(end, behind - end);
            }
            piece(at.max(start), behind.min(end));
            next = self.next_start(behind);
        }
    }

    /// Lists all runs.
    #[cfg(test)]
    pub(super) fn runs(&self) -> impl Iterator<Item = (u64, u64)> {
        self.by_start.iter().map(|(start, blocks)| (*start, *blocks))
    }

    fn put(&mut self, start: u64, blocks: u64) {
        self.by_start.insert(start, blocks);
        self.by_length.insert((blocks, start));
        self.blocks += blocks;
    }

    fn take(&mut self, start: u64) -> Option<u64> {
        let blocks = self.by_start.remove(&start)?;
        self.by_length.remove(&(blocks, start));
        self.blocks -= blocks;
        Some(blocks)
    }

    /// Returns the run that `block` is in, or the last one before it.
    fn at_or_before(&self, block: u64) -> Option<(u64, u64)> {
        self.by_start.range(..=block).next_back().map(|(start, blocks)| (*start, *blocks))
    }

    /// Adds a run, and merges it with the runs that it touches. Returns false, and changes nothing,
    /// if some of it is free already.
    pub(super) fn insert(&mut self, start: u64, blocks: u64) -> bool {
        let end = start + blocks;
        let before = self.at_or_before(start);
        let behind = self.by_start.range(start..).next().map(|(start, blocks)| (*start, *blocks));
        if before.is_some_and(|(at, len)| at + len > start)
            || behind.is_some_and(|(at, _)| at < end)
        {
            return false;
        }
        let (mut start, mut blocks) = (start, blocks);
        if let Some((at, _)) = before.filter(|(at, len)| at + len == start) {
            blocks += self.take(at).unwrap_or(0);
            start = at;
        }
        if let Some((at, _)) = behind.filter(|(at, _)| *at == end) {
            blocks += self.take(at).unwrap_or(0);
        }
        self.put(start, blocks);
        true
    }

    /// Removes a run that lies within one free run. Returns false, and changes nothing, if it does
    /// not.
    pub(super) fn remove(&mut self, start: u64, blocks: u64) -> bool {
        let Some((at, len)) = self.at_or_before(start) else { return false };
        let (end, behind) = (start + blocks, at + len);
        if end > behind {
            return false;
        }
        self.take(at);
        if at < start {
            self.put(at, start - at);
        }
        if end < behind {
            self.put(end, behind - end);
        }
        true
    }

    /// Finds the best run for `max` blocks, or fewer but `min` at least: at `near`, which continues
    /// the extent that ends there; else one with all of `max` blocks, not far from there; else the
    /// best fit; else the longest run. `min` is not more than `max`, and not 0.
    pub(super) fn find(&self, near: u64, min: u64, max: u64) -> Option<BlockRange> {
        let at = |start: u64, blocks: u64| {
            // A group has 2 to the power of 26 blocks at most, so this is less.
            BlockRange::new(start, u32::try_from(blocks.min(max)).unwrap_or(u32::MAX))
        };
        if let Some((start, blocks)) = self.at_or_before(near) {
            let left = (start + blocks).saturating_sub(near);
            if left >= min {
                return Some(at(near, left));
            }
        }
        let fits = |(start, blocks): (&u64, &u64)| (*blocks >= max).then_some((*start, *blocks));
        let behind = self.by_start.range(near..).take(NEAR_RUNS).find_map(fits);
        let before = self.by_start.range(..near).rev().take(NEAR_RUNS).find_map(fits);
        let nearest = match (before, behind) {
            (Some(before), Some(behind)) => {
                Some(if near - before.0 < behind.0 - near { before } else { behind })
            }
            (before, behind) => before.or(behind),
        };
        let found = nearest
            .or_else(|| self.by_length.range((max, 0)..).next().map(|(len, at)| (*at, *len)))
            .or_else(|| self.longest().filter(|(_, blocks)| *blocks >= min))?;
        Some(at(found.0, found.1))
    }

    /// Finds `blocks` blocks at a multiple of that number, near `near` if possible.
    pub(super) fn find_aligned(&self, near: u64, blocks: u32) -> Option<BlockRange> {
        let unit = u64::from(blocks);
        let fits = |(start, length): (u64, u64)| {
            let first = start.next_multiple_of(unit);
            (first + unit <= start + length).then_some(BlockRange::new(first, blocks))
        };
        let of = |(start, length): (&u64, &u64)| fits((*start, *length));
        let behind = || self.by_start.range(near..).take(NEAR_RUNS).find_map(of);
        let before = || self.by_start.range(..near).rev().take(NEAR_RUNS).find_map(of);
        // The rest of the run that `near` is in.
        let here = self.at_or_before(near).and_then(|(start, length)| {
            let left = (start + length).saturating_sub(near);
            if left < unit { None } else { fits((near, left)) }
        });
        // A run of this length has an aligned part wherever it begins; shorter ones have to be
        // examined.
        let sure = || self.by_length.range((2 * unit - 1, 0)..).next();
        let rest = || self.by_length.range((unit, 0)..).map(|(length, at)| (*at, *length));
        here.or_else(behind)
            .or_else(before)
            .or_else(|| sure().and_then(|(length, at)| fits((*at, *length))))
            .or_else(|| rest().find_map(fits))
    }

    /// Returns the start and length of the longest run.
    pub(super) fn longest(&self) -> Option<(u64, u64)> {
        self.by_length.last().map(|(blocks, start)| (*start, *blocks))
    }
}

#[cfg(test)]
mod tests;
