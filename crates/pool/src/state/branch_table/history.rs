//! The merges of branches that the history tells.
//!
//! The record of a merge is a node of its own: frozen, without a name and without anything in it,
//! it hangs from the state that was merged, has the map of that, and tells the node whose contents
//! came of the merge. So the state is there for the next merge to compare with, as long as both of
//! its lines go on. A program that does not know such records takes them for nodes that nobody
//! needs, and frees them: later merges compare with an older state then, as if nothing had been
//! merged.

use std::collections::{BTreeSet, HashSet};

use super::Table;
use crate::disk::record::{FROZEN, Record};

/// The complaint about a record whose result a program has freed that does not know merges.
pub(crate) const GONE: &str = "what came of it is gone";

impl Table {
    /// Finds the records of merges when all nodes are known.
    pub(super) fn find_merges(&mut self) {
        self.merges = Default::default();
        let told: Vec<Record> = self.records().filter(|it| it.merged != 0).cloned().collect();
        for record in told {
            if self.complaint_of_merge(&record).is_none() {
                self.merges.insert(&record);
            }
            self.sort_in(record.id);
            self.sort_in(record.parent);
        }
    }

    /// Returns what is wrong with the record of a merge.
    pub(crate) fn complaint_of_merge(&self, record: &Record) -> Option<&'static str> {
        let has_own = record.own != 0 || record.log.is_some() || record.dead != 0;
        if record.flags != FROZEN || !record.name.is_empty() || has_own || self.kids(record.id) > 0
        {
            return Some("it is more than that");
        }
        let state = self.get(record.parent);
        if state.is_none_or(|it| (it.root, it.blocks) != (record.root, record.blocks)) {
            return Some("it has not the map of what was merged");
        }
        if self.get(record.merged).is_none() {
            return Some(GONE);
        }
        let is_circle = record.merged == record.id || self.is_above(record.merged, record.parent);
        is_circle.then_some("what came of it was there before")
    }

    /// Returns the records of merges whose result a node has.
    pub(crate) fn merges_into(&self, id: u64) -> Vec<Record> {
        self.nodes(self.merges.into.get(&id))
    }

    /// Returns the records of merges of a state.
    pub(crate) fn merges_of(&self, id: u64) -> Vec<Record> {
        self.nodes(self.merges.of.get(&id))
    }

    fn nodes(&self, ids: Option<&BTreeSet<u64>>) -> Vec<Record> {
        ids.into_iter().flatten().filter_map(|id| self.get(*id)).cloned().collect()
    }

    /// Has node `id` tell the merges of another one, whose contents it has taken over.
    pub(crate) fn inherit_merges(&mut self, from: u64, id: u64) {
        let merges = self.merges_into(from);
        for merge in &merges {
            self.update(merge.id, |merge| merge.merged = id);
        }
        if !merges.is_empty() {
            self.drop_told_merges(id);
        }
    }

    /// Removes the records of merges into a node that say no more than its ancestors or another
    /// such record.
    pub(crate) fn drop_told_merges(&mut self, id: u64) {
        let merges = self.merges_into(id);
        let mut told = HashSet::new();
        let states = merges.iter().filter_map(|merge| self.get(merge.parent));
        for from in states.map(|state| state.parent).chain([id]) {
            let mut at = self.get(from);
            // All that comes before a node that was met was met as well.
            while let Some(record) = at.filter(|record| told.insert(record.id)) {
                at = self.get(record.parent);
            }
        }
        for merge in merges {
            if !told.insert(merge.parent) {
                self.remove(merge.id);
            }
        }
    }

    /// Returns whether a node is another one, or the other one was forked from it.
    fn is_above(&self, above: u64, below: u64) -> bool {
        let Some(above) = self.get(above) else { return false };
        let mut at = self.get(below);
        while let Some(record) = at.filter(|record| record.depth > above.depth) {
            at = self.get(record.parent);
        }
        at.is_some_and(|record| record.id == above.id)
    }

    /// Returns the last state that two nodes have in common: one that both come from, or that was
    /// merged into what they come from, and that is in no other such state. Of several, as after
    /// merges in both directions, the one that was made last.
    pub(crate) fn base<'t>(&'t self, a: &'t Record, b: &'t Record) -> Option<&'t Record> {
        if self.merges.of.is_empty() {
            return self.common(a, b);
        }
        let (one, other) = (self.past(a.id), self.past(b.id));
        let common: HashSet<u64> = one.intersection(&other).copied().collect();
        let older: HashSet<u64> = common.iter().flat_map(|id| self.before(*id)).collect();
        let last = common.difference(&older).max();
        last.and_then(|id| self.get(*id)).or_else(|| self.common(a, b))
    }

    /// Returns a node with all states that are in it.
    pub(crate) fn past(&self, id: u64) -> HashSet<u64> {
        let (mut found, mut next) = (HashSet::from([id]), vec![id]);
        while let Some(id) = next.pop() {
            next.extend(self.before(id).into_iter().filter(|id| found.insert(*id)));
        }
        found
    }

    /// Returns the node that a node was forked from, and the states that were merged into it.
    pub(crate) fn before(&self, id: u64) -> Vec<u64> {
        let parent = self.get(id).map_or(0, |record| record.parent);
        let merged = self.merges_into(id).into_iter().map(|merge| merge.parent);
        merged.chain([parent].into_iter().filter(|id| *id != 0)).collect()
    }
}
