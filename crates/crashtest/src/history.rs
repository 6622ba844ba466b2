//! What a script does to a tree, prefix by prefix: the memory file system is the model.

use vfscale::{Errno, Vfs};

use crate::op::{Op, Space};
use crate::pattern;
use crate::times::Clock;
use crate::tree::Tree;

/// What a call did to the data of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Wrote these bytes at this offset.
    Write(u64, Vec<u8>),
    /// Made the file longer, with zeros.
    Grow(u64),
    /// Made it shorter.
    Cut(u64),
    /// Made a range of it zeros, and the file as long as this.
    Zero(std::ops::Range<u64>, u64),
}

/// A call, what came of it, and which inode's data it changed.
#[derive(Clone, Debug)]
pub struct Step {
    /// The call.
    pub op: Op,
    /// Its result.
    pub result: Result<(), Errno>,
    /// The inode and what was done to its data.
    pub change: Option<(u64, Change)>,
    /// The inode that the call made durable.
    pub synced: Option<u64>,
    /// The call said that it has failed: any part of its change of data may have been made.
    pub is_partial: bool,
}

/// A script as the model saw it.
#[derive(Debug)]
pub struct History {
    /// The calls, in order.
    pub steps: Vec<Step>,
    /// The tree before each call, and after the last.
    pub trees: Vec<Tree>,
    /// The times that files had in the run that is judged; `None`: they are not looked at.
    pub clock: Option<Clock>,
    /// The first sync that promises nothing about data.
    lost_from: Option<usize>,
}

impl History {
    /// Runs `setup`, which has to succeed, and then `ops`, and notes what becomes of the tree.
    ///
    /// # Errors
    /// If a call of `setup` fails, or the model can't be read.
    pub fn of(setup: &[Op], ops: &[Op]) -> Result<History, String> {
        let vfs = model()?;
        let task = vfs.task();
        for op in setup {
            op.run(&task).map_err(|errno| format!("setup: {op}: {errno}"))?;
        }
        let mut trees = vec![Tree::read(&task)?];
        let mut steps = Vec::new();
        for op in ops {
            let result = op.run(&task);
            let tree = Tree::read(&task)?;
            if let Some(before) = trees.last() {
                let change = result.is_ok().then(|| change(op, before, &tree)).flatten();
                let synced = result.is_ok().then(|| synced(op, before)).flatten();
                steps.push(Step { op: op.clone(), result, change, synced, is_partial: false });
            }
            trees.push(tree);
        }
        Ok(History { steps, trees, clock: None, lost_from: None })
    }

    /// Of the prefixes that may be recovered when the first `done` calls had returned, the shortest.
    #[must_use]
    pub fn floor(&self, done: usize) -> usize {
        let promised = |(at, step): (usize, &Step)| match step.synced {
            _ if step.op.syncs_all() && step.result.is_ok() => at + 1,
            Some(_) if matches!(step.op, Op::Fdatasync(_)) => 0,
            Some(ino) => self.last_change(ino, at),
            None => 0,
        };
        self.steps.iter().take(done).enumerate().map(promised).max().unwrap_or(0)
    }

    /// The length of the shortest prefix with all that had changed the names and attributes of an inode
    /// before call number `at`.
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

    /// Call number `first` was a sync that has failed: from then on syncs are for names and attributes only.
    pub fn lose_data(&mut self, first: usize) {
        self.lost_from = Some(first);
    }

    /// Data may have been given up, because they could not be written: what had not been synced before is
    /// what it was, or zeros where there was nothing.
    #[must_use]
    pub fn loses_data(&self) -> bool {
        self.lost_from.is_some()
    }

    /// Call number `failed` has returned an error: of its change of data any part may have been made.
    pub fn fail(&mut self, failed: usize) {
        if let Some(step) = self.steps.get_mut(failed) {
            step.result = Err(Errno::IO);
            step.synced = None;
            step.is_partial = step.change.is_some();
        }
    }

    /// The first call that made a part of its change to the data of a file, nobody knows which.
    #[must_use]
    pub fn first_partial(&self, ino: u64) -> Option<usize> {
        let changes =
            |step: &Step| step.change.as_ref().is_some_and(|(changed, _)| *changed == ino);
        self.steps.iter().position(|step| step.is_partial && changes(step))
    }

    /// The number of the tree in which a file has what was made durable of its data before `done` calls
    /// had returned; that in which it is new if nothing was. A sync makes durable what a call has
    /// changed in part, but not known: so this is never behind one.
    #[must_use]
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

/// A memory file system. Numbers of inodes are not used twice in it, which is what tells files apart.
fn model() -> Result<Vfs, String> {
    vfscale::memory().size(256 << 20).build().map_err(|error| error.to_string())
}

fn synced(op: &Op, tree: &Tree) -> Option<u64> {
    match op {
        Op::Fsync(path) | Op::Fdatasync(path) | Op::FsyncDir(path) => tree.find(path),
        _ => None,
    }
}

fn change(op: &Op, before: &Tree, after: &Tree) -> Option<(u64, Change)> {
    let file = |path: &str| {
        let ino = before.find(path)?;
        let old = before.nodes.get(&ino)?.data()?.len() as u64;
        let new = after.nodes.get(&ino)?.data()?.len() as u64;
        Some((ino, old, new))
    };
    Some(match op {
        Op::Write { path, offset, len, tag } => {
            let (ino, ..) = file(path)?;
            (ino, Change::Write(*offset, pattern::bytes(*tag, *offset, *len)))
        }
        Op::Append { path, len, tag } => {
            let (ino, old, _) = file(path)?;
            (ino, Change::Write(old, pattern::bytes(*tag, old, *len)))
        }
        Op::Truncate(path, size) => {
            let (ino, old, _) = file(path)?;
            (ino, if *size < old { Change::Cut(*size) } else { Change::Grow(*size) })
        }
        Op::Fallocate(path, Space::Take | Space::Keep, ..) => {
            let (ino, _, new) = file(path)?;
            (ino, Change::Grow(new))
        }
        Op::Fallocate(path, Space::Punch | Space::Zero, offset, len) => {
            let (ino, _, new) = file(path)?;
            (ino, Change::Zero(*offset..(*offset + *len).min(new), new))
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
