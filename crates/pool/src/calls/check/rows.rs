//! The blocks of a former volume that are still at the places with their own numbers: as ranges,
//! since they may be many.

use std::collections::BTreeMap;
use std::ops::Range;

/// The user of a range of places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct User {
    pub(super) birth: u32,
    /// The node of the history that was first seen to use it.
    pub(super) node: u64,
}

/// Ranges of places in use, each by its start.
#[derive(Debug, Default)]
pub(super) struct Rows {
    ranges: BTreeMap<u64, (u64, User)>,
    count: u64,
}

impl Rows {
    /// Enters a range. Returns how many places of it are new, and the users of the others, each
    /// with the first of its places.
    pub(super) fn visit(&mut self, range: Range<u64>, user: User) -> (u64, Vec<(u64, User)>) {
        let (mut at, mut new, mut others) = (range.start, 0, Vec::new());
        while at < range.end {
            match self.covering(at) {
                Some((end, other)) => {
                    others.push((at, other));
                    at = end;
                }
                None => {
                    let next =
                        self.ranges.range(at..).next().map_or(range.end, |(start, _)| *start);
                    let end = next.min(range.end);
                    self.insert(at..end, user);
                    new += end - at;
                    at = end;
                }
            }
        }
        self.count += new;
        (new, others)
    }

    /// Returns the end and the user of the range that a place is in.
    fn covering(&self, place: u64) -> Option<(u64, User)> {
        let (_, found) = self.ranges.range(..=place).next_back()?;
        (found.0 > place).then_some(*found)
    }

    fn insert(&mut self, range: Range<u64>, user: User) {
        let before = self.ranges.range_mut(..range.start).next_back();
        match before {
            Some((_, (end, of))) if *end == range.start && *of == user => *end = range.end,
            _ => _ = self.ranges.insert(range.start, (range.end, user)),
        }
    }

    /// Returns the user of a place.
    pub(super) fn user(&self, place: u64) -> Option<User> {
        self.covering(place).map(|(_, user)| user)
    }

    /// Returns the parts of a range that are in use.
    pub(super) fn runs(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let before = self.ranges.range(..range.start).next_back();
        let inside = self.ranges.range(range.start..range.end.max(range.start));
        before.into_iter().chain(inside).filter_map(move |(start, (end, _))| {
            let run = (*start).max(range.start)..(*end).min(range.end);
            (!run.is_empty()).then_some(run)
        })
    }

    /// Returns the first place of a range that is not in use.
    pub(super) fn gap(&self, range: Range<u64>) -> Option<u64> {
        let mut at = range.start;
        while at < range.end {
            match self.covering(at) {
                Some((end, _)) => at = end,
                None => return Some(at),
            }
        }
        None
    }

    /// Returns how many places are in use.
    pub(super) fn count(&self) -> u64 {
        self.count
    }
}

#[cfg(test)]
mod tests;
