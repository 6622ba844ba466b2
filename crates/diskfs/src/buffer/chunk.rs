//! New blocks of inodes: the log item that lets a recovery create them again.
//!
//! Inodes are logged one by one, as records that are put into their blocks. The blocks themselves
//! are logged as a chunk, which is one item of the log, a few bytes long: it tells a recovery to
//! create eight blocks of free inodes. Records that are logged later are put into them.
//!
//! # Why a late write-back of a chunk loses nothing
//!
//! The contents of the buffers of inode blocks may be written back at any time: a record is put
//! into them only when it is itself written back. So a chunk writes the current contents of its
//! buffers, not those at its creation. And the chunk holds its buffers, so none is read from the
//! device before it was written.

use std::sync::Arc;

use vfscale_journal::{ItemState, LogItem, LogKey, LogVector, Lsn, Pushed};
use vfscale_sync::percpu_arc::Kept;

use super::block::{BUFFER_BYTES, Buffer};
use super::write_queue::WriteQueue;

/// The kind of log item of a chunk of new inodes.
pub const KIND_INODE_CHUNK: u32 = 3;

/// Eight blocks of inodes that were created together. `Send` and `Sync`. Counterpart of the item
/// `XFS_LI_ICREATE` in XFS.
#[derive(Debug)]
pub struct InodeChunk {
    log: ItemState,
    write_queue: Kept<WriteQueue>,
    buffers: Vec<Arc<Buffer>>,
}

impl InodeChunk {
    /// Creates a chunk of buffers of consecutive blocks, at least one, which `write_queue` writes
    /// back.
    pub(super) fn new(write_queue: Kept<WriteQueue>, buffers: Vec<Arc<Buffer>>) -> Arc<Self> {
        Arc::new(Self { log: ItemState::new(), write_queue, buffers })
    }

    /// Returns its buffers.
    pub fn buffers(&self) -> &[Arc<Buffer>] {
        &self.buffers
    }
}

impl LogItem for InodeChunk {
    fn state(&self) -> &ItemState {
        &self.log
    }

    fn key(&self) -> LogKey {
        let id = self.buffers.first().map_or(0, |buffer| buffer.address());
        LogKey { kind: KIND_INODE_CHUNK, id }
    }

    fn format(&self, vector: &mut LogVector) {
        vector.push(&[]);
    }

    /// Returns the memory of its buffers, which are no items themselves.
    fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.buffers.len() * BUFFER_BYTES
    }

    fn home_blocks(&self) -> u64 {
        self.buffers.len() as u64
    }

    fn push(&self, lsn: Lsn) -> vfscale_journal::Result<Pushed> {
        if self.log.is_pinned() {
            return Ok(Pushed::Pinned);
        }
        for buffer in &self.buffers {
            self.write_queue.change(buffer, lsn, |_| {});
        }
        Ok(Pushed::Written)
    }
}
