//! The node table: the inodes that the kernel knows by number.
//!
//! A node stands for an inode and holds an open handle of it, so the inode exists and can be acted
//! on even if its names are removed. All names of an inode share one node. Each entry in a reply is
//! one lookup, which the kernel counts; it returns lookups with `FORGET`. The count here is the
//! same number. The node is removed when it reaches zero.
//!
//! * Invariant: a node is in the table if and only if its count is above zero. The root, number 1,
//!   is always present and never counted.
//! * Locks: one mutex per shard, held for one hash table operation only. The lock over foreign
//!   numbers comes before a shard's. No handle is dropped under either, since that may free a file.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::param::page_size;
use vfscale::posix::Stat;
use vfscale::{Errno, File};

use crate::wire::ROOT;

/// Number of shards, large enough that two workers rarely contend for one.
const SHARDS: usize = 64;

/// The first number for inodes of other mounts than the root's.
const FOREIGN_FIRST: u64 = 1 << 62;

/// The operations that a node's handle permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// Naming the inode (`O_PATH`).
    Path,
    /// Reading, too.
    Read,
    /// Writing, too.
    Write,
}

/// A node's handle.
#[derive(Clone, Debug)]
pub(crate) struct Handle {
    pub(crate) file: File,
    pub(crate) level: Level,
}

#[derive(Debug)]
struct Node {
    handle: Handle,
    lookups: u64,
    /// Mount and inode, for an inode of another mount than the root's.
    foreign: Option<(u64, u64)>,
    /// Whether the kernel was sent the zeros of a hole.
    is_hole_sent: bool,
    /// Whether a gathered write found no space, and no writer knows yet.
    is_full: bool,
    /// Whether the kernel may have pages in which a mapping stores.
    is_cached: bool,
    /// The former end of a file that has grown, inside of a page that the kernel may still send.
    former_end: Option<u64>,
}

impl Node {
    fn take_tail(&mut self, range: &Range<u64>) -> Option<Range<u64>> {
        let former = self.former_end?;
        let end = page_end(former);
        if range.start >= end || range.end <= end - page_size() as u64 {
            return None;
        }
        self.former_end = None;
        Some(former..end)
    }
}

/// Returns the end of the kernel's page that has the byte before an offset.
fn page_end(offset: u64) -> u64 {
    offset.checked_next_multiple_of(page_size() as u64).unwrap_or(offset)
}

type NodeMap = HashMap<u64, Node, BuildHasherDefault<NumberHasher>>;

/// Hasher for numbers that count up. They come from the file system, not from an adversary.
#[derive(Debug, Default)]
struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &b in bytes {
            self.write_u64(self.0 ^ u64::from(b));
        }
    }

    fn write_u64(&mut self, n: u64) {
        let n = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = n ^ (n >> 32);
    }
}

/// Node numbers of inodes of other mounts.
#[derive(Debug)]
struct Foreign {
    numbers: HashMap<(u64, u64), u64>,
    next: u64,
}

#[derive(Debug)]
#[repr(align(128))]
struct NodeShard(Mutex<NodeMap>);

/// All nodes of one connection.
#[derive(Debug)]
pub(crate) struct Nodes {
    shards: Box<[NodeShard]>,
    root: Handle,
    /// A handle of the root with a higher level, set when one is first needed.
    root_improved: OnceLock<Handle>,
    root_mount: u64,
    root_ino: u64,
    foreign: Mutex<Foreign>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code under these locks can panic with a table half changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Nodes {
    /// Creates a table that contains only the root.
    pub(crate) fn new(root: File, stat: &Stat) -> Nodes {
        Nodes {
            shards: (0..SHARDS).map(|_| NodeShard(Mutex::default())).collect(),
            root: Handle { file: root, level: Level::Path },
            root_improved: OnceLock::new(),
            root_mount: stat.mnt_id,
            root_ino: stat.ino,
            foreign: Mutex::new(Foreign { numbers: HashMap::new(), next: FOREIGN_FIRST }),
        }
    }

    fn shard(&self, id: u64) -> MutexGuard<'_, NodeMap> {
        // The low bits count up with the inode numbers, so consecutive inodes are in different
        // shards.
        lock(&self.shards[(id % SHARDS as u64) as usize].0)
    }

    /// Returns the node number of an inode on the root's mount. The root's inode number and 1 are
    /// swapped.
    fn own_number(&self, stat: &Stat) -> Option<u64> {
        if stat.mnt_id != self.root_mount || stat.ino == 0 || stat.ino >= FOREIGN_FIRST {
            None
        } else if stat.ino == self.root_ino {
            Some(ROOT)
        } else if stat.ino == ROOT {
            Some(self.root_ino)
        } else {
            Some(stat.ino)
        }
    }

    /// Returns the inode number that the kernel shows for a node.
    ///
    /// An inode of another mount may have the same number as one of the root's, and the kernel
    /// shows all of them on one device. So such an inode shows the node's number.
    pub(crate) fn shown_ino(&self, node: u64, stat: &Stat) -> u64 {
        if stat.mnt_id == self.root_mount { stat.ino } else { node }
    }

    /// Counts one lookup of the inode of `handle`, creating its node if there is none, and returns
    /// the node's number.
    pub(crate) fn grant(&self, handle: Handle, stat: &Stat) -> u64 {
        if let Some(id) = self.own_number(stat) {
            if id != ROOT {
                drop(self.count(id, handle, None));
            }
            return id;
        }
        let key = (stat.mnt_id, stat.ino);
        let mut foreign = lock(&self.foreign);
        let Foreign { numbers, next } = &mut *foreign;
        let id = *numbers.entry(key).or_insert_with(|| {
            let id = *next;
            *next += 1;
            id
        });
        let unused = self.count(id, handle, Some(key));
        drop(foreign);
        drop(unused);
        id
    }

    /// Adds a lookup. Returns the handle that is not needed, to be dropped after the locks are
    /// released.
    #[must_use]
    fn add(
        shard: &mut NodeMap,
        id: u64,
        handle: Handle,
        foreign: Option<(u64, u64)>,
    ) -> Option<Handle> {
        match shard.entry(id) {
            Entry::Occupied(mut node) => {
                let node = node.get_mut();
                node.lookups += 1;
                if handle.level > node.handle.level {
                    return Some(std::mem::replace(&mut node.handle, handle));
                }
                Some(handle)
            }
            Entry::Vacant(slot) => {
                slot.insert(Node {
                    handle,
                    lookups: 1,
                    foreign,
                    is_hole_sent: false,
                    is_full: false,
                    is_cached: false,
                    former_end: None,
                });
                None
            }
        }
    }

    fn count(&self, id: u64, handle: Handle, foreign: Option<(u64, u64)>) -> Option<Handle> {
        let mut shard = self.shard(id);
        Nodes::add(&mut shard, id, handle, foreign)
    }

    /// Subtracts `lookups` from a node's count.
    pub(crate) fn forget(&self, id: u64, lookups: u64) {
        if id == ROOT {
            return;
        }
        // Taken for foreign nodes only, before the shard's lock: number and node are added and
        // removed together.
        let mut foreign = (id >= FOREIGN_FIRST).then(|| lock(&self.foreign));
        let mut shard = self.shard(id);
        let Some(node) = shard.get_mut(&id) else {
            tracing::warn!(id, lookups, "the kernel forgets a node that it does not know");
            return;
        };
        if node.lookups < lookups {
            tracing::warn!(id, lookups, had = node.lookups, "more lookups forgotten than granted");
        }
        node.lookups = node.lookups.saturating_sub(lookups);
        if node.lookups > 0 {
            return;
        }
        let removed = shard.remove(&id);
        drop(shard);
        if let (Some(foreign), Some(key)) = (&mut foreign, removed.as_ref().and_then(|n| n.foreign))
        {
            foreign.numbers.remove(&key);
        }
        drop(foreign);
        drop(removed);
    }

    /// Returns a node's handle.
    ///
    /// # Errors
    /// Returns `ESTALE` for a number that the kernel can't know.
    pub(crate) fn get(&self, id: u64) -> Result<Handle, Errno> {
        if id == ROOT {
            return Ok(self.root_improved.get().unwrap_or(&self.root).clone());
        }
        self.shard(id).get(&id).map(|node| node.handle.clone()).ok_or(Errno::STALE)
    }

    /// Stores a handle of a higher level for a node that is still known.
    pub(crate) fn improve(&self, id: u64, handle: &Handle) {
        if id == ROOT {
            // A directory has only one level above `Path`, so the first such handle suffices.
            let _ = self.root_improved.set(handle.clone());
            return;
        }
        let replace = |node: &mut Node| {
            let old = &mut node.handle;
            (handle.level > old.level).then(|| std::mem::replace(old, handle.clone()))
        };
        let old = self.shard(id).get_mut(&id).and_then(replace);
        drop(old);
    }

    /// Notes that the kernel is sent the zeros of a hole of a node.
    pub(crate) fn note_hole_sent(&self, id: u64) {
        if let Some(node) = self.shard(id).get_mut(&id) {
            node.is_hole_sent = true;
        }
    }

    /// Returns whether the kernel was sent the zeros of a hole of a node.
    pub(crate) fn is_hole_sent(&self, id: u64) -> bool {
        self.shard(id).get(&id).is_some_and(|node| node.is_hole_sent)
    }

    /// Notes that the kernel has pages of a node now, with what the node has in this range.
    pub(crate) fn note_cached(&self, id: u64, range: Range<u64>) {
        if let Some(node) = self.shard(id).get_mut(&id) {
            node.is_cached = true;
            node.take_tail(&range);
        }
    }

    /// Returns whether the kernel may have pages of a node in which a mapping has stored, and
    /// assumes that it will have none.
    pub(crate) fn take_cached(&self, id: u64) -> bool {
        let mut shard = self.shard(id);
        shard.get_mut(&id).is_some_and(|node| std::mem::take(&mut node.is_cached))
    }

    /// Notes that a file gets a size.
    pub(crate) fn note_size(&self, id: u64, former: u64, size: u64) {
        if let Some(node) = self.shard(id).get_mut(&id) {
            let has_tail = former < size && page_end(former) > former;
            node.former_end = has_tail.then_some(former);
        }
    }

    /// Returns the bytes behind the former end of a file that has grown, in its page, when the
    /// kernel sends or receives bytes of that page for the first time since.
    pub(crate) fn take_tail(&self, id: u64, range: Range<u64>) -> Option<Range<u64>> {
        self.shard(id).get_mut(&id)?.take_tail(&range)
    }

    /// Notes whether there is a writer to tell that a gathered write of a node found no space.
    /// Returns whether there was.
    pub(crate) fn note_full(&self, id: u64, is_full: bool) -> bool {
        let mut shard = self.shard(id);
        shard.get_mut(&id).is_some_and(|node| std::mem::replace(&mut node.is_full, is_full))
    }

    /// Returns the node number of an inode that the kernel knows.
    pub(crate) fn find(&self, stat: &Stat) -> Option<u64> {
        let id = match self.own_number(stat) {
            Some(ROOT) => return Some(ROOT),
            Some(id) => id,
            None => *lock(&self.foreign).numbers.get(&(stat.mnt_id, stat.ino))?,
        };
        self.shard(id).contains_key(&id).then_some(id)
    }

    /// Returns the number of nodes without the root, and the sum of their lookups.
    pub(crate) fn totals(&self) -> (usize, u64) {
        self.shards.iter().fold((0, 0), |(nodes, lookups), slot| {
            let shard = lock(&slot.0);
            (nodes + shard.len(), lookups + shard.values().map(|node| node.lookups).sum::<u64>())
        })
    }
}
