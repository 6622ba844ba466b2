//! The transactions that log delayed names and delayed changes of groups, at the end of each
//! context of the log.

use std::sync::Arc;

use vfscale_journal::Delayed;

use super::Metadata;
use super::hooks::DelayedWork;
use super::tx::Tx;
use crate::base::fault::Fault;

/// Number of times that a block is read, before its group is left out.
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

impl DelayedWriter {
    /// Calls `write` again if the device fails a read, which changes nothing. The blocks of
    /// directories and of chunks are in memory; those of the trees of free space, which a fold may
    /// change, need not be. At last `write` is told to leave out groups that can't be read.
    fn tried(&self, write: impl Fn(bool) -> Result<(), Fault>) -> Result<(), Fault> {
        for _ in 1..TRIES {
            match write(false) {
                Err(fault @ Fault::Device(_)) => {
                    tracing::warn!(%fault, "delayed changes can't be written, which is tried again");
                }
                Err(Fault::Local(_)) => break,
                done => return done,
            }
        }
        loop {
            let left_out = self.metadata.groups().left_out();
            let done = write(true);
            let is_other = self.metadata.groups().left_out() > left_out;
            match done {
                Err(Fault::Device(_) | Fault::Local(_)) if is_other => self.metadata.withdraw(),
                done => return done,
            }
        }
    }
}

impl DelayedWork for DelayedWriter {
    fn run(&self, delayed: &dyn Delayed) -> Result<(), Fault> {
        let groups = &self.metadata.groups().delayed().list;
        let dirs = &self.metadata.dirs().list;
        dirs.close();
        groups.close();
        // Directories first: their trees may grow or shrink, which changes groups.
        while let Some(dir) = dirs.take() {
            let written = self.tried(|leaves_out| {
                Tx::at_end(&self.metadata, delayed, leaves_out).write_names(&dir)
            });
            dirs.written();
            written?;
        }
        while let Some(group) = groups.take() {
            let written = self.tried(|leaves_out| {
                Tx::at_end(&self.metadata, delayed, leaves_out).write_group(group)
            });
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
