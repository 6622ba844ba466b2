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
//! * The block of a record that is to be written back is in memory: a transaction that changes an
//!   inode reads it before its commit, and the node holds it until write-back.
//!   So a block that can't be read fails the call that changes the inode, and not the write-back,
//!   for all.
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
//! and for several nodes in ascending order of their numbers ([`lock_all`]); that of a new inode
//! before all others, since nobody waits for it yet (`Node::lock_new`). `i_core` is a leaf.
//! Threads that change names of a directory side by side hold that one shared
//! (`inode/delayed_names.rs`).

use std::fmt;
use std::sync::{Arc, OnceLock};

use smallvec::SmallVec;
use vfscale_journal::{ItemState, LogItem, LogKey, LogVector, Lsn, Pushed};
use vfscale_sync::Mutex;
use vfscale_sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use vfscale_sync::errseq::ErrorSeq;
use vfscale_sync::lock::assert_held;
use vfscale_sync::percpu_arc::{Kept, PerCpuArc};
use vfscale_sync::sharded_rwlock::{
    ReaderParts, ShardedReadGuard, ShardedRwLock, ShardedWriteGuard,
};

use crate::base::ranks::{NodeCore, NodeLock};
use crate::buffer::{Buffer, BufferCache};
use crate::format::inode::{
    INODE_MAGIC, INODES_PER_BLOCK, block_of, chunk_of, records_mut, slot_of,
};
use crate::format::{BLOCK_BYTES, Expected};
use crate::inode::core::{DataFork, InodeCore};
use crate::inode::delayed_names::DelayedNames;
use crate::inode::times::Times;
use crate::page_cache::FilePages;

/// The kind of log item of an inode.
pub const KIND_INODE: u32 = 2;

/// Approximate memory of a node with its core, two headers of references and its table entry. Bytes
/// in the inode, which are few and mostly none, are not counted.
pub(crate) const MEMORY_BYTES: usize = size_of::<Node>() + size_of::<InodeCore>() + 2 * 16 + 48;

/// An inode in memory. See the [module](self). `Send` and `Sync`.
///
/// The fields are in the order of who writes them: those in front are written by each change of the
/// inode, the last ones by nobody in general. The count of references precedes all of them, and a
/// line of the state in the log, which is changed by commits only, lies between the two.
#[repr(C)]
pub struct Node {
    lock: ShardedRwLock<NodeLock>,
    /// Number of threads that found it locked, and of names that came and went in one context, of
    /// late. A hint: written without synchronization.
    heat: AtomicU32,
    /// Whether it is an orphan ([`VolumeOrphans`](crate::inode::orphans::VolumeOrphans)).
    orphan: AtomicBool,
    published: Mutex<Published, NodeCore>,
    /// The checkpoint with the last transaction that changed it; 0 for none since it was read.
    sequence: AtomicU64,
    /// The volume's count of writes of data at the last one of this inode's; 0 if there was none
    /// since it was read.
    data_written: AtomicU64,
    log: ItemState,
    /// Errors of write-back of its data (`wb_err`).
    write_errors: ErrorSeq,
    ino: u64,
    cache: Kept<BufferCache>,
    /// The parts of `lock`, of a directory whose names are changed side by side.
    readers: ReaderParts,
    /// The names of a directory that was hot.
    names: OnceLock<Box<DelayedNames>>,
}

struct Published {
    core: Arc<InodeCore>,
    /// Lazy times, which replace those of the core.
    new_times: Option<Times>,
    /// Whether the block of its record is no longer one of inodes.
    is_given_up: bool,
    /// Whether it was made without a name, and no transaction has given it one.
    is_unnamed: bool,
    /// The file data in memory.
    data: Option<Arc<FilePages>>,
    /// The block of its record, while a change is to be written back to it.
    home: Option<Arc<Buffer>>,
}

impl Published {
    /// Returns a copy of the core, with the times that have changed since.
    fn copy(&self) -> InodeCore {
        let core = InodeCore::clone(&self.core);
        match self.new_times {
            None => core,
            Some(Times { atime, mtime, ctime }) => InodeCore { atime, mtime, ctime, ..core },
        }
    }
}

impl Published {
    fn times(&self) -> Times {
        self.new_times.unwrap_or_else(|| Times::of(&self.core))
    }
}

/// A node at one moment.
pub(crate) struct NodeNow {
    /// The state as of the last commit.
    pub(crate) stored: Arc<InodeCore>,
    /// The times, which may have changed since.
    pub(crate) times: Times,
    /// The file data in memory, if there are any.
    pub(crate) data: Option<Arc<FilePages>>,
}

/// The guard of a node that is locked for changing.
pub type NodeGuard<'n> = ShardedWriteGuard<'n, NodeLock>;
/// The guard of a node whose trees are read.
pub type NodeReadGuard<'n> = ShardedReadGuard<'n, NodeLock>;

impl Node {
    /// Creates the node of inode `ino` with the state `core`.
    #[must_use]
    pub fn new(ino: u64, core: Arc<InodeCore>, cache: &PerCpuArc<BufferCache>) -> Arc<Self> {
        let published = Published {
            core,
            new_times: None,
            is_given_up: false,
            is_unnamed: false,
            data: None,
            home: None,
        };
        Arc::new(Self {
            lock: ShardedRwLock::new(),
            heat: AtomicU32::new(0),
            orphan: AtomicBool::new(false),
            published: Mutex::new(published),
            sequence: AtomicU64::new(0),
            data_written: AtomicU64::new(0),
            log: ItemState::new(),
            write_errors: ErrorSeq::new(),
            ino,
            cache: cache.keep(),
            readers: ReaderParts::new(),
            names: OnceLock::new(),
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
        self.note_wait();
        self.lock.write(&self.readers)
    }

    /// Locks the node of a free number, which the caller's transaction makes an inode: until the
    /// commit has returned, no other thread changes it, such as one with a handle of the number.
    /// The caller may hold any nodes: no thread that holds a node waits for one of a free number.
    pub(crate) fn lock_new(&self) -> NodeGuard<'_> {
        self.lock.write_nested(&self.readers)
    }

    /// Locks the node like [`lock`](Self::lock); the caller may hold nodes with lower numbers, and
    /// [new](Self::lock_new) ones.
    pub(crate) fn lock_nested(&self) -> NodeGuard<'_> {
        self.note_wait();
        self.lock.write_nested(&self.readers)
    }

    /// Locks a directory for changes of its names side by side with other threads. Sleeps while
    /// another thread changes it otherwise. The caller has begun its transaction, and holds only
    /// nodes with lower numbers.
    pub(crate) fn share(&self) -> NodeReadGuard<'_> {
        if let Some(names) = self.delayed_names()
            && !self.lock.is_open(&self.readers)
            && self.lock.note_cpu(names.cpus)
        {
            self.lock.write_nested(&self.readers).spread(names.cpus);
        }
        self.lock.read_nested(&self.readers)
    }

    /// Locks the node for reading its trees. Sleeps while another thread changes it.
    pub fn read(&self) -> NodeReadGuard<'_> {
        self.lock.read(&self.readers)
    }

    /// Notes whether another thread is about to make this one wait.
    fn note_wait(&self) {
        if self.lock.is_taken() {
            self.heat_up();
        }
    }

    /// Notes that a name of this directory is about to be removed: it may have been added in the
    /// same context of the log. Only if the directory lies in its inode, so that it has few names:
    /// where many are removed, or moved over others, delaying them gains nothing. They stay changed
    /// until the context ends.
    pub(crate) fn note_removal(&self, inode: &Self) {
        // The inode was changed in the last context in which the directory was.
        let is_new = inode.sequence() != 0 && inode.sequence() == self.sequence();
        if is_new && self.look(|core, _| !matches!(core.data, DataFork::Tree { .. })) {
            self.heat_up();
        }
    }

    fn heat_up(&self) {
        let heat = self.heat.load(Ordering::Relaxed);
        self.heat.store(heat.saturating_add(1), Ordering::Relaxed);
    }

    /// Returns the delayed names, if the inode is a directory that has had some.
    pub(crate) fn delayed_names(&self) -> Option<&DelayedNames> {
        self.names.get().map(Box::as_ref)
    }

    /// Returns the delayed names of a directory, if it is hot: if at least `times` threads have
    /// waited for its lock, or names have come and gone, since it [cooled](Self::cool).
    pub(crate) fn names_if_hot(&self, times: u32) -> Option<&DelayedNames> {
        // Apart from the fields of the inode, which other threads change.
        if let Some(names) = self.delayed_names().filter(|names| names.is_hot()) {
            return Some(names);
        }
        if self.heat.load(Ordering::Relaxed) < times {
            return None;
        }
        if self.names.get().is_none() {
            // Under the lock, the names begin with the core that the next transaction replaces.
            let published = self.published.lock();
            if self.names.get().is_none() {
                let _ = self.names.set(Box::new(DelayedNames::try_new(&published.core)?));
            }
        }
        let names = self.delayed_names()?;
        names.note_hot(true);
        Some(names)
    }

    /// Forgets the heat of a directory.
    pub(crate) fn cool(&self) {
        if self.heat.load(Ordering::Relaxed) > 0 {
            self.heat.store(0, Ordering::Relaxed);
        }
        if let Some(names) = self.delayed_names() {
            names.note_hot(false);
        }
    }

    /// Returns the state as of the last commit; its times may be older than those of
    /// [`core`](Self::core).
    #[must_use]
    pub fn stored(&self) -> Arc<InodeCore> {
        Arc::clone(&self.published.lock().core)
    }

    /// Returns all of the present state that a VFS inode is made from.
    pub(crate) fn now(&self) -> NodeNow {
        let published = self.published.lock();
        let (stored, data) = (Arc::clone(&published.core), published.data.clone());
        NodeNow { stored, times: published.times(), data }
    }

    /// Returns the present times.
    pub(crate) fn times(&self) -> Times {
        self.published.lock().times()
    }

    /// Returns the result of `look`, which sees the state as of the last commit, and the file data
    /// in memory. It is called under the lock of the core, and must not block.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&InodeCore, Option<&FilePages>) -> T) -> T {
        let published = self.published.lock();
        look(&published.core, published.data.as_deref())
    }

    /// Returns the state as of the last commit, with the times that have changed since.
    #[must_use]
    pub fn core(&self) -> Arc<InodeCore> {
        let published = self.published.lock();
        match published.new_times {
            None => Arc::clone(&published.core),
            Some(_) => Arc::new(published.copy()),
        }
    }

    /// Returns a copy of the state as [`core`](Self::core) does, to which nobody else refers, and
    /// whether the block of the record is held ([`has_home`](Self::has_home)).
    pub(crate) fn copy(&self) -> (InodeCore, bool) {
        let published = self.published.lock();
        (published.copy(), published.home.is_some())
    }

    /// Copies the lazy times that `shown` returns, unless the inode has them already, is free, or
    /// is no longer the one of `generation`. Returns true if there were no unstored times before:
    /// then the caller has to ensure that they are stored. `shown` reads the times of the VFS
    /// inode; it is called under the lock of the core, and must not block.
    pub fn follow_times(&self, generation: u32, shown: impl FnOnce() -> Times) -> bool {
        let mut published = self.published.lock();
        let times = shown();
        let present = published.times();
        let core = &published.core;
        if core.is_free() || core.generation != generation {
            return false;
        }
        let is_new = times != present && published.new_times.replace(times).is_none();
        if let Some(names) = self.delayed_names() {
            names.note_times(&times);
        }
        is_new
    }

    /// Returns whether a directory whose names are changed side by side has copied the times of its
    /// VFS inode already, which `shown` reads. A thread that [publishes](Self::publish) others has
    /// the node copy those of the VFS inode afterwards, if they differ.
    pub(crate) fn has_times(&self, shown: impl FnOnce() -> Times) -> bool {
        self.delayed_names().is_some_and(|names| names.has_times(&shown()))
    }

    /// Returns whether there are times that no transaction has included yet.
    #[must_use]
    pub fn has_new_times(&self) -> bool {
        self.published.lock().new_times.is_some()
    }

    /// Replaces the state by `core`, which was made from the result of [`core`](Self::core) in the
    /// transaction, with the times `before`. The node is in the transaction. Lazy times of an inode
    /// that it frees are discarded. From now on the node holds `home`, if that is given: the block
    /// of its record.
    pub fn publish(&self, core: Arc<InodeCore>, before: Times, home: Option<&Arc<Buffer>>) {
        assert_held::<NodeLock>();
        let taken = Times::of(&core);
        let mut published = self.published.lock();
        let former = home.and_then(|home| published.home.replace(Arc::clone(home)));
        // A time that another thread has changed since then stays; otherwise the transaction's is
        // stored.
        let since = published.new_times.map(|new| new.since(before, taken));
        published.new_times = since.filter(|new| *new != taken && !core.is_free());
        let old = std::mem::replace(&mut published.core, core);
        published.is_given_up = false;
        published.is_unnamed &= published.core.nlink == 0;
        let now = if let Some(names) = self.delayed_names() {
            names.note_times(&published.times());
            Some((names, Arc::clone(&published.core)))
        } else {
            None
        };
        drop(published);
        if let Some((names, core)) = now {
            names.note_stored(&core);
        }
        drop((old, former));
    }

    /// Notes that the transaction that has just freed the inode also frees the chunk of its number:
    /// its log items are cancelled. Follows [`publish`](Self::publish).
    pub fn give_up(&self) {
        let mut published = self.published.lock();
        published.is_given_up = true;
        let home = published.home.take();
        drop(published);
        drop(home);
        if let Some(names) = self.delayed_names() {
            names.note_home(false);
        }
    }

    /// Returns whether the block of its record is held in memory. It stays so until the commit, if
    /// the caller holds the node locked, or has delayed a name in it.
    pub(crate) fn has_home(&self) -> bool {
        self.published.lock().home.is_some()
    }

    /// Holds the block of its record in memory until it has been written back.
    pub(crate) fn hold_home(&self, home: Arc<Buffer>) {
        let former = self.published.lock().home.replace(home);
        drop(former);
    }

    /// Lets go of the block of its record, which is about to be written, unless a transaction
    /// changes the inode or a delayed name will.
    fn release_home(&self) {
        let mut published = self.published.lock();
        let is_needed =
            self.log.is_pinned() || self.lock.is_taken() || self.delayed_names().is_some();
        let home = published.home.take_if(|_| !is_needed);
        drop(published);
        drop(home);
    }

    /// Notes that the inode was made without a name. The caller has just made it.
    pub(crate) fn note_unnamed(&self) {
        let mut published = self.published.lock();
        published.is_unnamed = published.core.nlink == 0;
    }

    /// Returns whether the inode has never had a name, so that no crash leaves it. False before the
    /// transaction that names it can be in the log.
    pub(crate) fn is_unnamed(&self) -> bool {
        self.published.lock().is_unnamed
    }

    /// Notes that this checkpoint has the last transaction that changed the inode.
    pub fn set_sequence(&self, sequence: u64) {
        // Threads that change names of a directory side by side would all write it.
        let names = self.delayed_names();
        if names.is_some_and(|names| names.sequence() >= sequence) {
            return;
        }
        if self.sequence() < sequence {
            self.sequence.fetch_max(sequence, Ordering::AcqRel);
        }
        if let Some(names) = names {
            names.note_sequence(sequence);
        }
    }

    /// Returns the checkpoint that has to be durable for the inode to be, for
    /// [`Volume::force`](crate::volume::Volume::force); 0 for none.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.sequence.load(Ordering::Acquire)
    }

    /// Notes that data of the inode was written, with the volume's count since. Called before its
    /// pages are clean.
    pub(crate) fn note_data_written(&self, count: u64) {
        self.data_written.fetch_max(count, Ordering::AcqRel);
    }

    /// Returns the count that has to be flushed for the data of the inode to be durable, for
    /// [`Volume::flush_data`](crate::volume::Volume::flush_data). `all` returns the volume's count:
    /// an inode that was read lately may have data that was written before.
    pub(crate) fn data_written(&self, all: impl FnOnce() -> u64) -> u64 {
        match self.data_written.load(Ordering::Acquire) {
            0 => {
                let all = all();
                self.note_data_written(all);
                all
            }
            count => count,
        }
    }

    /// Returns whether the inode is an orphan.
    pub(crate) fn is_orphan(&self) -> bool {
        self.orphan.load(Ordering::Acquire)
    }

    /// Marks the inode as an orphan, or removes the mark.
    pub(crate) fn set_orphan(&self, is_orphan: bool) {
        assert_held::<NodeLock>();
        self.orphan.store(is_orphan, Ordering::Release);
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

    /// Drops the file data in memory, if `is_freed` returns true for the state as of the last
    /// commit: the file is freed then. Returns its generation. `is_freed` is called under the lock
    /// of the core, and must not block.
    pub(crate) fn drop_data_if(&self, is_freed: impl FnOnce(&InodeCore) -> bool) -> Option<u32> {
        let mut published = self.published.lock();
        if !is_freed(&published.core) {
            return None;
        }
        let (generation, data) = (published.core.generation, published.data.take());
        drop(published);
        self.write_errors.reset();
        drop(data);
        Some(generation)
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
        // With its share of the block that it holds.
        MEMORY_BYTES + BLOCK_BYTES / INODES_PER_BLOCK as usize
    }

    fn logged(&self, sequence: u64) {
        self.set_sequence(sequence);
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
        self.release_home();
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
    nodes.into_iter().map(|node| node.lock_nested()).collect()
}

/// How a thread holds the directories in which it changes names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DirLock {
    /// For itself: it writes the names into the directories.
    Alone,
    /// Shared with others that change names there: it [notes](crate::inode::delayed_names) the
    /// change of each name. No name may lead to a directory.
    Shared,
}

/// The guard of a node in [`DirLock::lock`].
pub(crate) enum DirGuard<'n> {
    Alone(#[expect(dead_code, reason = "held until its drop")] NodeGuard<'n>),
    Shared(#[expect(dead_code, reason = "held until its drop")] NodeReadGuard<'n>),
}

impl DirLock {
    /// Locks a directory. Sleeps. The caller has begun its transaction, and holds only nodes with
    /// lower numbers, and [new](Node::lock_new) ones.
    pub(crate) fn lock_one(self, dir: &Node) -> DirGuard<'_> {
        match self {
            Self::Alone => DirGuard::Alone(dir.lock_nested()),
            Self::Shared => DirGuard::Shared(dir.share()),
        }
    }

    /// Locks `nodes` for changing, and the directories `dirs`, each once, in ascending order of
    /// their numbers. Sleeps. The caller has begun its transaction, and holds no other node.
    pub(crate) fn lock<'n>(
        self,
        nodes: &[&'n Arc<Node>],
        dirs: &[&'n Arc<Node>],
    ) -> SmallVec<[DirGuard<'n>; 4]> {
        let changed = nodes.iter().map(|node| (*node, Self::Alone));
        let mut sorted = SmallVec::<[(&Arc<Node>, Self); 4]>::new();
        for (node, how) in changed.chain(dirs.iter().map(|dir| (*dir, self))) {
            // They are two mostly: sorted as they come.
            let at = sorted.iter().position(|(other, _)| node.ino <= other.ino);
            let at = at.unwrap_or(sorted.len());
            if sorted.get(at).is_none_or(|(other, _)| other.ino != node.ino) {
                sorted.insert(at, (node, how));
            }
        }
        sorted.into_iter().map(|(node, how)| how.lock_one(node)).collect()
    }
}

#[cfg(test)]
mod tests;
