//! An open branch: its map, and what has changed since its last checkpoint.
//!
//! # Locks, in this order
//!
//! * `BranchFlush`: one flush, checkpoint or fork of the branch at a time. Held over I/O.
//! * `PoolState`, for checkpoints ([`crate::state::commit`]).
//! * `BranchReaders`: a reader is inside from its lookup to the end of its I/O. A commit waits for
//!   those that are inside before the places that it gave up are handed out again.
//! * `BranchGate`: a writer is inside from its lookup until its change is in the map. A flush takes
//!   it alone, for as long as closing a batch takes: so a batch has only contents that were
//!   written.
//! * `BranchLeaf`, one of 64 by the leaf of the map: shared by writers that overwrite in place,
//!   exclusive for one that hands out places. So two writers of parts of one block lose nothing.
//! * `BranchPending`, and the locks of [`crate::space::bitmaps`].

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use vfscale_sync::brlock::BrLock;
use vfscale_sync::{Mutex, RwLock};

use crate::Error;
use crate::disk::format::{Entry, FANOUT};
use crate::disk::record::{LogArea, Record};
use crate::space::bitmaps::Lease;
use crate::space::reservations::Held;
use crate::state::commit::Shared;
use crate::state::limit::Limit;
use crate::state::map::{self, LEVELS_MAX, Map};

pub(crate) mod flush;
mod grow;
mod read;
pub(crate) mod registry;
mod relocate;
mod reserve;
mod write;
mod zero;

vfscale_sync::lock_class! {
    /// Flushes of a branch, one at a time, and the place of its next record.
    pub(crate) BranchFlush = ("branch_flush", 64010) sleeping;
    /// Readers of a branch, against the reuse of places (a brlock).
    pub(crate) BranchReaders = ("branch_readers", 64030) sleeping;
    /// Writers of a branch, against closing a batch (a brlock).
    pub(crate) BranchGate = ("branch_gate", 64040) sleeping;
    /// The map of some blocks of a branch.
    pub(crate) BranchLeaf = ("branch_leaf", 64050) sleeping;
    /// The changes of a branch since its last checkpoint.
    pub(crate) BranchPending = ("branch_pending", 64060);
    /// Where a branch takes places.
    pub(crate) BranchLease = ("branch_lease", 64065) sleeping;
}

/// Number of the locks of leaves.
const LEAF_LOCKS: usize = 64;

/// The place that a block got since the last flush.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewPlace {
    place: u64,
    /// CRC-32C of the content, if it is known.
    checksum: Option<u32>,
}

/// Changes since the last checkpoint.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    /// The new places since the last flush: the open batch.
    open: HashMap<u64, NewPlace>,
    /// The blocks of records that are not confirmed by a later one.
    fragile: HashSet<u64>,
    /// Places that were handed out.
    allocs: Vec<u64>,
    /// Places that the branch owned and gave up.
    frees: Vec<u64>,
    /// Entries of ancestors that the branch has replaced.
    deads: Vec<Entry>,
    /// Nodes of the map that have changed.
    dirty_nodes: usize,
}

impl Pending {
    /// Returns how many places more the branch has than at its last commit, about: nodes of the map
    /// count that were copied, and not those that are new.
    fn growth(&self) -> i64 {
        (self.allocs.len() + self.dirty_nodes) as i64 - self.frees.len() as i64
    }
}

/// The next record of the log.
#[derive(Debug)]
pub(crate) struct LogState {
    area: Option<LogArea>,
    /// The number of the next record.
    next: u32,
    /// The checksum of the record before.
    previous: u32,
    /// A record could not be written: only a checkpoint helps.
    must_checkpoint: bool,
}

impl LogState {
    /// Returns how many records the next batch may have. The first one of a log that no commit has
    /// begun anew may have one; see [`crate::state::spare_logs`].
    fn room(&self) -> usize {
        self.area.map_or(0, |area| match self.next {
            0 if area.is_new() => 1,
            next => (area.blocks - next) as usize,
        })
    }
}

/// An open branch. See the [module](self).
pub(crate) struct Inner {
    pub(crate) shared: Arc<Shared>,
    label: Arc<str>,
    /// Its node of the history; a fork changes it.
    node: AtomicU64,
    /// The births of its writes.
    depth: AtomicU32,
    /// Places with a greater birth are its own.
    own_above: AtomicU32,
    /// The size, which grows.
    blocks: AtomicU64,
    /// The most places that the write of a block may need: its own, and one for each node that
    /// leads to it. A growth does not change it; see [`grow`].
    cost: u64,
    /// See [`Device::identity`](vfscale_block::Device::identity).
    identity: Option<[u8; 16]>,
    read_only: bool,
    /// How many handles there are; of a branch that can be written, one at most.
    pub(crate) handles: AtomicUsize,
    /// The map, by its number of levels less one: the last one counts. A growth may add one.
    maps: [OnceLock<Map>; LEVELS_MAX],
    readers: BrLock<BranchReaders>,
    gate: BrLock<BranchGate>,
    leaves: Box<[RwLock<(), BranchLeaf>]>,
    pending: Mutex<Pending, BranchPending>,
    /// How many blocks are in `open` and `fragile`.
    tracked: AtomicUsize,
    lease: Mutex<Lease, BranchLease>,
    /// The reservations of its user.
    pub(crate) held: Arc<Held>,
    pub(crate) limit: Limit,
    flush: Mutex<LogState, BranchFlush>,
}

impl Inner {
    /// Opens the branch of a record.
    ///
    /// # Errors
    /// Errors of reading and [`Error::Damage`].
    pub(crate) fn open(
        shared: &Arc<Shared>,
        record: &Record,
        own_above: u32,
    ) -> Result<Self, Error> {
        let levels = map::levels(record.blocks);
        let log = LogState { area: record.log, next: 0, previous: 0, must_checkpoint: false };
        let maps = [const { OnceLock::new() }; LEVELS_MAX];
        let map = Map::open(&shared.disk, 0, record.root, levels)?;
        let _ = maps[usize::from(levels) - 1].set(map);
        Ok(Self {
            shared: shared.clone(),
            label: format!("{}:{}", shared.disk.device.name(), record.name).into(),
            node: record.id.into(),
            depth: record.depth.into(),
            own_above: own_above.into(),
            identity: identity(shared.disk.pool, record.origin),
            blocks: record.blocks.into(),
            cost: 1 + u64::from(levels),
            read_only: record.is_frozen(),
            handles: AtomicUsize::new(0),
            maps,
            readers: BrLock::new(shared.slots),
            gate: BrLock::new(shared.slots),
            leaves: (0..LEAF_LOCKS).map(|_| RwLock::new(())).collect(),
            pending: Mutex::new(Pending::default()),
            tracked: AtomicUsize::new(0),
            lease: Mutex::new(Lease::default()),
            held: Arc::new(Held::new(shared.slots)),
            limit: Limit::default(),
            flush: Mutex::new(log),
        })
    }

    /// Returns the name of the device.
    pub(crate) fn label(&self) -> &Arc<str> {
        &self.label
    }

    /// Returns the size in blocks of 4096 bytes.
    pub(crate) fn blocks(&self) -> u64 {
        self.blocks.load(Ordering::Acquire)
    }

    /// Returns its map. The caller keeps a growth out, as readers and writers do.
    fn map(&self) -> &Map {
        match self.maps.iter().rev().find_map(OnceLock::get) {
            Some(map) => map,
            None => unreachable!("an open branch has a map"),
        }
    }

    /// Returns whether it can't be written.
    pub(crate) fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Returns the id that tells its device from those that it shares contents with.
    pub(crate) fn identity(&self) -> Option<[u8; 16]> {
        self.identity
    }

    /// Returns its node of the history.
    pub(crate) fn node(&self) -> u64 {
        self.node.load(Ordering::Acquire)
    }

    fn is_own(&self, entry: Entry) -> bool {
        !entry.is_none() && entry.birth() > self.own_above.load(Ordering::Relaxed)
    }

    fn leaf_lock(&self, block: u64) -> &RwLock<(), BranchLeaf> {
        &self.leaves[(block / FANOUT as u64) as usize % LEAF_LOCKS]
    }

    /// Notes an entry that nothing in this branch refers to any more.
    fn give_up(&self, pending: &mut Pending, entry: Entry) {
        if self.is_own(entry) {
            pending.frees.push(entry.place());
        } else if !entry.is_none() {
            pending.deads.push(entry);
        }
    }

    fn count_tracked(&self, pending: &Pending) {
        self.tracked.store(pending.open.len() + pending.fragile.len(), Ordering::Release);
    }

    /// Makes places below `above` the branch's own: the node that they belong to has been merged
    /// into it. The commit that says so is durable.
    pub(crate) fn adopt(&self, above: u32) {
        let _alone = self.gate.write();
        self.own_above.store(above, Ordering::Release);
    }
}

/// Returns the identity of the branches of `pool` that began as node `origin`: another one for each
/// node, since no node gets the id of another one.
pub(crate) fn identity(pool: [u8; 16], origin: u64) -> Option<[u8; 16]> {
    let mut id = pool;
    for (byte, mix) in id[8..].iter_mut().zip(origin.to_le_bytes()) {
        *byte ^= mix;
    }
    (origin != 0).then_some(id)
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Branch")
            .field("name", &self.label)
            .field("node", &self.node)
            .field("depth", &self.depth)
            .field("blocks", &self.blocks)
            .finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // No lock: the last handle may go where no lock can be waited for.
        self.end_reservations();
        self.shared.space.end(self.lease.get_mut());
    }
}

#[cfg(test)]
pub(crate) mod tests;
