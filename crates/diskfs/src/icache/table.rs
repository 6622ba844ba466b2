//! The inodes in memory, by number.
//!
//! # Purpose
//!
//! One [`Node`] for each number, created from the record on disk at the first access. It stays in
//! memory while a thread uses it or the journal refers to it, and after that as long as the limit
//! permits.
//!
//! # Why a number never has two nodes
//!
//! A record is as old as its read. If a node was created, changed, written back and evicted while
//! another thread was still reading the record, that thread would restore the old inode. Therefore
//! a thread that finds no node inserts a mark, under the lock of the shard, before it reads; all
//! other threads wait until the read has ended. A node is evicted only if the table has the only
//! reference, if its times are stored, and if it is no [orphan](crate::inode::orphans), which only
//! its node tells; the journal's lists own a reference until the node is written back.
//!
//! This also holds for a free number: its node stays until it is written back, and is used again
//! for the next inode of that number.
//!
//! # Untrusted numbers
//!
//! An inode that a name refers to exists as long as the name is locked. The number in a file handle
//! may be anything: even a number in a freed block of inodes, which stays intact on the device
//! until it is overwritten, and whose inodes look alive. For such a number the group is consulted
//! ([`Groups::has_inode`](crate::alloc::Groups::has_inode)) after the mark is set. The answer then
//! holds until the node is in the table: a thread that frees or creates the inode needs its node,
//! and waits for the mark. No thread waits for a mark with a group locked.
//!
//! # Locks
//!
//! `inode_table`, one for each shard, is held only for a lookup, insertion or eviction. Only
//! `i_core` is taken under it.

use std::collections::VecDeque;
use std::collections::hash_map::Entry::Occupied;
use std::sync::Arc;

use smallvec::SmallVec;
use vfscale_journal::LogItem;
use vfscale_sync::atomic::{AtomicUsize, Ordering, fence};
use vfscale_sync::percpu_arc::PerCpuArc;
use vfscale_sync::{Condvar, Mutex, MutexGuard, cpu};

use crate::base::fault::Fault;
use crate::base::numbers::{NumberMap, shard_of};
use crate::base::ranks::NodeTableLock;
use crate::base::shared_limit::{SHARDS_IN_VAIN, SharedCache, SharedLimit};
use crate::buffer::BufferCache;
use crate::format::inode::{block_of, records, slot_of};
use crate::inode::core::InodeCore;
use crate::inode::incore::Node;
use crate::volume::Volume;

/// Number of nodes that are examined for eviction for each one that is inserted. More than one, so
/// an oversized table shrinks.
const LOOKS: usize = 4;

/// Number of shards for each CPU, unless each would have room for fewer than [`SHARD_NODES`].
const SHARDS_PER_CPU: usize = 64;
const SHARD_NODES: usize = 16;

/// The inodes of a volume that are in memory. Counterpart of the per-AG inode caches of XFS. `Send`
/// and `Sync`.
pub struct NodeTable {
    shards: Box<[InodeShard]>,
    /// Number of nodes beyond which a shard evicts unused ones.
    shard_limit: usize,
    /// The limit that it shares with the tables of other volumes.
    shared: Option<Arc<SharedLimit>>,
    /// The shard at which the next search for unused nodes begins.
    looked_at: AtomicUsize,
}

/// A shard, on cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
struct InodeShard {
    entries: Mutex<InodeEntries, NodeTableLock>,
    /// Signals that a read of a record has ended.
    loaded: Condvar,
}

struct InodeEntries {
    map: NumberMap<InodeEntry>,
    /// Numbers of nodes, in the order in which they were inserted or last found in use: the first
    /// are most likely unused.
    ring: VecDeque<u64>,
    /// The core of a new node for a free number, until a transaction makes it an inode.
    free: Arc<InodeCore>,
}

enum InodeEntry {
    /// A thread is reading the record.
    Loading,
    Present(Arc<Node>),
}

impl NodeTable {
    /// Creates an empty table that caches about `limit` unused nodes.
    #[cfg(any(test, shuttle))]
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self::with_limit(limit, None)
    }

    /// Creates an empty table like [`new`](Self::new), which counts its nodes in `shared` as well.
    /// Its owner has it [join](SharedLimit::join).
    pub(crate) fn with_limit(limit: usize, shared: Option<Arc<SharedLimit>>) -> Self {
        let cpus = cpu::most_slots() as usize;
        // Enough shards that unrelated inodes seldom share one.
        let shards = (limit / SHARD_NODES).clamp(4 * cpus, SHARDS_PER_CPU * cpus);
        let shards = shards.next_power_of_two();
        Self {
            shards: (0..shards).map(|_| InodeShard::default()).collect(),
            shard_limit: (limit / shards).max(SHARD_NODES),
            shared,
            looked_at: AtomicUsize::new(0),
        }
    }

    /// Unlocks a shard, which had `before` nodes when it was locked.
    fn unlock(&self, entries: MutexGuard<'_, InodeEntries, NodeTableLock>, before: usize) {
        if let Some(shared) = &self.shared {
            shared.changed(before, entries.ring.len());
        }
    }

    fn shard(&self, ino: u64) -> &InodeShard {
        &self.shards[shard_of(ino, self.shards.len())]
    }

    /// Returns the node of inode `ino`, which the volume refers to; `None` if there is no such
    /// inode. Sleeps if its record has to be read.
    ///
    /// # Errors
    /// Device errors and corruption, including a number that no inode of the volume can have.
    pub fn get(&self, volume: &Volume, ino: u64) -> Result<Option<Arc<Node>>, Fault> {
        self.find(ino, volume.cache(), || read(volume, ino))
    }

    /// Returns the node of an untrusted number: one from a file handle, or one that was read some
    /// time ago. First asks the group whether there is such an inode. Sleeps if the node is not in
    /// memory; the caller holds no lock of a group.
    ///
    /// # Errors
    /// Device errors and corruption.
    pub fn get_untrusted(&self, volume: &Volume, ino: u64) -> Result<Option<Arc<Node>>, Fault> {
        let is_there = || volume.groups().has_inode(&volume.reader(), ino).map_err(Fault::local);
        self.find(ino, volume.cache(), || if is_there()? { read(volume, ino) } else { Ok(None) })
    }

    /// Returns the node of a number. If it is not in memory, it is created from the result of
    /// `read`.
    fn find(
        &self,
        ino: u64,
        cache: &PerCpuArc<BufferCache>,
        read: impl FnOnce() -> Result<Option<InodeCore>, Fault>,
    ) -> Result<Option<Arc<Node>>, Fault> {
        let shard = self.shard(ino);
        let mut entries = shard.entries.lock();
        loop {
            match entries.map.get(&ino) {
                Some(InodeEntry::Present(node)) => {
                    let node = Arc::clone(node);
                    drop(entries);
                    return Ok(Some(node).filter(|node| !node.core().is_free()));
                }
                Some(InodeEntry::Loading) => entries = shard.loaded.wait(entries),
                None => break,
            }
        }
        entries.map.insert(ino, InodeEntry::Loading);
        drop(entries);
        let loading = InodeLoading { shard, ino };
        let node = read()?.map(|core| Node::new(ino, core.into(), cache));
        Ok(node.inspect(|node| self.enter(&loading, node)))
    }

    /// Returns the node of a free number that is about to be used: the node of the former inode, if
    /// that is still in memory, or a new one.
    pub fn claim(&self, ino: u64, cache: &PerCpuArc<BufferCache>) -> Arc<Node> {
        let shard = self.shard(ino);
        let mut entries = shard.entries.lock();
        loop {
            match entries.map.get(&ino) {
                Some(InodeEntry::Present(node)) => return Arc::clone(node),
                Some(InodeEntry::Loading) => entries = shard.loaded.wait(entries),
                None => break,
            }
        }
        let node = Node::new(ino, entries.free.clone(), cache);
        let before = entries.ring.len();
        entries.put(&node);
        let given_up = entries.shrink(self.shard_limit);
        self.unlock(entries, before);
        drop(given_up);
        node
    }

    /// Inserts a node whose record was read.
    fn enter(&self, loading: &InodeLoading<'_>, node: &Arc<Node>) {
        let mut entries = loading.shard.entries.lock();
        let before = entries.ring.len();
        entries.put(node);
        let given_up = entries.shrink(self.shard_limit);
        self.unlock(entries, before);
        drop(given_up);
        if let Some(shared) = &self.shared {
            shared.trim();
        }
    }

    /// Returns the number of nodes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.entries.lock().ring.len()).sum()
    }
}

impl SharedCache for NodeTable {
    fn drop_unused(&self, most: usize) -> usize {
        let (mut dropped, mut in_vain) = (0, 0);
        for _ in 0..self.shards.len() {
            let at = self.looked_at.fetch_add(1, Ordering::Relaxed) % self.shards.len();
            let mut entries = self.shards[at].entries.lock();
            let before = entries.ring.len();
            let given_up = entries.shrink(before.saturating_sub(most - dropped));
            self.unlock(entries, before);
            dropped += given_up.len();
            in_vain = if given_up.is_empty() { in_vain + 1 } else { 0 };
            if dropped >= most || in_vain >= SHARDS_IN_VAIN {
                break;
            }
        }
        dropped
    }
}

impl Drop for NodeTable {
    fn drop(&mut self) {
        if let Some(shared) = &self.shared {
            shared.changed(self.len(), 0);
        }
    }
}

/// Reads and decodes the record of an inode; `None` if it is free.
fn read(volume: &Volume, ino: u64) -> Result<Option<InodeCore>, Fault> {
    let address = block_of(ino);
    if !volume.is_for_files(address) {
        return Ok(None);
    }
    let block = volume.cache().read_inodes(address, &Node::expected(ino))?;
    let record = &records(&block)[slot_of(ino)];
    if record.is_free() && record.is_whole() {
        return Ok(None);
    }
    let is_possible = |start, blocks| volume.is_run_for_files(start, blocks);
    let decoded = InodeCore::decode(ino, record, is_possible);
    Ok(Some(decoded.map_err(|damage| match record.is_whole() {
        true => Fault::Damage(damage),
        false => Fault::Local(damage),
    })?))
}

impl InodeEntry {
    fn node(&self) -> Option<&Arc<Node>> {
        match self {
            Self::Loading => None,
            Self::Present(node) => Some(node),
        }
    }

    fn into_node(self) -> Option<Arc<Node>> {
        match self {
            Self::Loading => None,
            Self::Present(node) => Some(node),
        }
    }
}

impl Default for InodeEntries {
    fn default() -> Self {
        let free = Arc::new(InodeCore::free(0));
        Self { map: NumberMap::default(), ring: VecDeque::new(), free }
    }
}

impl InodeEntries {
    fn put(&mut self, node: &Arc<Node>) {
        let former = self.map.insert(node.ino(), InodeEntry::Present(Arc::clone(node)));
        if former.as_ref().and_then(InodeEntry::node).is_none() {
            self.ring.push_back(node.ino());
        }
    }

    /// Evicts a few nodes if there are too many, and returns them, to be dropped outside of the
    /// lock. Ends at the first that is in use, because each check fetches a node from memory.
    fn shrink(&mut self, limit: usize) -> SmallVec<[Arc<Node>; LOOKS]> {
        let mut given_up = SmallVec::new();
        for _ in 0..LOOKS {
            if self.ring.len() <= limit {
                break;
            }
            let Some(ino) = self.ring.pop_front() else { break };
            match self.map.entry(ino) {
                Occupied(entry) if entry.get().node().is_some_and(is_unused) => {
                    given_up.extend(entry.remove().into_node());
                }
                _ => {
                    self.ring.push_back(ino);
                    break;
                }
            }
        }
        given_up
    }
}

/// Returns whether only the table has a reference, there is nothing to be written, and the inode is
/// no orphan. References are taken from the table, under its lock, so the answer stays true while
/// the lock is held.
fn is_unused(node: &Arc<Node>) -> bool {
    if Arc::strong_count(node) > 1 {
        return false;
    }
    // Pairs with the release by which the last other reference was dropped.
    fence(Ordering::Acquire);
    // The log has given it up without having it: the older state on the device does not go with
    // what is in memory.
    !node.state().is_pinned()
        && !node.is_orphan()
        && !node.has_new_times()
        && node.write_errors().is_told()
        && node.data().is_none_or(|data| data.is_idle())
}

/// A read under way. Its drop, after success or failure, ends the wait of other threads.
struct InodeLoading<'t> {
    shard: &'t InodeShard,
    ino: u64,
}

impl Drop for InodeLoading<'_> {
    fn drop(&mut self) {
        let mut entries = self.shard.entries.lock();
        if matches!(entries.map.get(&self.ino), Some(InodeEntry::Loading)) {
            entries.map.remove(&self.ino);
        }
        drop(entries);
        self.shard.loaded.notify_all();
    }
}

impl std::fmt::Debug for NodeTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeTable").field("nodes", &self.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
