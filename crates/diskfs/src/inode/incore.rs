//! An inode in memory, as the volume has it.
//!
//! # Purpose
//!
//! A [`Node`] stands for one inode number: what transactions change, what the log writes, what goes
//! home into a block of inodes. What the inode is at the moment is an [`InodeCore`] that never
//! changes itself: a transaction puts another one in its place when it commits. The VFS has inodes
//! of its own, which come and go; the node stays for as long as there is something that is not
//! home.
//!
//! # Invariants
//!
//! * There is one node for a number at a time ([`node_table`](crate::icache::table)), also when the
//!   number is freed and used again: so of one number there is never more than one item in the
//!   log's lists, and an old one can't go home after a newer.
//! * The core is replaced only within a transaction that has added the node before, under the lock
//!   of the core. Whoever finds the node not pinned under that lock has a core that the log has.
//!
//! # Times that change in passing
//!
//! Reading and writing a file change its times, much too often for transactions. The VFS tells
//! ([`Node::set_times`]) and the node remembers; the next transaction that changes the inode for
//! another reason takes them along, or one that is made for them, sooner or later.
//!
//! # Locks
//!
//! `i_node` is held exclusively from the first change in a transaction until the commit has
//! returned, and shared by whoever reads the trees of the inode, since what a commit publishes
//! appears one block after the other. It is taken after
//! [`Volume::begin`](crate::volume::Volume::begin), and of several nodes in ascending order of
//! their numbers ([`lock_all`]). `i_core` is a leaf.

use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;
use vfscale_journal::{ItemState, LogItem, LogKey, LogVector, Lsn, Pushed};
use vfscale_sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use vfscale_sync::errseq::ErrorSeq;
use vfscale_sync::lock::{RwLockReadGuard, RwLockWriteGuard};
use vfscale_sync::percpu_arc::{Kept, PerCpuArc};
use vfscale_sync::{Mutex, RwLock};

use crate::base::ranks::{NodeCore, NodeLock};
use crate::buffer::BufferCache;
use crate::format::Expected;
use crate::format::inode::{INODE_MAGIC, block_of, chunk_of, records_mut, slot_of};
use crate::inode::core::InodeCore;
use crate::page_cache::FileData;

/// The kind of log item that an inode is.
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

/// How much memory a node takes with its core, two headers of references and its place in the
/// table; what is in the inode not counted, which is little and mostly nothing.
pub(crate) const MEMORY_BYTES: usize = size_of::<Node>() + size_of::<InodeCore>() + 2 * 16 + 48;

/// An inode in memory. See the [module](self). `Send` and `Sync`.
pub struct Node {
    ino: u64,
    cache: Kept<BufferCache>,
    lock: RwLock<(), NodeLock>,
    published: Mutex<Published, NodeCore>,
    log: ItemState,
    /// The checkpoint with the last transaction that changed it; 0 for none since it is in memory.
    sequence: AtomicU64,
    atime: AtomicI64,
    mtime: AtomicI64,
    ctime: AtomicI64,
    /// The three above are newer than the core.
    has_times: AtomicBool,
    /// Which list of orphans it is on, counted from 1; 0 for none.
    orphan: AtomicU32,
    /// Errors of write-back of its data (`wb_err`).
    write_errors: ErrorSeq,
}

struct Published {
    core: Arc<InodeCore>,
    /// The block of its record is not one of inodes any more.
    is_given_up: bool,
    /// What is in memory of the data of the file that it is.
    data: Option<Arc<FileData>>,
}

/// A node that is locked for changing.
pub type NodeGuard<'n> = RwLockWriteGuard<'n, (), NodeLock>;
/// A node whose trees are read.
pub type NodeReadGuard<'n> = RwLockReadGuard<'n, (), NodeLock>;

impl Node {
    /// Of inode `ino`, which is `core` at the moment.
    #[must_use]
    pub fn new(ino: u64, core: Arc<InodeCore>, cache: &PerCpuArc<BufferCache>) -> Arc<Self> {
        let InodeCore { atime, mtime, ctime, .. } = *core;
        Arc::new(Self {
            ino,
            cache: cache.keep(),
            lock: RwLock::new(()),
            published: Mutex::new(Published { core, is_given_up: false, data: None }),
            log: ItemState::new(),
            sequence: AtomicU64::new(0),
            atime: AtomicI64::new(atime),
            mtime: AtomicI64::new(mtime),
            ctime: AtomicI64::new(ctime),
            has_times: AtomicBool::new(false),
            orphan: AtomicU32::new(0),
            write_errors: ErrorSeq::new(),
        })
    }

    /// The number of the inode.
    #[must_use]
    pub fn ino(&self) -> u64 {
        self.ino
    }

    /// The block that its record lies in: near to it is where what belongs to it should be.
    #[must_use]
    pub fn block(&self) -> u64 {
        block_of(self.ino)
    }

    /// Locks it for changing. Sleeps. The caller has begun his transaction, and holds no other
    /// node.
    pub fn lock(&self) -> NodeGuard<'_> {
        self.lock.write()
    }

    /// Locks it for reading its trees. Sleeps while it is being changed.
    pub fn read(&self) -> NodeReadGuard<'_> {
        self.lock.read()
    }

    /// What it is, as the last commit has left it; its times may be older than those of
    /// [`core`](Self::core).
    #[must_use]
    pub fn stored(&self) -> Arc<InodeCore> {
        Arc::clone(&self.published.lock().core)
    }

    /// What it is, as the last commit has left it, with the times that have changed since.
    #[must_use]
    pub fn core(&self) -> Arc<InodeCore> {
        let core = self.stored();
        if !self.has_new_times() {
            return core;
        }
        let Times { atime, mtime, ctime } = self.times();
        Arc::new(InodeCore { atime, mtime, ctime, ..(*core).clone() })
    }

    /// Times that have changed in passing. True if nothing was known of that before: then somebody
    /// has to see to it that they are stored. Never blocks.
    pub fn set_times(&self, times: Times) -> bool {
        self.atime.store(times.atime, Ordering::Relaxed);
        self.mtime.store(times.mtime, Ordering::Relaxed);
        self.ctime.store(times.ctime, Ordering::Relaxed);
        // Looked at first: a file that is read by everybody is not to be written by everybody.
        !self.has_times.load(Ordering::Acquire) && !self.has_times.swap(true, Ordering::AcqRel)
    }

    /// Times that have changed in passing are stored nowhere: the inode is gone. The caller holds
    /// the node locked, and nobody uses the inode.
    pub fn forget_times(&self) {
        self.has_times.store(false, Ordering::Release);
    }

    /// The same for an inode that was free when the caller looked. Does nothing if its number is in
    /// use again by now: then the times are those of the new inode.
    pub fn forget_times_of_free(&self) {
        // Whoever uses the number publishes under this lock before anybody changes times.
        let published = self.published.lock();
        if published.core.is_free() {
            self.forget_times();
        }
    }

    fn times(&self) -> Times {
        Times {
            atime: self.atime.load(Ordering::Relaxed),
            mtime: self.mtime.load(Ordering::Relaxed),
            ctime: self.ctime.load(Ordering::Relaxed),
        }
    }

    /// Whether there are times that no transaction has taken along yet.
    #[must_use]
    pub fn has_new_times(&self) -> bool {
        self.has_times.load(Ordering::Acquire)
    }

    /// Makes it `core`, which was made from `before`: what [`core`](Self::core) was when the
    /// transaction took it. The caller holds the node locked, and has added it to his transaction.
    pub fn publish(&self, core: Arc<InodeCore>, before: &InodeCore) {
        let taken = Times { atime: core.atime, mtime: core.mtime, ctime: core.ctime };
        let mut published = self.published.lock();
        let old = std::mem::replace(&mut published.core, core);
        published.is_given_up = false;
        drop(published);
        drop(old);
        // A time that was changed meanwhile stays; one that was not is the transaction's.
        let (order, failed) = (Ordering::AcqRel, Ordering::Relaxed);
        let _ = self.atime.compare_exchange(before.atime, taken.atime, order, failed);
        let _ = self.mtime.compare_exchange(before.mtime, taken.mtime, order, failed);
        let _ = self.ctime.compare_exchange(before.ctime, taken.ctime, order, failed);
        // Whoever changed the times before this exchange is seen below, and whoever does after it
        // says so again.
        if self.has_times.swap(false, Ordering::AcqRel) && self.times() != taken {
            self.has_times.store(true, Ordering::Release);
        }
    }

    /// The chunk of its number is given up by the transaction that has just freed it: what the log
    /// has of it is cancelled. Comes after [`publish`](Self::publish).
    pub fn give_up(&self) {
        self.published.lock().is_given_up = true;
    }

    /// The transaction that has changed it is in this checkpoint.
    pub fn set_sequence(&self, sequence: u64) {
        self.sequence.fetch_max(sequence, Ordering::AcqRel);
    }

    /// What has to be durable for it to be, for [`Volume::force`](crate::volume::Volume::force); 0
    /// for nothing.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.sequence.load(Ordering::Acquire)
    }

    /// Which list of orphans it is on, if any.
    pub(crate) fn orphan_slot(&self) -> Option<usize> {
        (self.orphan.load(Ordering::Acquire) as usize).checked_sub(1)
    }

    pub(crate) fn set_orphan_slot(&self, slot: Option<usize>) {
        self.orphan.store(slot.map_or(0, |slot| slot as u32 + 1), Ordering::Release);
    }

    /// What is in memory of its data, if there is anything.
    #[must_use]
    pub fn data(&self) -> Option<Arc<FileData>> {
        self.published.lock().data.clone()
    }

    /// The same, made by `make` if there is nothing. `make` may be called in vain.
    pub fn data_or_init(&self, make: impl FnOnce(&InodeCore) -> Arc<FileData>) -> Arc<FileData> {
        if let Some(data) = self.data() {
            return data;
        }
        let made = make(&self.core());
        let mut published = self.published.lock();
        Arc::clone(published.data.get_or_insert(made))
    }

    /// The errors that write-back of its data has met. It stays in memory for as long as nobody was
    /// told.
    #[must_use]
    pub fn write_errors(&self) -> &ErrorSeq {
        &self.write_errors
    }

    /// Lets go of what is in memory of its data: the file is gone.
    pub fn drop_data(&self) {
        self.write_errors.reset();
        let data = self.published.lock().data.take();
        drop(data);
    }

    /// What the block of its record must be.
    #[must_use]
    pub fn expected(ino: u64) -> Expected {
        let owner = chunk_of(block_of(ino));
        // Each record is looked at when it is decoded.
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
/// caller has begun his transaction, and holds no other node.
pub fn lock_all<'n>(nodes: &[&'n Arc<Node>]) -> SmallVec<[NodeGuard<'n>; 4]> {
    let mut nodes: SmallVec<[&Arc<Node>; 4]> = nodes.into();
    nodes.sort_unstable_by_key(|node| node.ino);
    nodes.dedup_by_key(|node| node.ino);
    // The order of numbers is what makes locks of one class safe together.
    nodes.into_iter().map(|node| node.lock.write_nested()).collect()
}

#[cfg(test)]
mod tests;
