//! The library in this process: each case a new memory file system, each worker a task.

use vfscale::{Result, Scaling, Vfs};

use super::calls::Target;
use super::library::TaskCalls;
use crate::base::error::Outcome;

/// A memory file system.
#[derive(Clone)]
pub struct Memory {
    vfs: Vfs,
}

impl Memory {
    /// Creates a file system with these scaling settings.
    ///
    /// # Errors
    /// Returns an error if there is no memory for it.
    pub fn new(scaling: Scaling) -> Result<Memory> {
        Ok(Memory { vfs: vfscale::memory().scaling(scaling).build()? })
    }
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Memory").finish_non_exhaustive()
    }
}

impl Target for Memory {
    type Calls = TaskCalls;

    fn enter(&self) -> Outcome<TaskCalls> {
        Ok(TaskCalls::new(&self.vfs))
    }
}
