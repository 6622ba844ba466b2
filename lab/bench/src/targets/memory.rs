//! The library in this process: each case a new memory file system, each worker a task.

use vfscale::{Result, Scaling};

use super::calls::Target;
use super::library::{TaskCalls, Tree};
use crate::base::error::Outcome;

/// A memory file system.
#[derive(Clone, Debug)]
pub struct Memory {
    tree: Tree,
}

impl Memory {
    /// Creates a file system with these scaling settings.
    ///
    /// # Errors
    /// Returns an error if there is no memory for it.
    pub fn new(scaling: Scaling) -> Result<Memory> {
        let vfs = vfscale::memory().scaling(scaling).build()?;
        Ok(Memory { tree: Tree::new(vfs, scaling)? })
    }
}

impl Target for Memory {
    type Calls = TaskCalls;

    fn enter(&self) -> Outcome<TaskCalls> {
        Ok(self.tree.enter())
    }
}
