//! The history of a branch, as its users see it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::SystemTime;

use crate::calls::pool::{is_of_checkpoint, time_of};
use crate::disk::record::{KEPT, PASSING, Record};
use crate::state::branch_table::Table;
use crate::{Error, Pool};

/// A state in the history of a branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// The number of its node of the history.
    pub node: u64,
    /// The event by which it is there.
    pub kind: LogKind,
    /// When that was, if it is known; `None` for a branch that goes on.
    pub time: Option<SystemTime>,
    /// The text of a checkpoint, or the branch that was adopted; empty for none.
    pub text: String,
    /// The node before it in the branch.
    pub parent: Option<u64>,
    /// The states that were merged into it.
    pub merges: Vec<LogMerge>,
    /// The branches that have this state or were forked from it, but for those of the log.
    pub branches: Vec<String>,
}

/// A state that was merged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogMerge {
    /// The number of its node.
    pub node: u64,
    /// The branch whose state it was.
    pub branch: String,
}

/// An event by which a state is in the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogKind {
    /// The branch now.
    Now,
    /// A branch was forked from it.
    Fork,
    /// A checkpoint was made.
    Checkpoint,
    /// Another branch was merged into it.
    Merge,
    /// The state was merged into another branch.
    Merged,
    /// The branch adopted another one.
    Adoption,
}

impl LogKind {
    /// All kinds.
    pub const ALL: [Self; 6] =
        [Self::Now, Self::Fork, Self::Checkpoint, Self::Merge, Self::Merged, Self::Adoption];

    /// Returns the kind in a word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Now => "now",
            Self::Fork => "fork",
            Self::Checkpoint => "checkpoint",
            Self::Merge => "merge",
            Self::Merged => "merged",
            Self::Adoption => "adoption",
        }
    }
}

impl Pool {
    /// Tells the history of a branch: the states that are there, with those of branches that were
    /// merged into it, the last one first. A state is there as long as two branches come from it,
    /// or a rollback or a merge may need it.
    ///
    /// Waits for a commit that is under way. Takes time for each node of the history.
    ///
    /// # Errors
    /// [`Error::NoBranch`].
    pub fn log(&self, branch: &str) -> Result<Vec<LogEntry>, Error> {
        let state = self.shared.state.lock();
        let table = &state.table;
        let tip = table.find(branch).ok_or_else(|| Error::NoBranch(branch.into()))?.id;
        let past = table.past(tip);
        let mut named: HashMap<u64, Vec<&Record>> = HashMap::new();
        for record in table.records().filter(|record| !record.name.is_empty()) {
            if !past.contains(&record.id) || record.is_frozen() && record.id != tip {
                let at = if past.contains(&record.id) { record.id } else { record.parent };
                named.entry(at).or_default().push(record);
            }
        }
        let log = Log { table, tip, named };
        let shown = last_first(table, &past).into_iter().filter(|record| log.is_shown(record));
        Ok(shown.map(|record| log.entry(record)).collect())
    }
}

/// Returns nodes with those that come from a node before it; of two, the one that was made last.
fn last_first<'t>(table: &'t Table, past: &HashSet<u64>) -> Vec<&'t Record> {
    let mut after: BTreeMap<u64, u64> = past.iter().map(|id| (*id, 0)).collect();
    for before in past.iter().flat_map(|id| table.before(*id)) {
        *after.entry(before).or_default() += 1;
    }
    let mut ready: BTreeSet<u64> =
        after.iter().filter(|(_, count)| **count == 0).map(|(id, _)| *id).collect();
    let mut all = Vec::new();
    while let Some(id) = ready.pop_last() {
        all.extend(table.get(id));
        for before in table.before(id) {
            if let Some(count) = after.get_mut(&before) {
                *count -= 1;
                if *count == 0 {
                    ready.insert(before);
                }
            }
        }
    }
    all
}

struct Log<'t> {
    table: &'t Table,
    tip: u64,
    /// The branches by the nodes at which they are told.
    named: HashMap<u64, Vec<&'t Record>>,
}

impl Log<'_> {
    /// Returns whether a node is more than a state that somebody has looked at.
    fn is_shown(&self, record: &Record) -> bool {
        record.id == self.tip
            || !record.has(PASSING)
            || self.named.contains_key(&record.id)
            || !self.table.merges_of(record.id).is_empty()
            || !self.table.merges_into(record.id).is_empty()
    }

    /// Returns the next node that is shown, from a node back.
    fn shown(&self, id: u64) -> Option<u64> {
        let mut at = self.table.get(id)?;
        while !self.is_shown(at) {
            at = self.table.get(at.parent)?;
        }
        Some(at.id)
    }

    fn entry(&self, record: &Record) -> LogEntry {
        let named = self.named.get(&record.id).map_or(&[][..], Vec::as_slice);
        let is_checkpoint = |it: &&&Record| it.is_frozen() && is_of_checkpoint(&it.name);
        let checkpoint = named.iter().filter(is_checkpoint).max_by_key(|it| it.id);
        let merges = self.table.merges_into(record.id).into_iter();
        let merges: Vec<_> =
            merges.map(|it| LogMerge { node: it.parent, branch: it.text }).collect();
        let kind = if record.id == self.tip {
            LogKind::Now
        } else if !merges.is_empty() {
            LogKind::Merge
        } else if record.has(KEPT) {
            LogKind::Adoption
        } else if checkpoint.is_some() {
            LogKind::Checkpoint
        } else if record.has(PASSING) {
            LogKind::Merged
        } else {
            LogKind::Fork
        };
        let mut branches: Vec<String> = named.iter().map(|it| it.name.clone()).collect();
        branches.sort();
        LogEntry {
            node: record.id,
            kind,
            time: time_of(record).filter(|_| record.is_frozen()),
            text: checkpoint.map_or(&record.text, |it| &it.text).clone(),
            parent: self.shown(record.parent),
            merges,
            branches,
        }
    }
}

#[cfg(test)]
mod tests;
