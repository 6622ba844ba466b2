//! The cache lines that two calls conflict on.
//!
//! Two calls conflict on a line if both touch it and at least one of them writes it. Whether they touch the
//! same bytes is told as well: if they don't, the line is shared without need.

use std::collections::BTreeMap;

use crate::arena::LINE;
use crate::record::{Step, Trace};

/// A line that one call writes and the other touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The address of its first byte.
    pub line: u64,
    /// The bytes of it that both touch and one of them writes, a bit for each. 0: the two only happen to
    /// be neighbours.
    pub bytes: u64,
    /// An access of the first call, by its index in the trace.
    pub first: usize,
    /// An access of the second call.
    pub second: usize,
}

/// What a call does to a line.
#[derive(Default)]
struct Use {
    read: u64,
    written: u64,
    /// Accesses, by index.
    steps: Vec<usize>,
}

fn lines_of(trace: &Trace) -> BTreeMap<u64, Use> {
    let mut lines: BTreeMap<u64, Use> = BTreeMap::new();
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

/// Which bytes of a line lie between two addresses.
fn bytes_of(line: u64, start: u64, end: u64) -> u64 {
    let from = start.saturating_sub(line).min(63);
    let to = (end - line).min(LINE as u64);
    (u64::MAX >> (LINE as u64 - (to - from))) << from
}

/// The lines on which two calls conflict, in the order of their addresses.
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
        // A write of each, on common bytes if there are any; a read where there is no write.
        let best = |uses: &Use, trace: &Trace| {
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
