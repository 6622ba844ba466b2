//! One block of metadata in memory, an item of the journal.
//!
//! # Why an old buffer never overwrites the next use of its address
//!
//! The commit that frees a block sets [`Contents::is_gone`] of its buffer, under the lock of the
//! content, and waits until a write-back that had begun before is complete. From then on the buffer
//! writes nothing. It stays in the journal's lists as the cancellation of the records logged under
//! its key; the cancellation leaves the log only after the last such record. The address is reused
//! only once the free is durable. If it is reused for data, a recovery finds the cancellation and
//! replays nothing into it. If it is reused for metadata, that has another buffer, whose records
//! come after the cancellation.

use std::sync::Arc;

use vfscale_journal::{ItemState, LogItem, LogKey, LogVector, Lsn, Pushed};
use vfscale_sync::atomic::{AtomicBool, Ordering};
use vfscale_sync::percpu_arc::{Kept, PerCpuArc};
use vfscale_sync::{Condvar, Mutex, MutexGuard};

use super::pool;
use super::target::BufferTarget;
use crate::base::fault::Fault;
use crate::base::ranks::BufferContent;
use crate::format::{AlignedBlock, BLOCK_BYTES, Block, Damage, Expected, Identity, byte_of_block};

/// The kind of log item of a block of metadata.
pub const KIND_BLOCK: u32 = 1;

/// Memory of a buffer with its block, two headers of references and its slot in the cache, in
/// bytes.
pub(super) const BUFFER_BYTES: usize = size_of::<Buffer>() + BLOCK_BYTES + 2 * 16 + 48;

/// One block of metadata in memory. `Send` and `Sync`. Counterpart of `struct xfs_buf` in XFS.
pub struct Buffer {
    address: u64,
    target: Kept<BufferTarget>,
    log: ItemState,
    /// Whether it was used since the clock hand passed.
    touched: AtomicBool,
    content: Mutex<Contents, BufferContent>,
    /// Notified when a write-back has ended.
    written: Condvar,
}

struct Contents {
    block: Arc<Block>,
    /// The version on the device.
    home: Lsn,
    is_writing: bool,
    /// Whether the block was freed.
    is_gone: bool,
}

impl Buffer {
    pub(super) fn new(
        target: &PerCpuArc<BufferTarget>,
        address: u64,
        block: Arc<Block>,
    ) -> Arc<Self> {
        let content = Contents { block, home: Lsn::NONE, is_writing: false, is_gone: false };
        Arc::new(Self {
            address,
            target: target.keep(),
            log: ItemState::new(),
            touched: AtomicBool::new(true),
            content: Mutex::new(content),
            written: Condvar::new(),
        })
    }

    /// Returns its address in blocks.
    pub fn address(&self) -> u64 {
        self.address
    }

    pub(super) fn touch(&self) {
        // Loads first, so that readers do not all write to the cache line of a block that they
        // share.
        if !self.touched.load(Ordering::Relaxed) {
            self.touched.store(true, Ordering::Relaxed);
        }
    }

    pub(super) fn was_touched(&self) -> bool {
        self.touched.swap(false, Ordering::Relaxed)
    }

    /// Passes the block to `look`, if it is as expected.
    pub(super) fn look<T>(
        &self,
        expected: &Expected,
        look: impl FnOnce(&Arc<Block>) -> T,
    ) -> Result<T, Fault> {
        let content = self.content.lock();
        compare(self.address, &content.block, expected)?;
        Ok(look(&content.block))
    }

    /// Replaces the contents. The caller owns the block, and has added the buffer to its
    /// transaction, which pins it.
    pub fn set_block(&self, block: Arc<Block>) {
        let mut content = self.content.lock();
        let old = std::mem::replace(&mut content.block, block);
        drop(content);
        pool::release(old);
    }

    /// Marks the block as freed: nothing is written back any more when this returns. Sleeps while
    /// it is being written. The caller owns the block, and has added the buffer to its transaction.
    pub fn set_gone(&self) {
        let mut content = self.content.lock();
        content.is_gone = true;
        drop(self.written.wait_while(content, |content| content.is_writing));
    }

    /// Applies a change to the block before its write-back. Returns false, and changes nothing, if
    /// it was freed. For blocks that are not logged themselves, but whose parts are (those of
    /// inodes); one thread at a time, as the journal pushes.
    pub(super) fn change(&self, change: impl FnOnce(&mut Block)) -> bool {
        let mut content = self.content.lock();
        if content.is_gone {
            return false;
        }
        change(Arc::make_mut(&mut content.block));
        true
    }

    /// Copies the block for a write, as the version at `lsn`; `None` if it was freed. A thread that
    /// frees the block waits until the copy is dropped.
    pub(super) fn begin_write(&self, lsn: Lsn) -> Option<Writing<'_>> {
        let content = self.content.lock();
        if content.is_gone {
            return None;
        }
        Some(self.writing(content, lsn))
    }

    /// Returns a copy to write, with the LSN of its change. The content is locked, and not freed.
    fn writing(
        &self,
        mut content: MutexGuard<'_, Contents, BufferContent>,
        lsn: Lsn,
    ) -> Writing<'_> {
        content.is_writing = true;
        let block = content.block.clone();
        drop(content);
        let ending = EndWriting(self);
        let mut copy = Box::new(AlignedBlock(block.as_ref().clone()));
        let header = block.header();
        let (magic, owner, volume) = (header.magic, header.owner.get(), self.target.volume);
        copy.0.seal(&Identity { magic, address: self.address, owner, volume }, lsn.to_bits());
        Writing { buffer: self, lsn, copy, _ending: ending }
    }
}

/// A block that is about to be written back.
pub(super) struct Writing<'b> {
    buffer: &'b Buffer,
    lsn: Lsn,
    copy: Box<AlignedBlock>,
    _ending: EndWriting<'b>,
}

impl Writing<'_> {
    /// Returns the offset in bytes, and the bytes to write.
    pub(super) fn write(&self) -> (u64, &[u8]) {
        (byte_of_block(self.buffer.address), self.copy.0.bytes())
    }

    /// Notes that it was written.
    pub(super) fn done(&self) {
        self.buffer.content.lock().home = self.lsn;
    }
}

/// Guard of a write-back, which ends it, successful or not.
struct EndWriting<'b>(&'b Buffer);

impl Drop for EndWriting<'_> {
    fn drop(&mut self) {
        self.0.content.lock().is_writing = false;
        self.0.written.notify_all();
    }
}

impl LogItem for Buffer {
    fn state(&self) -> &ItemState {
        &self.log
    }

    fn key(&self) -> LogKey {
        LogKey { kind: KIND_BLOCK, id: self.address }
    }

    fn format(&self, vector: &mut LogVector) {
        let content = self.content.lock();
        if content.is_gone {
            vector.cancel();
        } else {
            vector.share(content.block.clone());
        }
    }

    fn memory_bytes(&self) -> usize {
        BUFFER_BYTES
    }

    fn push(&self, lsn: Lsn) -> vfscale_journal::Result<Pushed> {
        let content = self.content.lock();
        if self.log.is_pinned() {
            return Ok(Pushed::Pinned);
        }
        if content.is_gone || content.home >= lsn {
            return Ok(Pushed::Written);
        }
        let writing = self.writing(content, lsn);
        let (at, bytes) = writing.write();
        self.target.device.write_at(at, bytes)?;
        writing.done();
        Ok(Pushed::Written)
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Buffer").field("address", &self.address).finish_non_exhaustive()
    }
}

/// Checks that a block in memory is the one that a caller expects.
pub(crate) fn compare(address: u64, block: &Block, expected: &Expected) -> Result<(), Damage> {
    let header = block.header();
    if header.magic != expected.magic {
        let (found, expected) = (header.magic, expected.magic);
        return Err(Damage::Magic { address, found, expected });
    }
    if header.owner != expected.owner {
        let (found, expected) = (header.owner.get(), expected.owner);
        return Err(Damage::Owner { address, found, expected });
    }
    Ok(())
}
