//! A side of the comparison: a fresh file system and some tasks on it.

use crate::calls::Calls;

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
