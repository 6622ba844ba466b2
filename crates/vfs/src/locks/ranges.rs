//! The record locks of one owner on one file.
//!
//! # Invariants
//!
//! Records are disjoint, keyed by their first byte, and two that touch differ in kind. So a state
//! of locks has exactly one representation, and reports to others never depend on its history.

use std::collections::BTreeMap;

use super::{LockKind, LockRange};

#[derive(Default)]
pub(super) struct Ranges {
    /// First byte to last byte and kind.
    records: BTreeMap<u64, (u64, LockKind)>,
}

impl Ranges {
    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (LockRange, LockKind)> {
        self.records.iter().map(|(&start, &(end, kind))| (LockRange { start, end }, kind))
    }

    /// Returns the first record that conflicts with a lock of `range` of kind `kind` by another
    /// owner.
    pub(super) fn first_conflict(
        &self,
        range: LockRange,
        kind: LockKind,
    ) -> Option<(LockRange, LockKind)> {
        let before = self.records.range(..range.start).next_back();
        let before = before.filter(|&(_, &(end, _))| end >= range.start);
        let within = self.records.range(range.start..=range.end);
        before
            .into_iter()
            .chain(within)
            .find(|&(_, &(_, held))| held.conflicts(kind))
            .map(|(&start, &(end, held))| (LockRange { start, end }, held))
    }

    /// Returns an upper bound of the records that [`set`](Self::set) adds.
    pub(super) fn growth_max(&self, range: LockRange, kind: Option<LockKind>) -> usize {
        let before = self.records.range(..range.start).next_back();
        let split = before.is_some_and(|(_, &(end, held))| end > range.end && Some(held) != kind);
        usize::from(split) + usize::from(kind.is_some())
    }

    /// Locks `range` as `kind`, or unlocks it, and replaces all previous records there.
    pub(super) fn set(&mut self, range: LockRange, kind: Option<LockKind>) {
        let LockRange { mut start, mut end } = range;
        let before = self.records.range(..start).next_back().map(|(&s, &record)| (s, record));
        if let Some((before_start, (before_end, before_kind))) = before {
            if Some(before_kind) == kind && before_end + 1 >= start {
                start = before_start;
                end = end.max(before_end);
            } else if before_end >= start {
                self.records.insert(before_start, (start - 1, before_kind));
                if before_end > end {
                    self.records.insert(end + 1, (before_end, before_kind));
                }
            }
        }
        while let Some((&at, &(at_end, at_kind))) = self.records.range(start..=end).next() {
            self.records.remove(&at);
            if Some(at_kind) == kind {
                end = end.max(at_end);
            } else if at_end > end {
                self.records.insert(end + 1, (at_end, at_kind));
            }
        }
        let Some(kind) = kind else { return };
        // Offsets end at `i64::MAX`, so the sum does not overflow.
        if let Some(&(after_end, after_kind)) = self.records.get(&(end + 1))
            && after_kind == kind
        {
            self.records.remove(&(end + 1));
            end = after_end;
        }
        self.records.insert(start, (end, kind));
    }
}
