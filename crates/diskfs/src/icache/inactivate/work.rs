//! The transactions that free an inode, and the recovery of orphans by a mount.

use std::fmt;
use std::sync::Arc;

use rustix::io::Errno;
use smallvec::SmallVec;
use vfscale_sync::percpu::PerCpu;
use vfscale_sync::{Mutex, cpu};

use super::{Queue, strip};
use crate::base::fault::Fault;
use crate::base::ranks::InactiveAside;
use crate::format::extent::Extent;
use crate::format::inode::chunk_of;
use crate::icache::table::NodeTable;
use crate::inode::core::{AttrFork, DataFork, InodeCore, LAST_EXTENTS_MAX};
use crate::inode::incore::{Node, lock_all};
use crate::page_cache::pages_of;
use crate::volume::Volume;
use crate::volume::tx::{Tx, TxReservation};

/// Frees the blocks of a file behind a size in bytes, in transactions of its own, and discards its
/// data in memory. The size of the file is at least that. If the file has no name and was an
/// orphan, it stays one, and may keep its [last extents](InodeCore::last_extents).
pub type CutFn = dyn Fn(&Arc<Node>, u64) -> Result<(), Fault> + Send + Sync;

/// Records that one transaction removes from the trees of an inode: with a normal and with a small
/// log.
const RECORDS_AT_ONCE: [usize; 2] = [8, 2];
/// Maximum number of tree blocks that one transaction changes without freeing them: three of a
/// level.
const TREE_BLOCKS_AT_ONCE: u32 = 12;

/// Maximum number of inodes that are freed in one transaction, and the share of the log that it may
/// reserve.
const FREED_AT_ONCE: usize = 32;
const FREED_LOG_SHARE: u32 = 4;
/// Number of records of inodes in the log space of a block, with what the log adds to each.
const RECORDS_PER_BLOCK: u32 = 4;
/// Maximum number of blocks of a small file, and of pages.
const SMALL_BLOCKS: u64 = 16;

/// Inodes in all queues beyond which threads that unlink have to wait.
const WAITING_MAX: usize = 1024;
/// Minimum of this limit for one queue.
const WAITING_MIN: usize = 16;
/// Maximum number of threads that free inodes of one queue; if there are several queues, each has
/// one.
const THREADS_MAX: u32 = 4;

/// Results of a mount's recovery of orphans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Orphans {
    /// Number of inodes without a name that were freed.
    pub removed: u64,
    /// Number of files whose blocks behind their end were freed.
    pub cut: u64,
    /// Number of inodes that could not be processed. They stay orphans.
    pub failed: u64,
}

/// Frees inodes that have neither names nor users. `Send` and `Sync`.
///
/// After a drop or a stop, inodes that are not freed yet are left to the next mount.
pub struct Inactivator {
    volume: Arc<Volume>,
    table: Arc<NodeTable>,
    cut: Arc<CutFn>,
    /// The queues by CPU slot; a thread adds to the one of its CPU.
    queues: PerCpu<Queue<Arc<Node>>>,
    aside: Arc<Aside>,
}

/// The inodes that could not be freed because the volume is read-only for a while.
type Aside = Mutex<Vec<Arc<Node>>, InactiveAside>;

impl Inactivator {
    /// Creates the queues for the inodes of `volume`; `table` is its table of inodes in memory.
    #[must_use]
    pub fn new(volume: Arc<Volume>, table: Arc<NodeTable>, cut: Arc<CutFn>) -> Self {
        let queues = volume.orphans().parts();
        let threads = if queues == 1 { cpu::most_slots().min(THREADS_MAX) } else { 1 };
        let aside = Arc::<Aside>::default();
        let queue = |_| {
            let (volume, cut, aside) = (Arc::clone(&volume), Arc::clone(&cut), Arc::clone(&aside));
            Queue::new(
                threads as usize,
                (WAITING_MAX / queues).max(WAITING_MIN),
                FREED_AT_ONCE,
                move |nodes: Vec<Arc<Node>>| inactivate_all(&volume, nodes, &*cut, &aside),
            )
        };
        let queues = PerCpu::new(queues, queue);
        Self { volume, table, cut, queues, aside }
    }

    /// Processes all orphans of the volume when it is mounted, before any inode is used. Inodes
    /// without names are freed, others are truncated to their size. Blocks for I/O.
    ///
    /// # Errors
    /// Errors of the groups and of the log. Errors of single inodes are counted.
    pub fn recover(&self) -> Result<Orphans, Fault> {
        self.volume.groups().set_recovering(true);
        let recovered = recover(&self.volume, &self.table, &*self.cut);
        self.volume.groups().set_recovering(false);
        recovered
    }

    /// Queues an inode without names that has lost its last user. Never waits for slow operations.
    pub fn queue(&self, node: Arc<Node>) {
        let is_quick = is_small(&node);
        self.queues.this().add(node, is_quick);
    }

    /// Frees some of the queued inodes, if they are many and quickly freed; waits while they are
    /// very many. Called by threads that remove names, before they begin their transactions.
    pub fn throttle(&self) {
        self.queues.this().throttle();
    }

    /// Waits until all inodes that were [queued](Self::queue) before the call are freed. The caller
    /// holds no lock of an inode, and has no transaction.
    pub fn flush(&self) {
        self.queues.iter().for_each(Queue::flush);
    }

    /// Returns whether all inodes that were [queued](Self::queue) before the call are freed.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.queues.iter().all(Queue::is_empty)
    }

    /// Returns the number of inodes that are about to be freed, and the number of blocks that they
    /// have or have reserved. Changes that are made during the call may be seen or not.
    #[must_use]
    pub fn going(&self) -> (u64, u64) {
        let nodes: Vec<_> = self.queues.iter().flat_map(Queue::unfinished).collect();
        let inodes = nodes.len() as u64;
        let blocks_of = |node: Arc<Node>| {
            let core = node.core();
            let delayed = node.data().map_or(0, |data| data.delayed_blocks());
            if core.nlink == 0 { core.blocks.saturating_add(delayed) } else { 0 }
        };
        (inodes, nodes.into_iter().map(blocks_of).fold(0, u64::saturating_add))
    }

    /// Queues the inodes that were set aside while the volume was read-only.
    pub fn resume(&self) {
        let nodes = std::mem::take(&mut *self.aside.lock());
        nodes.into_iter().for_each(|node| self.queue(node));
    }

    /// Stops the threads after their current work. May be called again.
    pub fn stop(&self) {
        self.queues.iter().for_each(Queue::stop);
    }
}

impl fmt::Debug for Inactivator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inactivator").field("queues", &self.queues).finish_non_exhaustive()
    }
}

/// Frees unused inodes without names: together, if they are small.
fn inactivate_all(volume: &Volume, mut nodes: Vec<Arc<Node>>, cut: &CutFn, aside: &Aside) {
    nodes.sort_unstable_by_key(|node| node.ino());
    if nodes.len() > 1
        && let Err(fault) = free_small(volume, &mut nodes, cut)
    {
        // The loop below finds out which of them can't be freed.
        tracing::debug!(%fault, "inodes without names could not be freed together");
    }
    for node in nodes {
        while let Err(fault) = inactivate(volume, &node, cut) {
            let ino = node.ino();
            if volume.is_shut_down() {
                // The next mount frees it; that the volume has stopped is told once.
                tracing::debug!(ino, %fault, "an inode without names was not freed");
                break;
            }
            if !matches!(fault, Fault::ReadOnly) {
                tracing::warn!(ino, %fault, "an inode without names could not be freed");
                break;
            }
            if set_aside(volume, &node, aside) {
                break;
            }
        }
    }
}

/// Stores a node until the volume is writable again; returns false if it is already.
fn set_aside(volume: &Volume, node: &Arc<Node>, aside: &Aside) -> bool {
    // A thread that makes the volume writable drains this list afterwards, under the same lock.
    let mut aside = aside.lock();
    let is_read_only = volume.is_read_only();
    if is_read_only {
        aside.push(Arc::clone(node));
    }
    is_read_only
}

/// Frees all of the small inodes, as many in a transaction as the log permits, and removes them
/// from `nodes`: after the commit they may be other inodes, which are in use. Begins transactions;
/// the caller holds no lock. Blocks for I/O.
///
/// # Errors
/// Errors of the device and the log, and corruption. Nothing was freed of those that are left.
fn free_small(volume: &Volume, nodes: &mut Vec<Arc<Node>>, cut: &CutFn) -> Result<(), Fault> {
    let mut small: Vec<_> = nodes.iter().filter(|node| is_small(node)).cloned().collect();
    for node in small.iter().filter(|node| node.data().is_some()) {
        cut(node, 0)?;
    }
    while !small.is_empty() {
        let freed = free_some(volume, &mut small)?;
        nodes.retain(|node| !freed.contains(&node.ino()));
    }
    Ok(())
}

/// Frees the first of the small inodes in one transaction, and removes them from `small`, which is
/// in the order of their numbers. Returns the numbers of the freed ones.
fn free_some(volume: &Volume, small: &mut Vec<Arc<Node>>) -> Result<Numbers, Fault> {
    let log = u32::try_from(volume.superblock().log_blocks()).unwrap_or(u32::MAX);
    let first = small.iter().take(FREED_AT_ONCE);
    let mut extents: Vec<_> = first.map(|node| node.look(|core, _| extents_of(core))).collect();
    let mut need = need_of_small(volume, &small[..extents.len()], &extents);
    while need.log_blocks > log / FREED_LOG_SHARE && extents.len() > 1 {
        extents.truncate(extents.len().div_ceil(2));
        need = need_of_small(volume, &small[..extents.len()], &extents);
    }
    // As for a single inode, below.
    need.log_blocks = need.log_blocks.min(log / 3);
    let some: Vec<_> = small.drain(..extents.len()).collect();
    let mut tx = volume.begin(need)?;
    let locked = lock_all(&some.iter().collect::<Vec<_>>());
    let mut freed = Numbers::new();
    for (node, extents) in some.iter().zip(extents) {
        let is_freed = |core: &InodeCore| is_small_core(core) && extents_of(core) == extents;
        if free(&mut tx, node, is_freed) {
            extents.iter().for_each(|extent| tx.free(extent.run()));
            freed.push(node.ino());
        }
    }
    tx.commit_in_place()?;
    drop(locked);
    Ok(freed)
}

/// Numbers of inodes that were freed together.
type Numbers = SmallVec<[u64; FREED_AT_ONCE]>;

/// The extents that are freed with a small inode.
type Extents = SmallVec<[Extent; LAST_EXTENTS_MAX]>;

fn extents_of(core: &InodeCore) -> Extents {
    core.last_extents().unwrap_or_default().into()
}

/// Returns whether an inode has no names, and little more than its record: a few blocks, if it is a
/// file.
fn is_small_core(core: &InodeCore) -> bool {
    !core.is_free()
        && core.nlink == 0
        && core.blocks <= SMALL_BLOCKS
        && !matches!(core.attr, AttrFork::Tree { .. })
        && (core.last_extents().is_some() || !has_blocks(core))
}

/// Returns whether an inode is small, and so are its data in memory, which are discarded quickly.
fn is_small(node: &Node) -> bool {
    node.look(|core, data| {
        is_small_core(core) && data.is_none_or(|data| pages_of(data.size()) <= SMALL_BLOCKS)
    })
}

/// Returns the reservation for freeing these inodes, in the order of their numbers, with these
/// extents in one transaction. Inodes of a chunk change one record, and so do runs that touch.
/// A claim of a part, which is delayed and has log space of its own, parts such a run again.
fn need_of_small(volume: &Volume, nodes: &[Arc<Node>], extents: &[Extents]) -> TxReservation {
    let chunks = nodes.chunk_by(|one, other| chunk_of(one.block()) == chunk_of(other.block()));
    let mut runs: Vec<_> = extents.iter().flatten().map(|extent| extent.run()).collect();
    runs.sort_unstable_by_key(|run| run.start);
    let runs = runs.chunk_by(|one, other| one.end() == other.start).count();
    let records = (nodes.len() as u32).div_ceil(RECORDS_PER_BLOCK);
    let log_blocks = volume.groups().log_blocks(runs as u32, chunks.count() as u32) + records;
    TxReservation { log_blocks, space: 0, from_pool: true }
}

/// Frees the number of an inode that has nothing but its record, if `is_freed` returns true for
/// it; returns whether it did. The node is locked. After the commit the node may be that of another
/// inode, and is not touched any more.
fn free(tx: &mut Tx<'_>, node: &Arc<Node>, is_freed: impl FnOnce(&InodeCore) -> bool) -> bool {
    // Otherwise the data would belong to the next inode with this number.
    let Some(generation) = node.drop_data_if(is_freed) else { return false };
    tx.free_inode(node.ino());
    tx.set_core(node, InodeCore::free(generation));
    tx.set_orphan(node, false);
    true
}

/// Frees an inode without names and users, if it still has no names. Begins transactions; the
/// caller holds no lock. Blocks for I/O.
///
/// # Errors
/// Errors of the device and the log, and corruption. The inode is an orphan then.
fn inactivate(volume: &Volume, node: &Arc<Node>, cut: &CutFn) -> Result<(), Fault> {
    let core = node.core();
    if core.is_free() || core.nlink != 0 {
        return Ok(());
    }
    if core.is_regular() && (has_blocks(&core) || node.data().is_some()) {
        cut(node, 0)?;
    }
    while !volume.beside_damage(|| step(volume, node))? {}
    Ok(())
}

/// Executes one transaction; returns true if it was the last.
fn step(volume: &Volume, node: &Arc<Node>) -> Result<bool, Fault> {
    let core = node.core();
    let few = core.last_extents().map_or(0, <[_]>::len);
    let (records, need) = step_of(volume, &core);
    let mut tx = volume.begin(need)?;
    let _guard = node.lock();
    let mut core = InodeCore::clone(&tx.core(node));
    if core.is_free() || core.nlink != 0 {
        return Ok(true);
    }
    if core.is_regular() && has_blocks(&core) {
        let Some(extents) = core.last_extents().filter(|extents| extents.len() <= few) else {
            // Data were written after the cut: the inode is in use, and will be queued again at its
            // last release.
            return Err(Fault::Refused(Errno::BUSY));
        };
        extents.iter().for_each(|extent| tx.free(extent.run()));
        let blocks: u64 = extents.iter().map(|extent| u64::from(extent.blocks)).sum();
        core.blocks = core.blocks.saturating_sub(blocks);
        core.data = DataFork::None;
    }
    let is_bare = strip(&mut tx, node.ino(), &mut core, records)?;
    if is_bare {
        free(&mut tx, node, |_| true);
    } else {
        tx.set_core(node, core);
    }
    tx.commit()?;
    Ok(is_bare)
}

fn has_blocks(core: &InodeCore) -> bool {
    matches!(core.data, DataFork::Extents(_) | DataFork::Tree { .. })
}

/// Returns how many records one step removes from trees, and the reservation it needs.
fn step_of(volume: &Volume, core: &InodeCore) -> (usize, TxReservation) {
    let has_trees = has_blocks(core) || matches!(core.attr, AttrFork::Tree { .. });
    let need = |records: usize| {
        // Half as many leaves as records, because a leaf has at least two; one more at the end of a
        // tree, a block above them, and the root.
        let (runs, blocks) = match core.last_extents() {
            Some(extents) => (extents.len() as u32, 0),
            None if has_trees => (records as u32 / 2 + 3, TREE_BLOCKS_AT_ONCE),
            None => (0, 0),
        };
        let log_blocks = volume.groups().log_blocks(runs, 1) + blocks + 1;
        TxReservation { log_blocks, space: 0, from_pool: true }
    };
    let [many, few] = RECORDS_AT_ONCE;
    let wanted = need(many);
    let log = u32::try_from(volume.superblock().log_blocks()).unwrap_or(u32::MAX);
    if wanted.log_blocks <= log / 4 {
        return (many, wanted);
    }
    // The smallest logs can't grant the worst case of a few records either, each with blocks in
    // groups of their own. The actual need is far less; if not, the commit refuses the transaction.
    let least = need(few);
    (few, TxReservation { log_blocks: least.log_blocks.min(log / 3), ..least })
}

/// Processes all orphans; see [`Inactivator::recover`].
fn recover(volume: &Volume, table: &NodeTable, cut: &CutFn) -> Result<Orphans, Fault> {
    let mut orphans = Orphans::default();
    for group in volume.groups().with_orphans() {
        for ino in volume.groups().orphans(&volume.reader(), group).map_err(Fault::local)? {
            match recover_one(volume, table, cut, ino) {
                Ok(true) => orphans.removed += 1,
                Ok(false) => orphans.cut += 1,
                Err(fault @ Fault::Journal(_)) => return Err(fault),
                Err(fault) => {
                    orphans.failed += 1;
                    tracing::warn!(ino, %fault, "an orphan stays as it is");
                }
            }
        }
    }
    Ok(orphans)
}

/// Processes one orphan. Returns true if it was freed, false if it was truncated.
fn recover_one(volume: &Volume, table: &NodeTable, cut: &CutFn, ino: u64) -> Result<bool, Fault> {
    use crate::format::damage::{InodeDamage, InodeFault};
    let Some(node) = table.get(volume, ino)? else {
        let fault = InodeFault::Free;
        return Err(Fault::Damage(InodeDamage { ino, fault }.into()));
    };
    volume.orphans().found(&node);
    let core = node.core();
    if core.nlink == 0 {
        inactivate(volume, &node, cut)?;
        return Ok(true);
    }
    if core.is_regular() {
        cut(&node, core.size)?;
    }
    let (_, need) = step_of(volume, &InodeCore::free(0));
    let mut tx = volume.begin(need)?;
    let _guard = node.lock();
    tx.set_orphan(&node, false);
    tx.commit()?;
    Ok(false)
}

#[cfg(test)]
mod tests;
