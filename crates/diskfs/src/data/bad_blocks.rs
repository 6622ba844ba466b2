//! Blocks that the device did not accept.
//!
//! A new page whose block can't be written gets another block, and the bad one must not be
//! allocated again immediately. It stays claimed, in memory only, until the volume is closed, or
//! until enough others have been added: then it is tried again.

use std::collections::VecDeque;

use vfscale_sync::{Mutex, lock_class};

use crate::format::BlockRange;

lock_class! {
    /// The blocks that are set aside because they could not be written.
    pub BadBlocksLock = ("bad_blocks", 31120);
}

/// The most runs that are set aside, each of one block: a megabyte.
const RUNS_MAX: usize = 256;

/// Claims that are withheld from allocation. `Send` and `Sync`.
#[derive(Debug, Default)]
pub(super) struct BadBlocks {
    runs: Mutex<VecDeque<BlockRange>, BadBlocksLock>,
}

impl BadBlocks {
    /// Withholds a claim whose blocks can't be written. Returns the oldest claim if there are too
    /// many: the caller unclaims it.
    pub(super) fn add(&self, run: BlockRange) -> Option<BlockRange> {
        let mut runs = self.runs.lock();
        runs.push_back(run);
        if runs.len() > RUNS_MAX { runs.pop_front() } else { None }
    }
}
