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
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

use rustix::param::page_size;
use vfscale::posix::Stat;
use vfscale::volume::Differing;
use vfscale::{Errno, File};

use crate::wire::ROOT;

/// Number of shards, large enough that two workers rarely contend for one.
const SHARDS: usize = 64;

/// The first number for inodes of other mounts than the root's.
const FOREIGN_FIRST: u64 = 1 << 62;

/// The bit of a key that no mount has: an inode of the root's.
const OWN: u64 = 1 << 63;

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

/// Where the inode of a node is.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    Open(Handle),
    /// In a tree that has taken the place of another one, by its number and generation.
    Known(u64, u32),
    /// Nowhere: its number has other contents.
    Stale,
}

#[derive(Debug)]
struct Node {
    place: Place,
    lookups: u64,
    /// Number and generation of the inode.
    inode: Inode,
    /// The key of its number, if that is not the own one of its inode.
    foreign: Option<(u64, u64)>,
    /// Whether the kernel was sent the zeros of a hole.
    is_hole_sent: bool,
    /// The error of a gathered write that found no space, if no writer knows yet.
    full: Option<Errno>,
    /// Whether the kernel may have pages in which a mapping stores.
    is_cached: bool,
    /// The former end of a file that has grown, inside of a page that the kernel may still send.
    former_end: Option<u64>,
}

/// Number and generation of an inode.
type Inode = (u64, u32);

impl Node {
    /// Takes a handle if it is of a higher level, and returns the one that is not needed.
    fn improve(&mut self, handle: Handle) -> Option<Handle> {
        match &mut self.place {
            Place::Open(old) if handle.level > old.level => Some(std::mem::replace(old, handle)),
            place @ Place::Known(..) => {
                *place = Place::Open(handle);
                None
            }
            Place::Open(_) | Place::Stale => Some(handle),
        }
    }

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
    /// The handle of the root with the highest level that was needed.
    root: RwLock<Handle>,
    root_mount: AtomicU64,
    root_ino: AtomicU64,
    foreign: Mutex<Foreign>,
    /// Whether there may be nodes with a number for an inode of the root's mount that is not the
    /// inode's.
    is_renumbered: AtomicBool,
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
            root: RwLock::new(Handle { file: root, level: Level::Path }),
            root_mount: AtomicU64::new(stat.mnt_id),
            root_ino: AtomicU64::new(stat.ino),
            is_renumbered: AtomicBool::new(false),
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
        let root_ino = self.root_ino.load(Ordering::Relaxed);
        if !self.is_own(stat) || stat.ino == 0 || stat.ino >= FOREIGN_FIRST {
            None
        } else if stat.ino == root_ino {
            Some(ROOT)
        } else if stat.ino == ROOT {
            Some(root_ino)
        } else {
            Some(stat.ino)
        }
    }

    /// Returns the inode number that the kernel shows for a node.
    ///
    /// An inode of another mount may have the same number as one of the root's, and the kernel
    /// shows all of them on one device. So such an inode shows the node's number.
    pub(crate) fn shown_ino(&self, node: u64, stat: &Stat) -> u64 {
        if self.is_own(stat) { stat.ino } else { node }
    }

    /// Returns whether an inode is one of the root's mount.
    fn is_own(&self, stat: &Stat) -> bool {
        stat.mnt_id == self.root_mount.load(Ordering::Relaxed)
    }

    /// Counts one lookup of the inode of `handle`, creating its node if there is none, and returns
    /// the node's number.
    pub(crate) fn grant(&self, handle: Handle, stat: &Stat) -> u64 {
        let own = self.own_number(stat);
        if own == Some(ROOT) {
            return ROOT;
        }
        let inode = (stat.ino, stat.generation);
        if let Some(id) = own.filter(|_| !self.is_renumbered.load(Ordering::Relaxed)) {
            drop(self.count(id, handle, (inode, None)));
            return id;
        }
        let key = self.key(stat);
        let mut foreign = lock(&self.foreign);
        let Foreign { numbers, next } = &mut *foreign;
        // The kernel may have the inode's own number for what that was then.
        let is_free = |id: &u64| !numbers.contains_key(&key) && !self.is_other(*id, inode);
        if let Some(id) = own.filter(is_free) {
            let unused = self.count(id, handle, (inode, None));
            drop(foreign);
            drop(unused);
            return id;
        }
        let id = *numbers.entry(key).or_insert_with(|| {
            let id = *next;
            *next += 1;
            id
        });
        let unused = self.count(id, handle, (inode, Some(key)));
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
        (inode, foreign): (Inode, Option<(u64, u64)>),
    ) -> Option<Handle> {
        match shard.entry(id) {
            Entry::Occupied(mut node) => {
                let node = node.get_mut();
                node.lookups += 1;
                node.inode = inode;
                node.improve(handle)
            }
            Entry::Vacant(slot) => {
                slot.insert(Node {
                    place: Place::Open(handle),
                    lookups: 1,
                    inode,
                    foreign,
                    is_hole_sent: false,
                    full: None,
                    is_cached: false,
                    former_end: None,
                });
                None
            }
        }
    }

    fn count(&self, id: u64, handle: Handle, which: (Inode, Option<(u64, u64)>)) -> Option<Handle> {
        let mut shard = self.shard(id);
        Nodes::add(&mut shard, id, handle, which)
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

    /// Returns where the inode of a node is.
    ///
    /// # Errors
    /// Returns `ESTALE` for a number that the kernel can't know.
    pub(crate) fn get(&self, id: u64) -> Result<Place, Errno> {
        if id == ROOT {
            let root = self.root.read().unwrap_or_else(PoisonError::into_inner);
            return Ok(Place::Open(root.clone()));
        }
        self.shard(id).get(&id).map(|node| node.place.clone()).ok_or(Errno::STALE)
    }

    /// Returns whether a number stands for another inode.
    fn is_other(&self, id: u64, inode: Inode) -> bool {
        let is_other = |node: &Node| matches!(node.place, Place::Stale) || node.inode != inode;
        self.shard(id).get(&id).is_some_and(is_other)
    }

    /// Returns the key of the number of an inode that has not its own one: its mount, or, of the
    /// root's mount, its generation.
    fn key(&self, stat: &Stat) -> (u64, u64) {
        let own = OWN | u64::from(stat.generation);
        (if self.is_own(stat) { own } else { stat.mnt_id }, stat.ino)
    }

    /// Has the nodes lead to another tree, of which `root` is the root. Returns those of which the
    /// kernel may have what is not so any more; and the handles in the former tree, to be dropped.
    /// No request is served meanwhile.
    pub(crate) fn switch(
        &self,
        root: File,
        stat: &Stat,
        differing: &Differing,
    ) -> (Vec<u64>, Vec<Place>) {
        let (mut told, mut former) = (Vec::new(), Vec::new());
        self.is_renumbered.store(true, Ordering::Relaxed);
        self.root_mount.store(stat.mnt_id, Ordering::Relaxed);
        self.root_ino.store(stat.ino, Ordering::Relaxed);
        let root = Handle { file: root, level: Level::Path };
        let mut handle = self.root.write().unwrap_or_else(PoisonError::into_inner);
        former.push(Place::Open(std::mem::replace(&mut *handle, root)));
        drop(handle);
        if differing.has_changed(stat.ino) {
            told.push(ROOT);
        }
        let mut foreign = lock(&self.foreign);
        for slot in &self.shards {
            for (id, node) in lock(&slot.0).iter_mut() {
                let (ino, generation) = node.inode;
                if matches!(node.place, Place::Stale) {
                    continue;
                }
                let is_other = differing.is_other(ino);
                let place = match is_other {
                    true => Place::Stale,
                    false => Place::Known(ino, generation),
                };
                former.push(std::mem::replace(&mut node.place, place));
                if is_other {
                    // A number that is given anew.
                    node.foreign.take().map(|key| foreign.numbers.remove(&key));
                }
                if is_other || differing.has_changed(ino) {
                    told.push(*id);
                }
            }
        }
        (told, former)
    }

    /// Stores the handle of a node that is known from a former tree.
    pub(crate) fn open_again(&self, id: u64, handle: &Handle) {
        if let Some(node) = self.shard(id).get_mut(&id)
            && matches!(node.place, Place::Known(..))
        {
            node.place = Place::Open(handle.clone());
        }
    }

    /// Stores a handle of a higher level for a node that is still known.
    pub(crate) fn improve(&self, id: u64, handle: &Handle) {
        if id == ROOT {
            let mut root = self.root.write().unwrap_or_else(PoisonError::into_inner);
            let old =
                (handle.level > root.level).then(|| std::mem::replace(&mut *root, handle.clone()));
            drop(root);
            drop(old);
            return;
        }
        let old = self.shard(id).get_mut(&id).and_then(|node| node.improve(handle.clone()));
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

    /// Notes the error for a writer of a node whose gathered write found no space. Returns the one
    /// before, which nobody has been told.
    pub(crate) fn note_full(&self, id: u64, full: Option<Errno>) -> Option<Errno> {
        let mut shard = self.shard(id);
        shard.get_mut(&id).and_then(|node| std::mem::replace(&mut node.full, full))
    }

    /// Returns the node number of an inode that the kernel knows.
    pub(crate) fn find(&self, stat: &Stat) -> Option<u64> {
        let own = self.own_number(stat);
        if own == Some(ROOT) {
            return own;
        }
        let may_be_other = own.is_none() || self.is_renumbered.load(Ordering::Relaxed);
        let other = || lock(&self.foreign).numbers.get(&self.key(stat)).copied();
        let id = may_be_other.then(other).flatten().or(own)?;
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
