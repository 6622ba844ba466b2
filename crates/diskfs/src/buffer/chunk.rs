//! New blocks of inodes: what a recovery has to know in order to make them again.
//!
//! Inodes are logged one by one, as records that go into their blocks. Such a block is made by a
//! chunk, which is one item of the log, a few bytes long: it says that eight blocks of free inodes
//! are to be there. Records that are logged later go into them.
//!
//! # Why a chunk that is written home late takes nothing away
//!
//! What the buffers of inode blocks hold is always fit to be home: a record gets into them when it
//! goes home itself. So a chunk writes what its buffers hold, not what they held when it was made.
//! And the chunk holds its buffers, so that none is read from the device before it is there.

use std::sync::Arc;

use vfscale_journal::{ItemState, LogItem, LogKey, LogVector, Lsn, Pushed};

use super::Buffer;
use super::block::BUFFER_BYTES;

/// The kind of log item that a chunk of new inodes is.
pub const KIND_INODE_CHUNK: u32 = 3;

/// Eight blocks of inodes that were made together. `Send` and `Sync`.
#[derive(Debug)]
pub struct InodeChunk {
    log: ItemState,
    buffers: Vec<Arc<Buffer>>,
}

impl InodeChunk {
    /// Creates a chunk of buffers of consecutive blocks, at least one.
    #[must_use]
    pub fn new(buffers: Vec<Arc<Buffer>>) -> Arc<Self> {
        Arc::new(Self { log: ItemState::new(), buffers })
    }

    /// Returns its buffers.
    #[must_use]
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

    fn push(&self, lsn: Lsn) -> vfscale_journal::Result<Pushed> {
        if self.log.is_pinned() {
            return Ok(Pushed::Pinned);
        }
        for buffer in &self.buffers {
            buffer.change_home(lsn, |_| {});
        }
        Ok(Pushed::Written)
    }
}
