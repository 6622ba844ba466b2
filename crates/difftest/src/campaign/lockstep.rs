//! Runs two worlds in lockstep: makes every call on both and compares every result.

use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::hash::Hash;
use std::sync::Arc;

use vfscale_testkit::calls::Calls;
use vfscale_testkit::calls::op::{CWD, Op, Seek, Step};
use vfscale_testkit::calls::outcome::{Outcome, Value};
use vfscale_testkit::shrink::Finding;
use vfscale_testkit::world::tree::{self, Moved, Watched};
use vfscale_testkit::world::{Finished, INSPECTOR, World};

use crate::campaign::known::known;

/// Number of calls between two comparisons of the whole tree.
const SNAPSHOT_EVERY: usize = 60;

/// The first difference of a sequence.
#[derive(Clone)]
pub struct Difference {
    /// Number of the step that showed it.
    pub at: usize,
    /// Key for grouping: the call and the kinds of the two results.
    pub signature: String,
    /// Description of the expected and the actual result.
    pub text: String,
    /// Earlier steps, with the results of both sides.
    pub log: Vec<(Step, Outcome)>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (step, outcome) in &self.log {
            let mut line = format!("    {step} = {outcome:?}");
            if line.len() > 400 {
                let end = (0..=400).rev().find(|&i| line.is_char_boundary(i)).unwrap_or(0);
                line.truncate(end);
                line.push_str("...");
            }
            writeln!(f, "{line}")?;
        }
        write!(f, "  {}", self.text.replace('\n', "\n  "))
    }
}

impl Finding for Box<Difference> {
    fn signature(&self) -> &str {
        &self.signature
    }

    fn at(&self) -> usize {
        self.at
    }

    fn log(&self) -> &[(Step, Outcome)] {
        &self.log
    }
}

/// Coverage of a sequence.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Number of calls made on both sides.
    pub calls: u64,
    /// Number of successful calls among them.
    pub succeeded: u64,
    /// Number of compared trees.
    pub snapshots: u64,
    /// 1 if the subject was seen to release all space that it used, otherwise 0.
    pub emptied: u64,
}

/// Result of a sequence without differences: its coverage and every result.
pub type Played = (Tally, Vec<(Step, Outcome)>);

/// Plays `steps` on both sides, up to the first difference.
///
/// # Errors
/// Returns the difference.
pub fn play<L: World, R: World>(
    oracle: &mut L,
    subject: &mut R,
    steps: &Arc<Vec<Step>>,
) -> Result<Played, Box<Difference>> {
    let inodes =
        Inodes { reuses_inode_numbers: subject.reuses_inode_numbers(), ..Inodes::default() };
    let mut game = Game { oracle, subject, steps, log: Vec::new(), inodes, allocated: false };
    let mut tally = Tally::default();
    let mut next_snapshot = SNAPSHOT_EVERY;
    let mut at = 0;
    while at < steps.len() {
        let end = game.batch_end(at);
        game.advance(at, end)?;
        at = end;
        if at >= next_snapshot || at == steps.len() {
            game.compare_trees(at)?;
            tally.snapshots += 1;
            next_snapshot = at + SNAPSHOT_EVERY;
        }
    }
    match game.subject.finish() {
        Ok(finished) => tally.emptied = u64::from(finished == Finished::Empty),
        Err(kept) => return Err(game.difference(at, "space is not released".to_owned(), kept)),
    }
    tally.calls = steps.len() as u64;
    tally.succeeded = game.log.iter().filter(|(_, o)| matches!(o, Outcome::Ok(_))).count() as u64;
    Ok((tally, game.log))
}

/// Correspondence of the inodes of both sides.
///
/// The kernel reuses device numbers for file systems that are mounted later. So a number may refer
/// to another device with other inodes later, but there are never more devices than mounts.
struct Inodes {
    devices: Bijection<u64>,
    inodes: Bijection<(u64, u64)>,
    /// Number of file systems that have been mounted and not seen yet.
    unseen: u32,
    /// Whether the subject may give the number of a freed inode to one that is new on both sides.
    reuses_inode_numbers: bool,
}

impl Default for Inodes {
    fn default() -> Inodes {
        // The root is mounted from the beginning.
        Inodes {
            devices: Bijection::default(),
            inodes: Bijection::default(),
            unseen: 1,
            reuses_inode_numbers: false,
        }
    }
}

/// A one-to-one mapping.
struct Bijection<T> {
    right_of: HashMap<T, T>,
    left_of: HashMap<T, T>,
}

impl<T> Default for Bijection<T> {
    fn default() -> Bijection<T> {
        Bijection { right_of: HashMap::new(), left_of: HashMap::new() }
    }
}

impl<T: Copy + Eq + Hash> Bijection<T> {
    /// Pairs two values. Returns whether this is consistent: neither is paired with another one.
    fn pair(&mut self, left: T, right: T) -> bool {
        let same = *self.right_of.entry(left).or_insert(right) == right;
        *self.left_of.entry(right).or_insert(left) == left && same
    }

    /// Pairs two values like [`pair`](Self::pair). But a new left value takes the right one from
    /// its previous partner, which must not be seen again.
    fn pair_or_take(&mut self, left: T, right: T) -> bool {
        if !self.right_of.contains_key(&left) {
            self.left_of.remove(&right);
        }
        self.pair(left, right)
    }

    fn has(&self, left: T, right: T) -> bool {
        self.right_of.get(&left) == Some(&right)
    }

    /// Removes every pair with a side that no longer exists.
    fn forget(&mut self, left_gone: impl Fn(&T) -> bool, right_gone: impl Fn(&T) -> bool) {
        let is_gone = |(left, right): (&T, &T)| left_gone(left) || right_gone(right);
        self.right_of.retain(|left, right| !is_gone((left, right)));
        self.left_of.retain(|right, left| !is_gone((left, right)));
    }
}

impl Inodes {
    fn mounted(&mut self) {
        self.unseen += 1;
    }

    /// Pairs two inodes, given by device and number. Returns whether they may be the same file.
    fn pair(&mut self, left: (u64, u64), right: (u64, u64)) -> bool {
        if !self.devices.has(left.0, right.0) {
            let Some(unseen) = self.unseen.checked_sub(1) else { return false };
            self.unseen = unseen;
            self.devices.forget(|dev| *dev == left.0, |dev| *dev == right.0);
            self.inodes.forget(|inode| inode.0 == left.0, |inode| inode.0 == right.0);
            self.devices.pair(left.0, right.0);
        }
        if self.reuses_inode_numbers {
            self.inodes.pair_or_take(left, right)
        } else {
            self.inodes.pair(left, right)
        }
    }
}

struct Game<'a, L, R> {
    oracle: &'a mut L,
    subject: &'a mut R,
    steps: &'a Arc<Vec<Step>>,
    log: Vec<(Step, Outcome)>,
    inodes: Inodes,
    /// Whether `fallocate` has allocated space.
    allocated: bool,
}

impl<L: World, R: World> Game<'_, L, R> {
    /// Returns the end of the run of plain calls by one task that begins at `at`.
    fn batch_end(&self, at: usize) -> usize {
        // A fork involves two tasks, and a seek may need a correction.
        let special = |op: &Op| {
            matches!(
                op,
                Op::Fork { .. }
                    | Op::Unshare { .. }
                    | Op::Lseek { whence: Seek::Data | Seek::Hole, .. }
            )
        };
        let alone = |step: &Step| step.probe.is_some() || special(&step.op);
        if alone(&self.steps[at]) {
            return at + 1;
        }
        let task = self.steps[at].task;
        let same = |step: &&Step| step.task == task && !alone(step);
        at + self.steps[at..].iter().take_while(same).count()
    }

    fn advance(&mut self, at: usize, end: usize) -> Result<(), Box<Difference>> {
        let step = self.steps[at].clone();
        if let Op::Fork { into } = step.op {
            if into != step.task {
                self.oracle.fork(step.task, into);
                self.subject.fork(step.task, into);
            }
            self.log.push((step, Outcome::Ok(Value::Unit)));
            return Ok(());
        }
        if let Op::Unshare { into } = step.op {
            if into == step.task {
                self.log.push((step, Outcome::Ok(Value::Unit)));
                return Ok(());
            }
            self.oracle.fork(step.task, into);
            self.subject.fork(step.task, into);
            return self.calls_by(into, at, end);
        }
        // The descriptor of a watched file would make its mount busy.
        let probe =
            step.probe.filter(|_| !matches!(step.op, Op::Umount { .. } | Op::Remount { .. }));
        let probe = probe.filter(|_| self.subject.shows_times_of(&step.op));
        let Some(probe) = probe else { return self.calls(at, end) };
        let watch = move |task: &mut dyn Calls| tree::watch(task, probe);
        let left = self.oracle.run(INSPECTOR, watch);
        let right = self.subject.run(INSPECTOR, watch);
        let same_path = |(a, b): (&Watched, &Watched)| a.path == b.path;
        if left.len() != right.len() || !left.iter().zip(&right).all(same_path) {
            // Times can't be compared, since the trees differ before the call.
            self.compare_trees(at)?;
        }
        tree::wait_for_tick(&[&left, &right]);
        self.calls(at, end)?;
        self.compare_times(at, left, right)
    }

    /// Makes the calls of one task, first all on the oracle, then all on the subject.
    fn calls(&mut self, at: usize, end: usize) -> Result<(), Box<Difference>> {
        self.calls_by(self.steps[at].task, at, end)
    }

    fn calls_by(&mut self, task: usize, at: usize, end: usize) -> Result<(), Box<Difference>> {
        let steps = Arc::clone(self.steps);
        let expected = self.oracle.run(task, move |task| {
            steps[at..end].iter().map(|step| task.call(&step.op)).collect::<Vec<_>>()
        });
        let asked: Vec<bool> = expected.iter().map(|e| *e != Outcome::Skip).collect();
        let steps = Arc::clone(self.steps);
        let got = self.subject.run(task, move |task| {
            let calls = steps[at..end].iter().zip(asked);
            let call = |(step, asked): (&Step, bool)| {
                if let Some(look) = looked_at_before(&step.op) {
                    task.call(&look);
                }
                if asked { task.call(&step.op) } else { Outcome::Skip }
            };
            calls.map(call).collect::<Vec<_>>()
        });
        for (offset, (expected, got)) in expected.into_iter().zip(got).enumerate() {
            self.compare(at + offset, expected, &got)?;
        }
        Ok(())
    }

    fn compare(
        &mut self,
        at: usize,
        expected: Outcome,
        got: &Outcome,
    ) -> Result<(), Box<Difference>> {
        let step = &self.steps[at];
        let paired = match (expected.stat(), got.stat()) {
            (Some(a), Some(b)) => self.inodes.pair((a.dev.0, a.ino.0), (b.dev.0, b.ino.0)),
            _ => true,
        };
        if expected == *got && paired {
            self.allocated |= allocates(step, got);
            // Pipes are in a file system of their own.
            if matches!((&step.op, got), (Op::Mount { .. } | Op::Pipe { .. }, Outcome::Ok(_))) {
                self.inodes.mounted();
            }
            self.log.push((step.clone(), expected));
            return Ok(());
        }
        if known(step, &expected, got, self.allocated).is_some() {
            self.log.push((step.clone(), expected));
            self.rewind(at);
            return Ok(());
        }
        let name = step.op.name();
        let detail = if paired { detail(&expected, got) } else { " inode".to_owned() };
        let signature = format!("{name}: {} / {}{detail}", expected.class(), got.class());
        let text = format!(
            "{step}\n  expected {expected:?}\n  got      {got:?}{}",
            if paired { "" } else { "\n  (another inode than before)" }
        );
        Err(self.difference(at, signature, text))
    }

    /// Sets the file position to the start on both sides, after a tolerated difference of
    /// positions.
    fn rewind(&mut self, at: usize) {
        let Step { task, op: Op::Lseek { fd, .. }, .. } = self.steps[at] else { return };
        let to_start = move |task: &mut dyn Calls| {
            task.call(&Op::Lseek { fd, whence: Seek::Set, off: 0 });
        };
        self.oracle.run(task, to_start);
        self.subject.run(task, to_start);
    }

    fn compare_trees(&mut self, at: usize) -> Result<(), Box<Difference>> {
        let left = self.oracle.run(INSPECTOR, tree::snapshot);
        let right = self.subject.run(INSPECTOR, tree::snapshot);
        let Some((kinds, text)) = tree::compare(&left, &right) else {
            return self.compare_mounts(at);
        };
        let signature = format!("tree: {kinds}");
        Err(self.difference(at, signature, format!("the tree differs\n{text}")))
    }

    /// Compares the mounts that each task sees.
    fn compare_mounts(&mut self, at: usize) -> Result<(), Box<Difference>> {
        for task in 0..=INSPECTOR {
            let mounts = |task: &mut dyn Calls| task.call(&Op::Mounts {});
            let (left, right) = (self.oracle.run(task, mounts), self.subject.run(task, mounts));
            if left != right {
                let text = format!("mounts of t{task}\n  expected {left:?}\n  got      {right:?}");
                return Err(self.difference(at, "mounts".to_owned(), text));
            }
        }
        Ok(())
    }

    fn compare_times(
        &mut self,
        at: usize,
        left: Vec<Watched>,
        right: Vec<Watched>,
    ) -> Result<(), Box<Difference>> {
        let expected = self.oracle.run(INSPECTOR, move |task| tree::moved(task, left));
        let got = self.subject.run(INSPECTOR, move |task| tree::moved(task, right));
        if expected == got {
            return Ok(());
        }
        let name = self.steps[at].op.name();
        let mut text = String::from("times moved (access, data change, inode change)");
        let mut kinds = String::new();
        for (a, b) in expected.iter().zip(&got).filter(|(a, b)| a != b) {
            let _ = write!(text, "\n  expected {a:?}\n  got      {b:?}");
            if let (Ok(a), Ok(b)) = (&a.times, &b.times) {
                kinds = ["atime", "mtime", "ctime"]
                    .iter()
                    .enumerate()
                    .filter(|(i, _)| a[*i] != b[*i])
                    .map(|(i, name)| format!("{}{name}", if a[i] { "-" } else { "+" }))
                    .collect::<Vec<_>>()
                    .join(" ");
            }
        }
        if expected.len() != got.len() {
            let paths =
                |all: &[Moved]| all.iter().map(|m| format!("{}", m.path)).collect::<Vec<_>>();
            let _ = write!(text, "\n  expected {:?}\n  got {:?}", paths(&expected), paths(&got));
        }
        let signature = format!("times by {name}: {kinds}");
        Err(self.difference(at + 1, signature, text))
    }

    fn difference(&mut self, at: usize, signature: String, text: String) -> Box<Difference> {
        Box::new(Difference { at, signature, text, log: std::mem::take(&mut self.log) })
    }
}

fn allocates(step: &Step, outcome: &Outcome) -> bool {
    matches!((&step.op, outcome), (Op::Fallocate { .. }, Outcome::Ok(_)))
}

/// Describes the difference of two successes.
fn detail(expected: &Outcome, got: &Outcome) -> String {
    match (expected.stat(), got.stat()) {
        (Some(a), Some(b)) => format!(" {}", a.differing(b)),
        _ => String::new(),
    }
}

/// Returns the call that the oracle makes before `op`, if any. It reads symbolic links, which
/// changes their access times.
fn looked_at_before(op: &Op) -> Option<Op> {
    let Op::Umount { path, flags } = op else { return None };
    let nofollow = flags & libc::UMOUNT_NOFOLLOW as u32 != 0;
    let flags = if nofollow { libc::AT_SYMLINK_NOFOLLOW as u32 } else { 0 };
    Some(Op::Stat { at: CWD, path: path.clone(), flags })
}

#[cfg(test)]
mod tests;
