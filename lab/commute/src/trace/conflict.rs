//! The cache lines that two calls conflict on.
//!
//! Two calls conflict on a line if both touch it and at least one of them writes it. If they touch
//! different bytes of it, the line is falsely shared; a conflict reports this too.

use std::collections::BTreeMap;

use crate::trace::arena::LINE;
use crate::trace::record::{Step, Trace};

/// A line that one call writes and the other one touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Address of the first byte.
    pub line: u64,
    /// Bitmap of the bytes that both calls touch and at least one of them writes. 0 means false
    /// sharing.
    pub bytes: u64,
    /// Index of an access of the first call in its trace.
    pub first: usize,
    /// Index of an access of the second call in its trace.
    pub second: usize,
}

/// The accesses of a call to one line.
#[derive(Default)]
struct LineUse {
    read: u64,
    written: u64,
    /// Indexes of the accesses.
    steps: Vec<usize>,
}

fn lines_of(trace: &Trace) -> BTreeMap<u64, LineUse> {
    let mut lines: BTreeMap<u64, LineUse> = BTreeMap::new();
    for (index, step) in trace.steps.iter().enumerate() {
        let Step::Access(access) = step else { continue };
        let end = access.address + access.size;
        let mut line = access.address & !(LINE as u64 - 1);
        while line < end {
            let bytes = bytes_of(line, access.address, end);
            let lines = lines.entry(line).or_default();
            lines.read |= if access.read { bytes } else { 0 };
            lines.written |= if access.write { bytes } else { 0 };
            lines.steps.push(index);
            line += LINE as u64;
        }
    }
    lines
}

/// Returns the bitmap of the bytes of a line that are between two addresses.
fn bytes_of(line: u64, start: u64, end: u64) -> u64 {
    let from = start.saturating_sub(line).min(63);
    let to = (end - line).min(LINE as u64);
    (u64::MAX >> (LINE as u64 - (to - from))) << from
}

/// Returns the lines on which two calls conflict, in the order of their addresses.
#[must_use]
pub fn conflicts(first: &Trace, second: &Trace) -> Vec<Conflict> {
    let others = lines_of(second);
    let mut found = Vec::new();
    for (line, a) in lines_of(first) {
        let Some(b) = others.get(&line) else { continue };
        if a.written == 0 && b.written == 0 {
            continue;
        }
        let bytes = a.written & (b.read | b.written) | b.written & a.read;
        // Prefers an access to common bytes, then a write, then the earliest access.
        let best = |uses: &LineUse, trace: &Trace| {
            let score = |index: &&usize| match trace.steps[**index] {
                Step::Access(access) => {
                    let mine = bytes_of(line, access.address, access.address + access.size);
                    (mine & bytes != 0, access.write, std::cmp::Reverse(**index))
                }
                _ => (false, false, std::cmp::Reverse(**index)),
            };
            uses.steps.iter().max_by_key(score).copied().unwrap_or(0)
        };
        found.push(Conflict { line, bytes, first: best(&a, first), second: best(b, second) });
    }
    found
}

#[cfg(test)]
mod tests;
