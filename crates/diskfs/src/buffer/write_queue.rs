//! Write-back of blocks of metadata to their addresses on the device.
//!
//! # Why blocks of inodes are written back in batches
//!
//! A block has eight inodes, and each of them is an item of the log that is written back by itself.
//! Usually all eight are, one soon after the other, and their chunk as well. So a push only changes
//! the block in memory, and the block waits here until the journal flushes all that it has pushed
//! ([`Hooks::flush_home`](vfscale_journal::Hooks::flush_home)). Then each block is written once,
//! all together and in the order of their addresses. The journal retains the items until that has
//! returned, so no item is considered written back too early.
//!
//! The queue holds a reference to a waiting block, so the cache does not drop it, and readers find
//! the newest version. A block that is freed while it waits is marked ([`Buffer::set_gone`]), and
//! is not written.
//!
//! # Locks
//!
//! `home_pending` protects the queue of waiting blocks; a leaf, not held during I/O.

use std::collections::BTreeMap;
use std::sync::Arc;

use vfscale_journal::Lsn;
use vfscale_sync::Mutex;
use vfscale_sync::percpu_arc::Kept;

use super::block::Buffer;
use super::target::BufferTarget;
use crate::base::ranks::HomePending;
use crate::format::Block;

/// The blocks of a volume that wait for their write-back. Counterpart of a list of delayed writes
/// (`xfs_buf_delwri_queue`) in XFS.
#[derive(Debug)]
pub(crate) struct WriteQueue {
    target: Kept<BufferTarget>,
    /// The waiting blocks, by address, with the latest change of each.
    pending: Mutex<BTreeMap<u64, (Arc<Buffer>, Lsn)>, HomePending>,
}

impl WriteQueue {
    pub(super) fn new(target: Kept<BufferTarget>) -> Self {
        Self { target, pending: Mutex::new(BTreeMap::new()) }
    }

    /// Applies a change to a block of inodes, and queues it for write-back as the version at `lsn`.
    /// Does nothing if it was freed. One thread at a time, as the journal pushes.
    pub(super) fn change(&self, buffer: &Arc<Buffer>, lsn: Lsn, change: impl FnOnce(&mut Block)) {
        if buffer.change(change) {
            self.add(buffer, lsn);
        }
    }

    fn add(&self, buffer: &Arc<Buffer>, lsn: Lsn) {
        let mut pending = self.pending.lock();
        // An earlier push may have a later LSN.
        let known = pending.get(&buffer.address()).map_or(Lsn::NONE, |(_, lsn)| *lsn);
        // A block that was freed and made again has another buffer.
        let former = pending.insert(buffer.address(), (Arc::clone(buffer), lsn.max(known)));
        drop(pending);
        drop(former);
    }

    /// Writes all waiting blocks. They are durable after a flush. One thread at a time, as the
    /// journal pushes.
    ///
    /// # Errors
    /// Returns the error of the device. If storage is short, the blocks that could not be written
    /// wait on; otherwise the journal is shut down, and the blocks are never written.
    pub(crate) fn write_all(&self) -> Result<(), vfscale_block::Error> {
        let pending = std::mem::take(&mut *self.pending.lock());
        let begun = pending.values().filter_map(|(buffer, lsn)| buffer.begin_write(*lsn));
        let begun: Vec<_> = begun.collect();
        let writes: Vec<_> = begun.iter().map(|writing| writing.write()).collect();
        match self.target.device.write_many(&writes) {
            Err(error) if error.is_no_space() => {}
            written => {
                written?;
                begun.iter().for_each(|writing| writing.done());
                return Ok(());
            }
        }
        drop(writes);
        drop(begun);
        self.write_each(pending)
    }

    /// Writes blocks one by one, and queues those again for which there is no storage.
    ///
    /// # Errors
    /// The first error of the device.
    fn write_each(
        &self,
        pending: BTreeMap<u64, (Arc<Buffer>, Lsn)>,
    ) -> Result<(), vfscale_block::Error> {
        let mut result = Ok(());
        for (buffer, lsn) in pending.into_values() {
            let Some(writing) = buffer.begin_write(lsn) else { continue };
            let (at, bytes) = writing.write();
            let written = self.target.device.write_at(at, bytes);
            if written.is_ok() {
                writing.done();
            }
            drop(writing);
            if written.is_err() {
                self.add(&buffer, lsn);
            }
            result = result.and(written);
        }
        result
    }
}
