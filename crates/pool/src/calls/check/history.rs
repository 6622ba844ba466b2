//! The ancestors in the history of a pool, without a walk.

use std::collections::HashMap;
use std::ops::Range;

use crate::disk::record::Record;

/// The nodes of the history, numbered so that those below a node follow it.
#[derive(Debug, Default)]
pub(super) struct History {
    /// The numbers of each node and of those below it.
    numbers: HashMap<u64, Range<u64>>,
}

impl History {
    /// Numbers nodes, of which parents come before their children.
    pub(super) fn new(records: &[&Record]) -> Self {
        let mut counts: HashMap<u64, u64> = HashMap::new();
        for record in records.iter().rev() {
            let count = counts.entry(record.id).or_default();
            *count += 1;
            let count = *count;
            *counts.entry(record.parent).or_default() += count;
        }
        let (mut next, mut numbers) = (HashMap::<u64, u64>::new(), HashMap::new());
        for record in records {
            let start = next.entry(record.parent).or_default();
            let range = *start..*start + counts[&record.id];
            *start = range.end;
            next.insert(record.id, range.start + 1);
            numbers.insert(record.id, range);
        }
        Self { numbers }
    }

    /// Returns whether node `a` is node `b`, or an ancestor of it.
    pub(super) fn is_above(&self, a: u64, b: u64) -> bool {
        let pair = (self.numbers.get(&a), self.numbers.get(&b));
        matches!(pair, (Some(above), Some(below)) if above.contains(&below.start))
    }
}

#[cfg(test)]
mod tests;
