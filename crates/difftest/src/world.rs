//! A side of the comparison: a fresh file system and some tasks on it.

use crate::calls::Calls;
use crate::op::Op;
use crate::outcome::{Outcome, Value};

/// The number of tasks that a sequence's calls are spread over.
pub const TASKS: usize = 3;

/// The task that looks at the tree and takes no part in the sequence: root, its own descriptors.
pub const INSPECTOR: usize = TASKS;

/// A file system with `TASKS` tasks and an inspector, all root, at `/`, with an empty umask and
/// no open descriptors.
pub trait World {
    /// Runs `f` as task number `task`, and waits for it.
    fn run<R: Send + 'static>(
        &mut self,
        task: usize,
        f: impl FnOnce(&mut dyn Calls) -> R + Send + 'static,
    ) -> R;

    /// Ends task `into`, and puts a `fork` of task `from` in its place.
    fn fork(&mut self, from: usize, into: usize);

    /// Whether the number of an inode that is gone may be that of another one later, as on a disk.
    fn uses_numbers_again(&self) -> bool {
        false
    }

    /// Ends all tasks and removes everything; nothing else is called after that.
    ///
    /// # Errors
    /// Says what is not given back by then.
    fn finish(&mut self) -> Result<Finished, String> {
        Ok(Finished::Unknown)
    }
}

/// What the end of a world showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finished {
    /// All that was ever used is free again; of a volume, that it is the same when it is opened again.
    Empty,
    /// It can't be told.
    Unknown,
}

/// A world whose files are not asked how many blocks they have: on a disk that depends on what has been
/// written back, and on trees that memory does not need.
pub struct Blockless<W>(pub W);

/// The same for the calls of one task.
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

    fn uses_numbers_again(&self) -> bool {
        self.0.uses_numbers_again()
    }

    fn finish(&mut self) -> Result<Finished, String> {
        self.0.finish()
    }
}
