//! An inode in memory. Counterpart of `struct xfs_inode` of XFS, with its log item.
//!
//! # Purpose
//!
//! A [`Node`] stands for one inode number: transactions change it, the log writes it, and
//! write-back stores it into a block of inodes. Its present state is an [`InodeCore`], which is
//! immutable: a transaction replaces it by another one when it commits. The VFS has inodes of its
//! own, whose lifetime is shorter; the node stays in memory until everything is written back.
//!
//! # Invariants
//!
//! * A number has one node at a time ([`table`](crate::icache::table)), even when the number is
//!   freed and used again. Hence the log's lists never have more than one item for a number, and an
//!   old state can't be written back after a newer one.
//! * The core is replaced only within a transaction that has added the node before, under the lock
//!   of the core. A thread that finds the node not pinned under that lock has a core that is in the
//!   log.
//!
//! # Lazy times
//!
//! Reading and writing a file change its times, much too often for transactions. The VFS reports
//! such a change and the node copies the times of the VFS inode ([`Node::follow_times`]); the next
//! transaction that changes the inode for another reason includes them, or one that is begun for
//! them later.
//!
//! A thread changes the times of the VFS inode first, and then has the node copy them, under the
//! lock of the core. So a thread that copies times which another one is just changing copies old
//! ones only if that one has still to copy. A transaction is such a change, too: its times are in
//! the node when it commits, and in the VFS inode a moment later; then the node copies once more.
//! A walk reports without a reference to the VFS inode: the number may belong to another inode by
//! then, which the generation shows.
//!
//! # Locks
//!
//! `i_node` is held exclusively from the first change in a transaction until the commit has
//! returned, and shared while a thread reads the trees of the inode, because a commit publishes its
//! blocks one after the other. It is taken after [`Volume::begin`](crate::volume::Volume::begin),
//! and for several nodes in ascending order of their numbers ([`lock_all`]). `i_core` is a leaf.

use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;
use vfscale_journal::{ItemState, LogItem, LogKey, LogVector, Lsn, Pushed};
use vfscale_sync::atomic::{AtomicU32, AtomicU64, Ordering};
use vfscale_sync::errseq::ErrorSeq;
use vfscale_sync::lock::{RwLockReadGuard, RwLockWriteGuard};
use vfscale_sync::percpu_arc::{Kept, PerCpuArc};
use vfscale_sync::{Mutex, RwLock};

use crate::base::ranks::{NodeCore, NodeLock};
use crate::buffer::BufferCache;
use crate::format::Expected;
use crate::format::inode::{INODE_MAGIC, block_of, chunk_of, records_mut, slot_of};
use crate::inode::core::InodeCore;
use crate::page_cache::FilePages;

/// The kind of log item of an inode.
pub const KIND_INODE: u32 = 2;

/// Access and change times, in nanoseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// Last access.
    pub atime: i64,
    /// Last change of the data.
    pub mtime: i64,
    /// Last change of the inode.
    pub ctime: i64,
}

impl Times {
    fn of(core: &InodeCore) -> Self {
        Self { atime: core.atime, mtime: core.mtime, ctime: core.ctime }
    }

    /// Returns these times where they differ from `before`, and `taken` elsewhere.
    fn since(self, before: Self, taken: Self) -> Self {
        let since = |new, before, taken| if new == before { taken } else { new };
        Self {
            atime: since(self.atime, before.atime, taken.atime),
            mtime: since(self.mtime, before.mtime, taken.mtime),
            ctime: since(self.ctime, before.ctime, taken.ctime),
        }
    }
}

/// Approximate memory of a node with its core, two headers of references and its table entry. Bytes
/// in the inode, which are few and mostly none, are not counted.
pub(crate) const MEMORY_BYTES: usize = size_of::<Node>() + size_of::<InodeCore>() + 2 * 16 + 48;

/// An inode in memory. See the [module](self). `Send` and `Sync`.
pub struct Node {
    ino: u64,
    cache: Kept<BufferCache>,
    lock: RwLock<(), NodeLock>,
    published: Mutex<Published, NodeCore>,
    log: ItemState,
    /// The checkpoint with the last transaction that changed it; 0 for none since it was read.
    sequence: AtomicU64,
    /// The list of orphans that it is on, counted from 1; 0 for none.
    orphan: AtomicU32,
    /// Errors of write-back of its data (`wb_err`).
    write_errors: ErrorSeq,
}

struct Published {
    core: Arc<InodeCore>,
    /// Lazy times, which replace those of the core.
    new_times: Option<Times>,
    /// Whether the block of its record is no longer one of inodes.
    is_given_up: bool,
    /// The file data in memory.
    data: Option<Arc<FilePages>>,
}

/// The guard of a node that is locked for changing.
pub type NodeGuard<'n> = RwLockWriteGuard<'n, (), NodeLock>;
/// The guard of a node whose trees are read.
pub type NodeReadGuard<'n> = RwLockReadGuard<'n, (), NodeLock>;

impl Node {
    /// Creates the node of inode `ino` with the state `core`.
    #[must_use]
    pub fn new(ino: u64, core: Arc<InodeCore>, cache: &PerCpuArc<BufferCache>) -> Arc<Self> {
        let published = Published { core, new_times: None, is_given_up: false, data: None };
        Arc::new(Self {
            ino,
            cache: cache.keep(),
            lock: RwLock::new(()),
            published: Mutex::new(published),
            log: ItemState::new(),
            sequence: AtomicU64::new(0),
            orphan: AtomicU32::new(0),
            write_errors: ErrorSeq::new(),
        })
    }

    /// Returns the number of the inode.
    #[must_use]
    pub fn ino(&self) -> u64 {
        self.ino
    }

    /// Returns the block of its record, near which the blocks of the inode should be.
    #[must_use]
    pub fn block(&self) -> u64 {
        block_of(self.ino)
    }

    /// Locks the node for changing. Sleeps. The caller has begun its transaction, and holds no
    /// other node.
    pub fn lock(&self) -> NodeGuard<'_> {
        self.lock.write()
    }

    /// Locks the node for reading its trees. Sleeps while another thread changes it.
    pub fn read(&self) -> NodeReadGuard<'_> {
        self.lock.read()
    }

    /// Returns the state as of the last commit; its times may be older than those of
    /// [`core`](Self::core).
    #[must_use]
    pub fn stored(&self) -> Arc<InodeCore> {
        Arc::clone(&self.published.lock().core)
    }

    /// Returns the state as of the last commit, with the times that have changed since.
    #[must_use]
    pub fn core(&self) -> Arc<InodeCore> {
        let published = self.published.lock();
        match published.new_times {
            None => Arc::clone(&published.core),
            Some(Times { atime, mtime, ctime }) => {
                Arc::new(InodeCore { atime, mtime, ctime, ..(*published.core).clone() })
            }
        }
    }

    /// Copies the lazy times that `shown` returns, unless the inode has them already, is free, or
    /// is no longer the one of `generation`. Returns true if there were no unstored times before:
    /// then the caller has to ensure that they are stored. `shown` reads the times of the VFS
    /// inode; it is called under the lock of the core, and must not block.
    pub fn follow_times(&self, generation: u32, shown: impl FnOnce() -> Times) -> bool {
        let mut published = self.published.lock();
        let times = shown();
        let present = published.new_times.unwrap_or_else(|| Times::of(&published.core));
        let core = &published.core;
        if times == present || core.is_free() || core.generation != generation {
            return false;
        }
        published.new_times.replace(times).is_none()
    }

    /// Returns whether there are times that no transaction has included yet.
    #[must_use]
    pub fn has_new_times(&self) -> bool {
        self.published.lock().new_times.is_some()
    }

    /// Replaces the state by `core`, which was made from `before`: the result of
    /// [`core`](Self::core) in the transaction. The caller holds the node locked, and has added it
    /// to its transaction. Lazy times of an inode that it frees are discarded.
    pub fn publish(&self, core: Arc<InodeCore>, before: &InodeCore) {
        let (taken, before) = (Times::of(&core), Times::of(before));
        let mut published = self.published.lock();
        // A time that another thread has changed since then stays; otherwise the transaction's is
        // stored.
        let since = published.new_times.map(|new| new.since(before, taken));
        published.new_times = since.filter(|new| *new != taken && !core.is_free());
        let old = std::mem::replace(&mut published.core, core);
        published.is_given_up = false;
        drop(published);
        drop(old);
    }

    /// Notes that the transaction that has just freed the inode also frees the chunk of its number:
    /// its log items are cancelled. Follows [`publish`](Self::publish).
    pub fn give_up(&self) {
        self.published.lock().is_given_up = true;
    }

    /// Notes that this checkpoint has the last transaction that changed the inode.
    pub fn set_sequence(&self, sequence: u64) {
        self.sequence.fetch_max(sequence, Ordering::AcqRel);
    }

    /// Returns the checkpoint that has to be durable for the inode to be, for
    /// [`Volume::force`](crate::volume::Volume::force); 0 for none.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.sequence.load(Ordering::Acquire)
    }

    /// Returns the list of orphans that the inode is on, if any.
    pub(crate) fn orphan_slot(&self) -> Option<usize> {
        (self.orphan.load(Ordering::Acquire) as usize).checked_sub(1)
    }

    pub(crate) fn set_orphan_slot(&self, slot: Option<usize>) {
        self.orphan.store(slot.map_or(0, |slot| slot as u32 + 1), Ordering::Release);
    }

    /// Returns the file data in memory, if there are any.
    #[must_use]
    pub fn data(&self) -> Option<Arc<FilePages>> {
        self.published.lock().data.clone()
    }

    /// Returns the file data in memory, and calls `make` to create them if there are none. The
    /// result of `make` is dropped if another thread was faster.
    pub fn data_or_init(&self, make: impl FnOnce(&InodeCore) -> Arc<FilePages>) -> Arc<FilePages> {
        if let Some(data) = self.data() {
            return data;
        }
        let made = make(&self.core());
        let mut published = self.published.lock();
        Arc::clone(published.data.get_or_insert(made))
    }

    /// Returns the errors that write-back of its data has met. The node stays in memory until they
    /// are reported.
    #[must_use]
    pub fn write_errors(&self) -> &ErrorSeq {
        &self.write_errors
    }

    /// Drops the file data in memory: the file is freed.
    pub fn drop_data(&self) {
        self.write_errors.reset();
        let data = self.published.lock().data.take();
        drop(data);
    }

    /// Returns the expected identity of the block of its record.
    #[must_use]
    pub fn expected(ino: u64) -> Expected {
        let owner = chunk_of(block_of(ino));
        // Each record is checked when it is decoded.
        Expected { magic: INODE_MAGIC, owner, check: |_, _| Ok(()) }
    }
}

impl LogItem for Node {
    fn state(&self) -> &ItemState {
        &self.log
    }

    fn key(&self) -> LogKey {
        LogKey { kind: KIND_INODE, id: self.ino }
    }

    fn format(&self, vector: &mut LogVector) {
        let published = self.published.lock();
        if published.is_given_up {
            vector.cancel();
            return;
        }
        let core = Arc::clone(&published.core);
        drop(published);
        vector.share(core);
    }

    fn memory_bytes(&self) -> usize {
        MEMORY_BYTES
    }

    fn push(&self, lsn: Lsn) -> vfscale_journal::Result<Pushed> {
        let published = self.published.lock();
        if self.log.is_pinned() {
            return Ok(Pushed::Pinned);
        }
        if published.is_given_up {
            return Ok(Pushed::Written);
        }
        let core = Arc::clone(&published.core);
        drop(published);
        let (record, slot) = (core.encode(), slot_of(self.ino));
        self.cache.write_inodes(self.block(), &Self::expected(self.ino), lsn, |block| {
            records_mut(block)[slot] = record;
        })?;
        Ok(Pushed::Written)
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("ino", &self.ino).finish_non_exhaustive()
    }
}

/// Locks several nodes for changing, each once, in ascending order of their numbers. Sleeps. The
/// caller has begun its transaction, and holds no other node.
pub fn lock_all<'n>(nodes: &[&'n Arc<Node>]) -> SmallVec<[NodeGuard<'n>; 4]> {
    let mut nodes: SmallVec<[&Arc<Node>; 4]> = nodes.into();
    nodes.sort_unstable_by_key(|node| node.ino);
    nodes.dedup_by_key(|node| node.ino);
    // The order of numbers makes several locks of one class safe.
    nodes.into_iter().map(|node| node.lock.write_nested()).collect()
}

#[cfg(test)]
mod tests;
