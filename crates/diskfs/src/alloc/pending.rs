//! Runs that are free on disk and can't be had.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::format::Run;

/// Runs that are free in the tree of a group, or will be, and can't be had: they are claimed, or
/// busy. An index is what the tree has without these, so any part of it can be read again at any
/// time.
#[derive(Clone, Debug, Default)]
pub(super) struct Pending {
    /// By their starts, how many blocks they have. They don't overlap, and may touch each other.
    runs: BTreeMap<u64, u64>,
}

impl Pending {
    /// Adds a run of which nothing is there.
    pub(super) fn add(&mut self, run: Run) {
        let replaced = self.runs.insert(run.start, run.len());
        debug_assert!(replaced.is_none(), "block {} is pending twice", run.start);
    }

    /// Says whether some of these blocks are there.
    pub(super) fn has_of(&self, run: Run) -> bool {
        let last = self.runs.range(..run.end()).next_back();
        last.is_some_and(|(at, blocks)| at + blocks > run.start)
    }

    /// Takes out what is there of these blocks.
    pub(super) fn remove(&mut self, run: Run) {
        // Mostly it is there as it was added.
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

    /// Calls `rest` for the parts of `start..end` that are not pending, in ascending order, with
    /// where each begins and ends.
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
    #[cfg(test)]
    pub(super) fn runs(&self) -> impl Iterator<Item = (u64, u64)> {
        self.runs.iter().map(|(start, blocks)| (*start, *blocks))
    }
}

#[cfg(test)]
mod tests;
