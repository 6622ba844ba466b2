//! Blocks of metadata in memory.
//!
//! # Purpose
//!
//! A block of a tree or of a group is read from the device once, verified once, and shared by all
//! readers. The contents of a [`Block`] in the cache never change: a transaction works on its own
//! copies, and stores them here when it commits. So a reader holds a lock only while it copies a
//! pointer, and the block that it got stays unchanged.
//!
//! # Invariants
//!
//! * A block from the device is [verified](Block::verify) and [checked](Expected::check) before any
//!   reader sees it. A block that fails is not cached: the next reader reads it from the device
//!   again.
//! * One thread reads a missing block; other threads that need it wait.
//! * There is one [`Buffer`] per address at a time. The buffer of a freed block leaves the cache
//!   immediately, and the next owner of the address gets another one; the old one writes nothing
//!   any more.
//! * A buffer is dropped only if the cache holds the only reference to it. The journal holds one as
//!   long as any change of the buffer is not written back; so a dropped buffer equals the block on
//!   the device, and later readers read that.
//! * So the memory limit applies to blocks that could be read again; blocks with pending changes
//!   may exceed it.
//!
//! # Locks
//!
//! `cache_shard` protects the set of buffers, `buffer_content` the contents of one. Neither is held
//! during I/O. Both are leaves, in this order. `inode_homes`, before them, is held shared while
//! inodes are put into a block of inodes for its write-back.
//!
//! # Freed blocks of inodes
//!
//! An inode is an item of the log. By the time it is written back, its block may no longer be one
//! of inodes: when all inodes in it were free, the block was freed. So the thread that frees blocks
//! of inodes marks them under the exclusive side of `inode_homes`. Writes that had begun are
//! complete then, and later ones do nothing, until there is a new chunk of inodes at the same
//! address.
//!
//! Eviction is the clock algorithm (Corbató 1968) per shard: a hand goes around, and buffers that
//! were used since it passed them last stay.

mod block;
mod cancel;
mod chunk;
pub(crate) mod pool;
mod target;
mod write_queue;

use std::collections::HashSet;
use std::sync::Arc;

use vfscale_block::Device;
use vfscale_journal::{LogItem, Lsn};
use vfscale_sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use vfscale_sync::percpu_arc::{Kept, PerCpuArc};
use vfscale_sync::{Condvar, Mutex, MutexGuard, RwLock, cpu};

pub(crate) use block::compare;
pub use block::{Buffer, KIND_BLOCK};
pub(crate) use cancel::Cancel;
pub use chunk::{InodeChunk, KIND_INODE_CHUNK};
use target::BufferTarget;
pub(crate) use write_queue::WriteQueue;

use crate::Uuid;
use crate::base::fault::Fault;
use crate::base::numbers::{NumberMap, shard_of};
use crate::base::ranks::{CacheShard, InodeHomes};
use crate::base::shared_limit::{SHARDS_IN_VAIN, SharedCache, SharedLimit};
use crate::format::inode::{CHUNK_BLOCKS, chunk_of, verify_torn};
use crate::format::{BLOCK_BYTES, Block, Expected, Identity, byte_of_block};

/// Number of buffers that the hand passes for each new one. More than one, so that it catches up
/// after passing buffers in use.
const HAND_STEPS: usize = 8;

/// Number of shards per CPU, unless each would have room for less than [`SHARD_BLOCKS`] blocks.
const SHARDS_PER_CPU: usize = 64;
const SHARD_BLOCKS: usize = 16;

/// The blocks of metadata of a volume that are in memory. `Send` and `Sync`. Counterpart of
/// `struct xfs_buftarg` in XFS.
pub struct BufferCache {
    target: PerCpuArc<BufferTarget>,
    write_queue: PerCpuArc<WriteQueue>,
    shards: Box<[BufferShard]>,
    /// Number of buffers that a shard retains if possible.
    shard_limit: usize,
    reads: AtomicU64,
    /// The limit that it shares with the caches of other volumes.
    shared: Option<Arc<SharedLimit>>,
    /// The shard at which the next search for unused buffers begins.
    looked_at: AtomicUsize,
    /// Chunks of inodes that were freed, by their first blocks.
    given_up: RwLock<HashSet<u64>, InodeHomes>,
}

/// A shard of the cache, on cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
struct BufferShard {
    state: Mutex<BufferEntries, CacheShard>,
    /// Notified when a block was read, or could not be.
    loaded: Condvar,
}

#[derive(Default)]
struct BufferEntries {
    map: NumberMap<BufferEntry>,
    /// The addresses of all buffers, around which the hand goes.
    ring: Vec<u64>,
    hand: usize,
    /// The number of the next read.
    next_load: u64,
}

enum BufferEntry {
    /// A thread is reading it: the read with this number.
    Loading(u64),
    Present {
        buffer: Arc<Buffer>,
        /// The index in the ring.
        at: usize,
    },
}

impl BufferCache {
    /// Creates an empty cache of `volume` on `device`, which holds at most `bytes` of clean blocks.
    #[cfg(any(test, shuttle))]
    pub fn new(device: Arc<dyn Device>, volume: Uuid, bytes: u64) -> Self {
        Self::with_limit(device, volume, bytes, None)
    }

    /// Creates an empty cache like [`new`](Self::new), which counts its blocks in `shared` as well.
    /// Its owner has it [join](SharedLimit::join).
    pub(crate) fn with_limit(
        device: Arc<dyn Device>,
        volume: Uuid,
        bytes: u64,
        shared: Option<Arc<SharedLimit>>,
    ) -> Self {
        let cpus = cpu::most_slots() as usize;
        let limit = usize::try_from(bytes / BLOCK_BYTES as u64).unwrap_or(usize::MAX);
        // Enough shards that unrelated blocks seldom share one, while each has room for some
        // blocks.
        let shards = (limit / SHARD_BLOCKS).clamp(4 * cpus, SHARDS_PER_CPU * cpus);
        let shards = shards.next_power_of_two();
        let target = PerCpuArc::new(cpus, Arc::new(BufferTarget { device, volume }));
        let write_queue = WriteQueue::new(target.keep());
        Self {
            target,
            write_queue: PerCpuArc::new(cpus, Arc::new(write_queue)),
            shards: (0..shards).map(|_| BufferShard::default()).collect(),
            shard_limit: (limit / shards).max(1),
            reads: AtomicU64::new(0),
            shared,
            looked_at: AtomicUsize::new(0),
            given_up: RwLock::new(HashSet::new()),
        }
    }

    fn shard(&self, address: u64) -> &BufferShard {
        &self.shards[shard_of(address, self.shards.len())]
    }

    /// Returns the block at `address`, which must be in the volume. Sleeps if it has to be read.
    ///
    /// # Errors
    /// Returns the error of the device, or the damage of the block.
    pub fn read(&self, address: u64, expected: &Expected) -> Result<Arc<Block>, Fault> {
        self.look(address, expected, |_, block| Arc::clone(block))
    }

    /// Returns the buffer of the block at `address`, which must be in the volume. Sleeps if it has
    /// to be read.
    ///
    /// # Errors
    /// Returns the error of the device, or the damage of the block.
    pub fn get(&self, address: u64, expected: &Expected) -> Result<Arc<Buffer>, Fault> {
        self.look(address, expected, |buffer, _| Arc::clone(buffer))
    }

    /// Returns the buffer and its block.
    pub(crate) fn get_with_block(
        &self,
        address: u64,
        expected: &Expected,
    ) -> Result<(Arc<Buffer>, Arc<Block>), Fault> {
        self.look(address, expected, |buffer, block| (Arc::clone(buffer), Arc::clone(block)))
    }

    /// Returns the block of inodes at `address`, for a reader of one record that no other thread
    /// changes. A block with a wrong checksum is read once more, and is not cached: its records are
    /// checked by their own.
    ///
    /// # Errors
    /// Returns the error of the device, or [`Fault::Local`].
    pub(crate) fn read_inodes(
        &self,
        address: u64,
        expected: &Expected,
    ) -> Result<Arc<Block>, Fault> {
        match self.read(address, expected) {
            Err(Fault::Damage(_)) => {
                let mut block = Block::zeroed();
                self.read_block(address, &mut block)?;
                verify_torn(&block, &self.identity(address, expected)).map_err(Fault::Local)?;
                Ok(block.into())
            }
            read => read,
        }
    }

    /// Returns the buffer of the block of inodes at `address`, for a change of one of them: all its
    /// records are right, so that the write-back of one does not make a wrong one permanent that
    /// was wrong only while it was read.
    ///
    /// # Errors
    /// Returns the error of the device, or [`Fault::Local`].
    pub(crate) fn get_inodes(
        &self,
        address: u64,
        expected: &Expected,
    ) -> Result<Arc<Buffer>, Fault> {
        self.get(address, expected).map_err(Fault::local)
    }

    /// Passes `found` the buffer and its contents, under the locks of both the shard and the
    /// buffer. These two are mostly free, and replace references that would have to be taken and
    /// dropped in between.
    fn look<T>(
        &self,
        address: u64,
        expected: &Expected,
        found: impl FnOnce(&Arc<Buffer>, &Arc<Block>) -> T,
    ) -> Result<T, Fault> {
        let shard = self.shard(address);
        let mut entries = shard.state.lock();
        loop {
            match entries.map.get(&address) {
                Some(BufferEntry::Present { buffer, .. }) => {
                    buffer.touch();
                    return buffer.look(expected, |block| found(buffer, block));
                }
                Some(BufferEntry::Loading(_)) => entries = shard.loaded.wait(entries),
                None => break,
            }
        }
        let number = entries.next_load;
        entries.next_load += 1;
        entries.map.insert(address, BufferEntry::Loading(number));
        drop(entries);
        let loading = BufferLoading { shard, address, number };
        let block = self.load(address, expected)?;
        let buffer = self.loaded(&loading, Buffer::new(&self.target, address, block));
        drop(loading);
        buffer.look(expected, |block| found(&buffer, block))
    }

    /// Reads and verifies a block.
    fn load(&self, address: u64, expected: &Expected) -> Result<Arc<Block>, Fault> {
        let mut block = Block::zeroed();
        self.read_block(address, &mut block)?;
        block.verify(&self.identity(address, expected))?;
        (expected.check)(address, &block)?;
        Ok(block.into())
    }

    fn read_block(&self, address: u64, block: &mut Block) -> Result<(), Fault> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        Ok(self.target.device.read_at(byte_of_block(address), block.bytes_mut())?)
    }

    fn identity(&self, address: u64, expected: &Expected) -> Identity {
        let Expected { magic, owner, .. } = *expected;
        Identity { magic, address, owner, volume: self.target.volume }
    }

    /// Caches the block that was read, unless the block got new contents or was freed during the
    /// read: the thread that did so owns the block, and the result of the read is outdated.
    fn loaded(&self, loading: &BufferLoading<'_>, buffer: Arc<Buffer>) -> Arc<Buffer> {
        let mut entries = loading.shard.state.lock();
        let (mut evicted, before) = (Vec::new(), entries.ring.len());
        let found = match entries.map.get(&loading.address) {
            Some(BufferEntry::Present { buffer: newer, .. }) => newer.clone(),
            Some(BufferEntry::Loading(number)) if *number == loading.number => {
                entries.put(loading.address, buffer.clone());
                entries.evict(self.shard_limit, &mut evicted);
                buffer
            }
            _ => buffer,
        };
        self.unlock(entries, before);
        drop(evicted);
        if let Some(shared) = &self.shared {
            shared.trim();
        }
        found
    }

    /// Unlocks a shard, which had `before` buffers when it was locked.
    fn unlock(&self, entries: MutexGuard<'_, BufferEntries, CacheShard>, before: usize) {
        if let Some(shared) = &self.shared {
            shared.changed(before, entries.ring.len());
        }
    }

    /// Creates a buffer for a new block, which readers find once it is [published](Self::publish).
    pub fn fresh(&self, address: u64, block: Arc<Block>) -> Arc<Buffer> {
        Buffer::new(&self.target, address, block)
    }

    /// Publishes `buffer`: readers find it in place of an earlier one with its address.
    pub fn publish(&self, buffer: &Arc<Buffer>) {
        let address = buffer.address();
        let shard = self.shard(address);
        let mut evicted = Vec::new();
        let mut entries = shard.state.lock();
        let before = entries.ring.len();
        entries.put(address, buffer.clone());
        entries.evict(self.shard_limit, &mut evicted);
        self.unlock(entries, before);
        shard.loaded.notify_all();
    }

    /// Removes the buffer of a freed block.
    pub fn forget(&self, buffer: &Arc<Buffer>) {
        let address = buffer.address();
        let mut entries = self.shard(address).state.lock();
        let before = entries.ring.len();
        let taken = match entries.map.get(&address) {
            Some(BufferEntry::Present { buffer: found, .. }) if Arc::ptr_eq(found, buffer) => {
                entries.take(address)
            }
            _ => None,
        };
        self.unlock(entries, before);
        drop(taken);
    }

    /// Applies a change to a block of inodes, and queues it for write-back as the version at `lsn`.
    /// Does nothing if the block was freed. For log items when they are pushed; one thread at a
    /// time.
    ///
    /// # Errors
    /// Returns the error of the device, or the damage of the block.
    pub fn write_inodes(
        &self,
        address: u64,
        expected: &Expected,
        lsn: Lsn,
        change: impl FnOnce(&mut Block),
    ) -> Result<(), Fault> {
        let given_up = self.given_up.read();
        if given_up.contains(&chunk_of(address)) {
            return Ok(());
        }
        self.write_queue.change(&self.get(address, expected)?, lsn, change);
        Ok(())
    }

    /// Ends write-back of the blocks of a chunk, which are of inodes no more. Sleeps while one is
    /// written.
    pub(crate) fn give_up_inodes(&self, chunk: u64) {
        let mut given_up = self.given_up.write();
        given_up.insert(chunk);
        for address in chunk..chunk + CHUNK_BLOCKS {
            let entries = self.shard(address).state.lock();
            let found = match entries.map.get(&address) {
                Some(BufferEntry::Present { buffer, .. }) => Some(buffer.clone()),
                _ => None,
            };
            drop(entries);
            if let Some(buffer) = found {
                self.forget(&buffer);
                buffer.set_gone();
            }
        }
    }

    /// Creates a chunk of new inodes in buffers of consecutive blocks, at least one.
    pub(crate) fn inode_chunk(&self, buffers: Vec<Arc<Buffer>>) -> Arc<InodeChunk> {
        InodeChunk::new(self.write_queue.keep(), buffers)
    }

    /// Publishes the blocks of a new chunk, to which inodes can be written back.
    pub(crate) fn publish_inodes(&self, chunk: &InodeChunk) {
        let mut given_up = self.given_up.write();
        given_up.remove(&chunk.key().id);
        chunk.buffers().iter().for_each(|buffer| self.publish(buffer));
    }

    /// Returns the write-back queue of its blocks.
    pub(crate) fn write_queue(&self) -> Kept<WriteQueue> {
        self.write_queue.keep()
    }

    /// Returns the number of buffers. Exact while no thread adds or drops any.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.state.lock().ring.len()).sum()
    }

    /// Returns the number of blocks read from the device.
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }
}

impl SharedCache for BufferCache {
    fn drop_unused(&self, most: usize) -> usize {
        let (mut dropped, mut in_vain) = (0, 0);
        for _ in 0..self.shards.len() {
            let at = self.looked_at.fetch_add(1, Ordering::Relaxed) % self.shards.len();
            let (mut entries, mut evicted) = (self.shards[at].state.lock(), Vec::new());
            let before = entries.ring.len();
            entries.evict(before.saturating_sub(most - dropped), &mut evicted);
            self.unlock(entries, before);
            dropped += evicted.len();
            in_vain = if evicted.is_empty() { in_vain + 1 } else { 0 };
            if dropped >= most || in_vain >= SHARDS_IN_VAIN {
                break;
            }
        }
        dropped
    }
}

impl Drop for BufferCache {
    fn drop(&mut self) {
        if let Some(shared) = &self.shared {
            shared.changed(self.len(), 0);
        }
    }
}

impl std::fmt::Debug for BufferCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BufferCache")
            .field("shards", &self.shards.len())
            .field("shard_limit", &self.shard_limit)
            .field("reads", &self.reads())
            .finish_non_exhaustive()
    }
}

impl BufferEntries {
    fn put(&mut self, address: u64, buffer: Arc<Buffer>) {
        let at = match self.map.get(&address) {
            Some(BufferEntry::Present { at, .. }) => *at,
            _ => {
                self.ring.push(address);
                self.ring.len() - 1
            }
        };
        self.map.insert(address, BufferEntry::Present { buffer, at });
    }

    fn take(&mut self, address: u64) -> Option<Arc<Buffer>> {
        let Some(BufferEntry::Present { buffer, at }) = self.map.remove(&address) else {
            return None;
        };
        self.ring.swap_remove(at);
        if let Some(moved) = self.ring.get(at)
            && let Some(BufferEntry::Present { at: place, .. }) = self.map.get_mut(moved)
        {
            *place = at;
        }
        Some(buffer)
    }

    /// Moves the hand, and evicts buffers not used since it passed them last, as long as there are
    /// more than the limit. The caller drops their references when it holds no lock.
    fn evict(&mut self, limit: usize, evicted: &mut Vec<Arc<Buffer>>) {
        for _ in 0..HAND_STEPS {
            if self.ring.len() <= limit {
                return;
            }
            self.hand = if self.hand < self.ring.len() { self.hand } else { 0 };
            let address = self.ring[self.hand];
            let Some(BufferEntry::Present { buffer, .. }) = self.map.get(&address) else { return };
            // A new reference is made either here, under this lock, or from another reference; so a
            // count of one can't grow. A block that the log has not got when it fails stays pinned,
            // and in memory: the older one on the device does not go with the others here.
            let is_used = Arc::strong_count(buffer) > 1 || buffer.was_touched();
            if is_used || buffer.state().is_pinned() {
                self.hand += 1;
            } else {
                evicted.extend(self.take(address));
            }
        }
    }
}

/// A read in progress. Dropping it wakes the threads that wait for it.
struct BufferLoading<'c> {
    shard: &'c BufferShard,
    address: u64,
    number: u64,
}

impl Drop for BufferLoading<'_> {
    fn drop(&mut self) {
        let mut entries = self.shard.state.lock();
        if matches!(entries.map.get(&self.address), Some(BufferEntry::Loading(n)) if *n == self.number)
        {
            entries.map.remove(&self.address);
        }
        drop(entries);
        self.shard.loaded.notify_all();
    }
}

#[cfg(test)]
mod tests;
