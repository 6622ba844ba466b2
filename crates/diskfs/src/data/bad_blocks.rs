//! Blocks that the device did not take.
//!
//! A new page whose block can't be written goes elsewhere, and nobody is to be given that block at
//! once. It stays claimed, in memory only, until the volume is closed or so many others have come
//! that it is tried again.

use std::collections::VecDeque;

use vfscale_sync::{Mutex, lock_class};

use crate::format::Run;

lock_class! {
    /// The blocks that are left out because they could not be written.
    pub BadBlocksLock = ("bad_blocks", 31120);
}

/// How many runs are kept, each of one block: a megabyte.
const RUNS_MAX: usize = 256;

/// Claims that nobody is to get. `Send` and `Sync`.
#[derive(Debug, Default)]
pub(super) struct BadBlocks {
    runs: Mutex<VecDeque<Run>, BadBlocksLock>,
}

impl BadBlocks {
    /// Keeps a claim whose blocks can't be written. Returns one that was kept for longest if there
    /// are too many: the caller gives it back.
    pub(super) fn add(&self, run: Run) -> Option<Run> {
        let mut runs = self.runs.lock();
        runs.push_back(run);
        if runs.len() > RUNS_MAX { runs.pop_front() } else { None }
    }
}
