//! Merging texts by lines.

use std::ops::Range;

use crate::diff::text::{Hunk, hunks, lines};

/// One of two changed versions.
struct Version<'t> {
    lines: Vec<&'t [u8]>,
    hunks: Vec<Hunk>,
}

impl<'t> Version<'t> {
    fn new(base: &'t [u8], text: &'t [u8]) -> Self {
        Self { lines: lines(text), hunks: hunks(base, text) }
    }

    /// Returns the lines that this version has for a range of the base, which begins and ends
    /// outside of all changes, or with one of `hunks`.
    fn part(&self, base: &Range<usize>, hunks: &[Hunk]) -> &[&'t [u8]] {
        let (Some(first), Some(last)) = (hunks.first(), hunks.last()) else { return &[] };
        let start = first.1.start - (first.0.start - base.start);
        let end = last.1.end + (base.end - last.0.end);
        &self.lines[start..end]
    }
}

/// Merges two versions of a text. Returns `None` if both have changed the same lines, or lines next
/// to each other, in different ways.
pub(super) fn merge(base: &[u8], one: &[u8], other: &[u8]) -> Option<Vec<u8>> {
    let lines = lines(base);
    let (one, other) = (Version::new(base, one), Version::new(base, other));
    let (mut left, mut right) = (&one.hunks[..], &other.hunks[..]);
    let (mut merged, mut done) = (Vec::new(), 0);
    while let Some(start) = first(left, right) {
        // All changes that touch each other are one region.
        let (mut end, mut taken) = (start, (0, 0));
        loop {
            let before = taken;
            taken.0 += touching(&left[taken.0..], &mut end);
            taken.1 += touching(&right[taken.1..], &mut end);
            if taken == before {
                break;
            }
        }
        let region = start..end;
        let (ours, theirs) = (&left[..taken.0], &right[..taken.1]);
        let part = match (ours, theirs) {
            (ours, []) => one.part(&region, ours),
            ([], theirs) => other.part(&region, theirs),
            (ours, theirs) => {
                let part = one.part(&region, ours);
                if part != other.part(&region, theirs) {
                    return None;
                }
                part
            }
        };
        merged.extend(lines[done..start].iter().chain(part).copied().flatten());
        (left, right, done) = (&left[taken.0..], &right[taken.1..], end);
    }
    merged.extend(lines[done..].iter().copied().flatten());
    Some(merged)
}

/// Returns the first line of the base that one of two lists of changes begins at.
fn first(left: &[Hunk], right: &[Hunk]) -> Option<usize> {
    [left, right].into_iter().filter_map(|hunks| hunks.first()).map(|hunk| hunk.0.start).min()
}

/// Returns how many changes begin at or before `end`, which moves to their end.
fn touching(hunks: &[Hunk], end: &mut usize) -> usize {
    let mut count = 0;
    while let Some((base, _)) = hunks.get(count).filter(|(base, _)| base.start <= *end) {
        *end = base.end.max(*end);
        count += 1;
    }
    count
}

#[cfg(test)]
mod tests;
