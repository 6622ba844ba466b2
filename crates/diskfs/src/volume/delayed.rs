//! The transactions that log delayed names and delayed changes of groups, at the end of each
//! context of the log.

use std::sync::Arc;

use vfscale_journal::Delayed;

use super::Metadata;
use super::hooks::DelayedWork;
use super::tx::Tx;
use crate::base::fault::Fault;

/// Number of times that a block is read, before the log is given up.
const TRIES: usize = 4;

/// The writer of the delayed changes of a volume.
#[derive(Debug)]
pub(super) struct DelayedWriter {
    metadata: Arc<Metadata>,
}

impl DelayedWriter {
    pub(super) fn new(metadata: Arc<Metadata>) -> Self {
        Self { metadata }
    }
}

/// Calls `write` again if the device fails a read, which changes nothing. The blocks of directories
/// and of chunks are in memory; those of the trees of free space, which a fold may change, need not
/// be.
fn tried(write: impl Fn() -> Result<(), Fault>) -> Result<(), Fault> {
    for _ in 1..TRIES {
        match write() {
            Err(fault @ Fault::Device(_)) => {
                tracing::warn!(%fault, "delayed changes can't be written, which is tried again");
            }
            done => return done,
        }
    }
    write()
}

impl DelayedWork for DelayedWriter {
    fn run(&self, delayed: &dyn Delayed) -> Result<(), Fault> {
        let groups = &self.metadata.groups().delayed().list;
        let dirs = &self.metadata.dirs().list;
        dirs.close();
        groups.close();
        // Directories first: their trees may grow or shrink, which changes groups.
        while let Some(dir) = dirs.take() {
            let written = tried(|| Tx::at_end(&self.metadata, delayed).write_names(&dir));
            dirs.written();
            written?;
        }
        while let Some(group) = groups.take() {
            let written = tried(|| Tx::at_end(&self.metadata, delayed).write_group(group));
            groups.written();
            written?;
        }
        Ok(())
    }

    fn is_any(&self) -> bool {
        self.metadata.dirs().list.is_any() || self.metadata.groups().delayed().list.is_any()
    }

    fn ended(&self, items: usize) {
        self.metadata.groups().delayed().list.ended(items);
        self.metadata.dirs().ended(items);
    }
}
