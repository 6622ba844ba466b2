//! The records of merges, by what was merged and by what came of it.

use std::collections::{BTreeSet, HashMap};

use crate::disk::record::Record;

/// The records of merges, by their ids.
#[derive(Debug, Default)]
pub(super) struct Merges {
    /// By the node with the result.
    pub(super) into: HashMap<u64, BTreeSet<u64>>,
    /// By the state that was merged.
    pub(super) of: HashMap<u64, BTreeSet<u64>>,
}

impl Merges {
    pub(super) fn insert(&mut self, record: &Record) {
        self.into.entry(record.merged).or_default().insert(record.id);
        self.of.entry(record.parent).or_default().insert(record.id);
    }

    pub(super) fn remove(&mut self, record: &Record) {
        for (map, key) in [(&mut self.into, record.merged), (&mut self.of, record.parent)] {
            if let Some(ids) = map.get_mut(&key) {
                ids.remove(&record.id);
                if ids.is_empty() {
                    map.remove(&key);
                }
            }
        }
    }

    /// Returns whether a node is the record of a merge.
    pub(super) fn has(&self, record: &Record) -> bool {
        self.of.get(&record.parent).is_some_and(|ids| ids.contains(&record.id))
    }

    /// Returns how often a state was merged.
    pub(super) fn count_of(&self, id: u64) -> u64 {
        self.of.get(&id).map_or(0, |ids| ids.len() as u64)
    }
}
