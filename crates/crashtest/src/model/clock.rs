//! The times that the files of a volume may have after a crash.
//!
//! The model makes its calls at other times than the volume, so its times can't be compared.
//! Instead, the times of the volume's files after each call are recorded while the script runs
//! ([`Clock`]).
//!
//! # Guarantees under test
//!
//! Each time of a file was set by some call, or is an intermediate one of a call that changes data,
//! which may take long. It was not replaced before
//!
//! * the last `sync`, or `fsync` of this file, that has returned (`fdatasync` does not cover
//!   times);
//! * the last recovered call that changed its names or attributes, or set its times. Calls that
//!   have only made entries of a directory come and go again need not have changed its times.
//!
//! Times that a write or a read updates implicitly become durable later, in any order.

use std::collections::{BTreeMap, BTreeSet};

use vfscale::Task;

use crate::model::history::History;
use crate::model::tree::{Times, Tree};

/// The times of each inode of the model after each call.
#[derive(Clone, Debug)]
pub struct Clock {
    /// By inode, its times after the calls that may have changed them.
    noted: BTreeMap<u64, Vec<(usize, Times)>>,
    /// Whether all times are judged. Otherwise only the modification time is.
    keeps_all: bool,
}

impl Clock {
    /// Stores the times of all files before the first call.
    ///
    /// # Errors
    /// Returns the error of a call that failed.
    pub fn start(history: &History, task: &Task, keeps_all: bool) -> Result<Self, String> {
        let mut clock = Self { noted: BTreeMap::new(), keeps_all };
        let tree = &history.trees[0];
        clock.note_all(tree, 0, task, tree.nodes.keys().copied())?;
        Ok(clock)
    }

    /// Stores the times of the files that call number `call` used, after it has returned. Other
    /// files are not read, to avoid caching them in memory, unless a path has dots or links.
    ///
    /// # Errors
    /// Returns the error of a call that failed.
    pub fn note(&mut self, history: &History, call: usize, task: &Task) -> Result<(), String> {
        let trees = [&history.trees[call], &history.trees[call + 1]];
        let after = trees[1];
        let paths = history.steps[call].op.paths();
        if !paths.iter().all(|path| trees.iter().all(|tree| tree.is_plain(path))) {
            return self.note_all(after, call + 1, task, after.nodes.keys().copied());
        }
        let mut inodes = BTreeSet::new();
        for path in paths {
            let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
            let places = [path, parent].into_iter().flat_map(|path| trees.map(|t| t.find(path)));
            inodes.extend(places.flatten());
        }
        let there = inodes.into_iter().filter(|ino| after.nodes.contains_key(ino));
        self.note_all(after, call + 1, task, there)
    }

    fn note_all(
        &mut self,
        tree: &Tree,
        calls: usize,
        task: &Task,
        inodes: impl Iterator<Item = u64>,
    ) -> Result<(), String> {
        for ino in inodes {
            let path = match tree.path_of(ino) {
                root if root.is_empty() => "/".to_owned(),
                path => path,
            };
            let stat = task.symlink_metadata(&path).map_err(|error| error.to_string())?;
            self.noted.entry(ino).or_default().push((calls, Times::of(&stat)));
        }
        Ok(())
    }

    /// Checks that inode `ino` of the model may have these times. `done` calls had returned, only
    /// the first `ceiling` had begun, and the names and attributes are those after `prefix` of
    /// them.
    ///
    /// # Errors
    /// Names the time that is impossible.
    pub fn judge(
        &self,
        history: &History,
        (done, ceiling, prefix): (usize, usize, usize),
        ino: u64,
        found: &Times,
    ) -> Result<(), String> {
        let floor = floor(history, done, prefix, ino);
        let noted = self.noted.get(&ino).map(Vec::as_slice).unwrap_or_default();
        let first = noted.partition_point(|(calls, _)| *calls <= floor).saturating_sub(1);
        let last = noted.partition_point(|(calls, _)| *calls <= ceiling);
        let Some(possible) = noted.get(first..last).filter(|some| !some.is_empty()) else {
            return Err("its times were never seen".into());
        };
        let kept = if self.keeps_all { 4 } else { 1 };
        for (which, (name, time)) in found.all().into_iter().enumerate().take(kept) {
            let of = |noted: &(usize, Times)| noted.1.all()[which].1;
            let is_one = possible.iter().any(|noted| of(noted) == time);
            // A call that changes data updates the times more than once.
            let is_passed = possible.windows(2).any(|pair| {
                let call = &history.steps[pair[1].0 - 1].op;
                call.is_of_data() && (of(&pair[0])..=of(&pair[1])).contains(&time)
            });
            if !is_one && !is_passed {
                let times: Vec<_> = possible.iter().map(|noted| (noted.0, of(noted))).collect();
                return Err(format!(
                    "{name} {time}, instead of one of (after calls, time) {times:?}"
                ));
            }
        }
        Ok(())
    }
}

/// Returns the number of calls after which the times of an inode are the oldest allowed ones.
fn floor(history: &History, done: usize, prefix: usize, ino: u64) -> usize {
    let steps = history.steps.iter().enumerate();
    let synced = steps.clone().take(done).filter(|(_, step)| {
        let is_whole = step.op.synced().is_some_and(|(_, data_only)| !data_only);
        let is_own = step.synced == Some(ino) && is_whole;
        is_own || step.op.syncs_all() && step.result.is_ok()
    });
    let set = steps.take(prefix).filter(|(at, step)| {
        let set = step.op.timed().and_then(|path| history.trees[*at].find(path));
        set == Some(ino) && step.result.is_ok()
    });
    let last = synced.chain(set).map(|(at, _)| at + 1).max().unwrap_or(0);
    last.max(history.last_kept_change(ino, prefix))
}

#[cfg(test)]
mod tests;
