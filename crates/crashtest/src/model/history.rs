//! The effects of a script, prefix by prefix, as the memory file system (the model) shows them.

use vfscale::{Errno, Vfs};
use vfscale_testkit::calls::compound::Compound;

use crate::model::tree::{Node, Tree};

/// A change of a file's data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A write of these bytes at this offset, or an extension by them.
    Write(usize, Vec<u8>),
    /// A truncation to this size.
    Cut(usize),
}

impl Change {
    /// Returns the change from one content to another, if they differ. It begins and ends with
    /// bytes that differ.
    fn between(old: &[u8], new: &[u8]) -> Option<Change> {
        if new.len() < old.len() {
            return Some(Change::Cut(new.len()));
        }
        let differs = |(a, b): (&u8, &u8)| a != b;
        let end = if new.len() > old.len() {
            new.len()
        } else {
            old.iter().zip(new).rposition(differs)? + 1
        };
        let start = old.iter().zip(new).position(differs).unwrap_or(old.len());
        Some(Change::Write(start, new[start..end].into()))
    }

    /// Returns the changes that make this one, if writes end at these offsets.
    pub fn parts(&self, seams: &[u64]) -> Vec<Change> {
        let Change::Write(start, bytes) = self else { return vec![self.clone()] };
        let end = start + bytes.len();
        let inner = seams.iter().map(|at| *at as usize).filter(|at| (start + 1..end).contains(at));
        let ends: Vec<usize> = inner.chain([end]).collect();
        let starts = std::iter::once(*start).chain(ends.iter().copied());
        let part = |(from, to): (usize, &usize)| {
            Change::Write(from, bytes[from - start..to - start].into())
        };
        starts.zip(&ends).map(part).collect()
    }
}

/// A call, its result, and its effect on data.
#[derive(Clone, Debug)]
pub struct Step {
    /// The call.
    pub op: Compound,
    /// Its result.
    pub result: Result<(), Errno>,
    /// The inode and the change of its data.
    pub change: Option<(u64, Change)>,
    /// The inode that the call made durable.
    pub synced: Option<u64>,
    /// Whether the call failed, so any part of its change of data may have been made.
    pub is_partial: bool,
}

/// A script as executed on the model.
#[derive(Debug)]
pub struct History {
    /// The calls, in order.
    pub steps: Vec<Step>,
    /// The tree before each call, and after the last.
    pub trees: Vec<Tree>,
    /// Number of the first sync after which data may be lost.
    lost_from: Option<usize>,
}

impl History {
    /// Runs `setup`, which must succeed, and then `ops`, and records the trees.
    ///
    /// # Errors
    /// If a call of `setup` fails, or the model can't be read.
    pub fn of(setup: &[Compound], ops: &[Compound]) -> Result<History, String> {
        let vfs = model()?;
        let task = vfs.task();
        for op in setup {
            op.run(&task).map_err(|errno| format!("setup: {op}: {errno}"))?;
        }
        let mut trees = vec![Tree::read(&task)?];
        let mut steps = Vec::new();
        for op in ops {
            let result = op.run(&task);
            let mut tree = Tree::read(&task)?;
            if let Some(before) = trees.last() {
                tree.share_data(before);
                let change = change(before, &tree);
                let synced = op.synced().filter(|_| result.is_ok());
                let synced = synced.and_then(|(path, _)| task.metadata(path).ok());
                let synced = synced.map(|found| found.ino);
                steps.push(Step { op: op.clone(), result, change, synced, is_partial: false });
            }
            trees.push(tree);
        }
        Ok(History { steps, trees, lost_from: None })
    }

    /// Returns the shortest prefix that may be recovered after the first `done` calls returned.
    pub fn floor(&self, done: usize) -> usize {
        let promised = |(at, step): (usize, &Step)| match step.synced {
            _ if step.op.syncs_all() && step.result.is_ok() => at + 1,
            Some(_) if step.op.synced().is_some_and(|(_, data_only)| data_only) => 0,
            Some(ino) => self.last_change(ino, at),
            None => 0,
        };
        self.steps.iter().take(done).enumerate().map(promised).max().unwrap_or(0)
    }

    /// Returns the length of the shortest prefix with all changes of an inode's names and
    /// attributes before call number `at`.
    pub(crate) fn last_change(&self, ino: u64, at: usize) -> usize {
        let changes = |number: &usize| {
            let node = |tree: usize| self.trees[tree].nodes.get(&ino);
            match (node(number - 1), node(*number)) {
                (Some(before), Some(after)) => !before.same_shape(after),
                (before, after) => before.is_some() != after.is_some(),
            }
        };
        (1..=at).rev().find(changes).unwrap_or(0)
    }

    /// Returns the length of the shortest prefix whose times an inode may have after `prefix`
    /// calls: that of its [last change](Self::last_change), or for a directory an earlier one
    /// after which it was the same, if only its entries have changed in between. Those that came
    /// and went may leave nothing.
    pub(crate) fn last_kept_change(&self, ino: u64, prefix: usize) -> usize {
        let node = |tree: usize| self.trees[tree].nodes.get(&ino);
        let last = self.last_change(ino, prefix);
        let (Some(end), true) = (node(prefix), last > 0) else { return last };
        let is = |number: usize, like: fn(&Node, &Node) -> bool| {
            node(number).is_some_and(|node| like(node, end))
        };
        let since = (0..last).rev().take_while(|number| is(*number, Node::same_but_entries));
        since
            .filter(|number| is(*number, Node::same_shape))
            .last()
            .map_or(last, |first| self.last_change(ino, first))
    }

    /// Declares that call number `first` was a failed sync: later syncs guarantee only names and
    /// attributes.
    pub fn lose_data(&mut self, first: usize) {
        self.lost_from = Some(first);
    }

    /// Returns whether data may be lost because they could not be written. Data not synced before
    /// the failure retain an older content, or are zeros where the file had no content.
    pub fn loses_data(&self) -> bool {
        self.lost_from.is_some()
    }

    /// Declares that call number `failed` has returned an error, so any part of its change of data
    /// may have been made.
    pub fn fail(&mut self, failed: usize) {
        if let Some(step) = self.steps.get_mut(failed) {
            step.result = Err(Errno::IO);
            step.synced = None;
            step.is_partial = step.change.is_some();
        }
    }

    /// Returns the first call that changed a file's data in part.
    pub fn first_partial(&self, ino: u64) -> Option<usize> {
        let changes =
            |step: &Step| step.change.as_ref().is_some_and(|(changed, _)| *changed == ino);
        self.steps.iter().position(|step| step.is_partial && changes(step))
    }

    /// Returns the number of the tree with a file's data as last made durable before `done` calls
    /// had returned, or else of the first tree with the file. A partial change is unknown even if
    /// it was synced, so the tree is never after one.
    pub fn durable_data(&self, ino: u64, done: usize) -> usize {
        let covers =
            |step: &Step| step.synced == Some(ino) || step.op.syncs_all() && step.result.is_ok();
        let known = self.first_partial(ino).into_iter().chain(self.lost_from);
        let done = known.fold(done, usize::min);
        let synced = self.steps.iter().take(done).rposition(covers).unwrap_or(0);
        let born = self.trees.iter().position(|tree| tree.nodes.contains_key(&ino)).unwrap_or(0);
        synced.max(born)
    }
}

/// Makes the model. It never reuses inode numbers, so they identify files.
fn model() -> Result<Vfs, String> {
    vfscale::memory().size(256 << 20).build().map_err(|error| error.to_string())
}

/// Returns the file whose data a call has changed, and the change.
fn change(before: &Tree, after: &Tree) -> Option<(u64, Change)> {
    before.nodes.iter().find_map(|(ino, old)| {
        let (old, new) = (old.data()?, after.nodes.get(ino)?.data()?);
        // Equal data are shared.
        let is_same = std::ptr::eq(old, new);
        Some((*ino, Change::between(old, new).filter(|_| !is_same)?))
    })
}

#[cfg(test)]
mod tests;
