//! Runs that are free on disk but not available.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::format::BlockRange;

/// Runs that are free in the tree of a group, or will be, but not available, because they are
/// claimed or busy. An index is the content of the tree without these runs, so any zone of it can
/// be read again at any time.
#[derive(Clone, Debug, Default)]
pub(super) struct Pending {
    /// The lengths of the runs, by start. Runs don't overlap, and may touch each other.
    runs: BTreeMap<u64, u64>,
}

impl Pending {
    /// Adds a run, no block of which is pending.
    pub(super) fn add(&mut self, run: BlockRange) {
        let replaced = self.runs.insert(run.start, run.len());
        debug_assert!(replaced.is_none(), "block {} is pending twice", run.start);
    }

    /// Returns whether no run is pending.
    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Returns whether some of these blocks are pending.
    pub(super) fn has_of(&self, run: BlockRange) -> bool {
        let last = self.runs.range(..run.end()).next_back();
        last.is_some_and(|(at, blocks)| at + blocks > run.start)
    }

    /// Removes those of these blocks that are pending.
    pub(super) fn remove(&mut self, run: BlockRange) {
        // Mostly the run is stored as it was added.
        if let Entry::Occupied(entry) = self.runs.entry(run.start)
            && *entry.get() == run.len()
        {
            entry.remove();
            return;
        }
        let end = run.end();
        while let Some((&at, &blocks)) = self.runs.range(..end).next_back() {
            let behind = at + blocks;
            if behind <= run.start {
                return;
            }
            self.runs.remove(&at);
            if end < behind {
                self.runs.insert(end, behind - end);
            }
            if at < run.start {
                self.runs.insert(at, run.start - at);
                return;
            }
        }
    }

    /// Calls `rest` with the start and end of each part of `start..end` that is not pending, in
    /// ascending order.
    pub(super) fn without(&self, start: u64, end: u64, mut rest: impl FnMut(u64, u64)) {
        let before = self.runs.range(..start).next_back().map(|(at, blocks)| at + blocks);
        let mut from = before.map_or(start, |end| end.max(start));
        for (&at, &blocks) in self.runs.range(start..end) {
            if from < at {
                rest(from, at);
            }
            from = at + blocks;
        }
        if from < end {
            rest(from, end);
        }
    }

    /// Lists all runs.
    pub(super) fn runs(&self) -> impl Iterator<Item = (u64, u64)> {
        self.runs.iter().map(|(start, blocks)| (*start, *blocks))
    }
}

#[cfg(test)]
mod tests;
