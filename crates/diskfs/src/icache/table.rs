//! Which inodes are in memory.
//!
//! # Purpose
//!
//! One [`Node`] for each number, made of the record on disk when it is first asked for, and kept
//! for as long as anybody uses it or the journal has it; then for as long as there is room.
//!
//! # Why there is never a second one
//!
//! A record that is read is as old as the reading. If a node came, was changed, went home and was
//! given up while another thread was still reading the record, that thread would bring the old
//! inode back. So who finds no node leaves a mark, under the lock of the shard, before it reads;
//! everybody else waits for it. And a node is given up only if the table has the only reference,
//! which the journal's lists are one of as long as it is not home, and if its times are stored.
//!
//! The same goes for a number that is free: its node stays until that is home, and is used again
//! for the next inode of that number.
//!
//! # Numbers that nothing vouches for
//!
//! A name leads to an inode that is there for as long as the name is locked. A number out of a
//! handle leads anywhere: also to a block of inodes that was given up, which is whole on the device
//! for as long as nobody has written there, and whose inodes look alive. So for such a number the
//! group is asked ([`Groups::has_inode`](crate::alloc::Groups::has_inode)) once the mark is there.
//! Then the answer holds until the node is there: who frees the inode, or makes it, comes by its
//! node, and waits for the mark. Nobody waits for a mark with a group locked.
//!
//! # Locks
//!
//! `inode_table`, one for each shard, is held for no longer than a look. Below it there is only
//! `i_core`.

use std::collections::VecDeque;
use std::collections::hash_map::Entry::Occupied;
use std::sync::Arc;

use smallvec::SmallVec;
use vfscale_sync::percpu_arc::PerCpuArc;
use vfscale_sync::{Condvar, Mutex, cpu};

use crate::base::fault::Fault;
use crate::base::numbers::{NumberMap, shard_of};
use crate::base::ranks::NodeTableLock;
use crate::buffer::BufferCache;
use crate::format::inode::{block_of, records, slot_of};
use crate::inode::core::InodeCore;
use crate::inode::incore::Node;
use crate::volume::Volume;

/// How many nodes are looked at for each one that comes in, if none of them is used. More than one,
/// so that a table that is too large gets smaller.
const LOOKS: usize = 4;

/// How many shards there are for each CPU, unless each would have room for less than so many nodes.
const SHARDS_PER_CPU: usize = 64;
const SHARD_NODES: usize = 16;

/// The inodes of a volume that are in memory. `Send` and `Sync`.
pub struct NodeTable {
    shards: Box<[Shard]>,
    /// How many nodes a shard keeps if it can.
    shard_limit: usize,
}

/// On cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
struct Shard {
    entries: Mutex<Entries, NodeTableLock>,
    /// A record was read, or could not be.
    loaded: Condvar,
}

struct Entries {
    map: NumberMap<Entry>,
    /// Numbers of nodes, in the order in which they came or were last found used: those in front
    /// are most likely to be used no more.
    ring: VecDeque<u64>,
    /// What a new node for a free number is, until a transaction makes it an inode.
    free: Arc<InodeCore>,
}

enum Entry {
    /// Somebody is reading the record.
    Loading,
    Present(Arc<Node>),
}

impl NodeTable {
    /// An empty table that keeps `limit` nodes more or less of which nobody has need.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        let cpus = cpu::possible() as usize;
        // So many that inodes which have nothing to do with one another seldom share one.
        let shards = (limit / SHARD_NODES).clamp(4 * cpus, SHARDS_PER_CPU * cpus);
        let shards = shards.next_power_of_two();
        Self {
            shards: (0..shards).map(|_| Shard::default()).collect(),
            shard_limit: (limit / shards).max(SHARD_NODES),
        }
    }

    fn shard(&self, ino: u64) -> &Shard {
        &self.shards[shard_of(ino, self.shards.len())]
    }

    /// The node of inode `ino`, which something of the volume leads to; `None` if there is no such
    /// inode. Sleeps if its record has to be read.
    ///
    /// # Errors
    /// Those of the device, and damage; a number that no inode of the volume can have is damage,
    /// too.
    pub fn get(&self, volume: &Volume, ino: u64) -> Result<Option<Arc<Node>>, Fault> {
        self.find(ino, volume.cache(), || read(volume, ino))
    }

    /// The same for a number that nothing of the volume vouches for: one out of a handle, or one
    /// that was read a while ago. The group is asked first whether there is such an inode. Sleeps
    /// if the node is not in memory; the caller holds no lock of a group.
    ///
    /// # Errors
    /// Those of the device, and damage.
    pub fn get_untrusted(&self, volume: &Volume, ino: u64) -> Result<Option<Arc<Node>>, Fault> {
        let is_there = || Ok::<_, Fault>(volume.groups().has_inode(&volume.reader(), ino)?);
        self.find(ino, volume.cache(), || if is_there()? { read(volume, ino) } else { Ok(None) })
    }

    /// The node of a number. If there is none in memory, it is made of what `read` returns.
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
                Some(Entry::Present(node)) => {
                    let node = Arc::clone(node);
                    drop(entries);
                    return Ok(Some(node).filter(|node| !node.core().is_free()));
                }
                Some(Entry::Loading) => entries = shard.loaded.wait(entries),
                None => break,
            }
        }
        entries.map.insert(ino, Entry::Loading);
        drop(entries);
        let loading = Loading { shard, ino };
        let node = read()?.map(|core| Node::new(ino, core.into(), cache));
        Ok(node.inspect(|node| self.enter(&loading, node)))
    }

    /// The node of a number that is free and about to be used: that of the inode which had it
    /// before, if there is still something of it to be written, or a new one.
    pub fn claim(&self, ino: u64, cache: &PerCpuArc<BufferCache>) -> Arc<Node> {
        let shard = self.shard(ino);
        let mut entries = shard.entries.lock();
        loop {
            match entries.map.get(&ino) {
                Some(Entry::Present(node)) => return Arc::clone(node),
                Some(Entry::Loading) => entries = shard.loaded.wait(entries),
                None => break,
            }
        }
        let node = Node::new(ino, entries.free.clone(), cache);
        entries.put(&node);
        let given_up = entries.shrink(self.shard_limit);
        drop(entries);
        drop(given_up);
        node
    }

    /// Puts in what was read.
    fn enter(&self, loading: &Loading<'_>, node: &Arc<Node>) {
        let mut entries = loading.shard.entries.lock();
        entries.put(node);
        let given_up = entries.shrink(self.shard_limit);
        drop(entries);
        drop(given_up);
    }

    /// Calls `visit` with every node that is in memory, outside of all locks of the table.
    pub fn for_each(&self, mut visit: impl FnMut(&Arc<Node>)) {
        for shard in &self.shards {
            let entries = shard.entries.lock();
            let nodes: Vec<_> = entries.map.values().filter_map(Entry::node).cloned().collect();
            drop(entries);
            nodes.iter().for_each(&mut visit);
        }
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.entries.lock().ring.len()).sum()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Reads and decodes the record of an inode; `None` if it is free.
fn read(volume: &Volume, ino: u64) -> Result<Option<InodeCore>, Fault> {
    let address = block_of(ino);
    if !volume.is_for_files(address) {
        return Ok(None);
    }
    let block = volume.cache().read(address, &Node::expected(ino))?;
    let record = &records(&block)[slot_of(ino)];
    if record.is_free() {
        return Ok(None);
    }
    Ok(Some(InodeCore::decode(ino, record, |start, blocks| {
        volume.is_run_for_files(start, blocks)
    })?))
}

impl Entry {
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

impl Default for Entries {
    fn default() -> Self {
        let free = Arc::new(InodeCore::free(0));
        Self { map: NumberMap::default(), ring: VecDeque::new(), free }
    }
}

impl Entries {
    fn put(&mut self, node: &Arc<Node>) {
        let former = self.map.insert(node.ino(), Entry::Present(Arc::clone(node)));
        if former.as_ref().and_then(Entry::node).is_none() {
            self.ring.push_back(node.ino());
        }
    }

    /// Gives a few nodes up if there are too many, and returns them, to be dropped outside of the
    /// lock. Ends at the first that is used, for each look fetches a node from memory.
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

/// Whether only the table has it, and there is nothing to be written. References come from the
/// table, under its lock, so that this stays so.
fn is_unused(node: &Arc<Node>) -> bool {
    Arc::strong_count(node) == 1
        && !node.has_new_times()
        && node.write_errors().is_told()
        && node.data().is_none_or(|data| data.is_idle())
}

/// A reading under way. However it ends, nobody waits for it any longer.
struct Loading<'t> {
    shard: &'t Shard,
    ino: u64,
}

impl Drop for Loading<'_> {
    fn drop(&mut self) {
        let mut entries = self.shard.entries.lock();
        if matches!(entries.map.get(&self.ino), Some(Entry::Loading)) {
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
