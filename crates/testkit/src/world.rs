//! A side of the comparison: a new file system and tasks on it.

mod clean;
mod compound;
mod kernel;
pub mod mounted;
mod mountinfo;
pub mod oracle;
pub mod subject;
pub(crate) mod sys;
pub mod tree;

use crate::calls::Calls;
use crate::calls::op::Op;
use crate::calls::outcome::{Outcome, Value};

/// Number of tasks that make the calls of a sequence.
pub const TASKS: usize = 3;

/// The task that inspects the tree and makes no calls of the sequence. It is root and has its own
/// descriptors.
pub const INSPECTOR: usize = TASKS;

/// A file system with `TASKS` tasks and an inspector, all root, at `/`, with an empty umask and no
/// open descriptors.
pub trait World {
    /// Runs `f` as task number `task`, and waits for it.
    fn run<R: Send + 'static>(
        &mut self,
        task: usize,
        f: impl FnOnce(&mut dyn Calls) -> R + Send + 'static,
    ) -> R;

    /// Ends task `into`, and replaces it by a `fork` of task `from`.
    fn fork(&mut self, from: usize, into: usize);

    /// Returns whether the number of a freed inode may be reused, as on a disk.
    fn reuses_inode_numbers(&self) -> bool {
        false
    }

    /// Returns whether the times that a call updates can be compared.
    fn shows_times_of(&self, op: &Op) -> bool {
        let _ = op;
        true
    }

    /// Ends all tasks and removes everything. Nothing may be called after it.
    ///
    /// # Errors
    /// Describes the objects that were not released.
    fn finish(&mut self) -> Result<Finished, String> {
        Ok(Finished::Unknown)
    }
}

/// State at the end of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finished {
    /// All space that was used is free again. A volume, in addition, was unchanged after it was
    /// reopened.
    Empty,
    /// The state is unknown.
    Unknown,
}

/// A world without block counts. On a disk, they depend on write-back and on trees that memory does
/// not need.
pub struct Blockless<W>(pub W);

/// The calls of one task, without block counts.
pub struct BlocklessCalls<'a>(pub &'a mut dyn Calls);

impl Calls for BlocklessCalls<'_> {
    fn call(&mut self, op: &Op) -> Outcome {
        let mut outcome = self.0.call(op);
        if let Outcome::Ok(Value::Stat(stat)) = &mut outcome {
            stat.blocks = 0;
        }
        outcome
    }
}

impl<W: World> World for Blockless<W> {
    fn run<R: Send + 'static>(
        &mut self,
        task: usize,
        f: impl FnOnce(&mut dyn Calls) -> R + Send + 'static,
    ) -> R {
        self.0.run(task, move |calls| f(&mut BlocklessCalls(calls)))
    }

    fn fork(&mut self, from: usize, into: usize) {
        self.0.fork(from, into);
    }

    fn reuses_inode_numbers(&self) -> bool {
        self.0.reuses_inode_numbers()
    }

    fn shows_times_of(&self, op: &Op) -> bool {
        self.0.shows_times_of(op)
    }

    fn finish(&mut self) -> Result<Finished, String> {
        self.0.finish()
    }
}
