//! The transactions that free an inode, and what a mount does with orphans.

use std::fmt;
use std::sync::Arc;

use rustix::io::Errno;
use smallvec::SmallVec;
use vfscale_sync::percpu::PerCpu;
use vfscale_sync::{Mutex, cpu};

use super::{Queue, strip};
use crate::base::fault::Fault;
use crate::base::ranks::InactiveAside;
use crate::icache::table::NodeTable;
use crate::inode::core::{AttrFork, DataFork, InodeCore};
use crate::inode::incore::{Node, lock_all};
use crate::volume::Volume;
use crate::volume::tx::{Need, Tx};

/// Frees the blocks of a file behind a size in bytes, in transactions of its own, and forgets what
/// is in memory of it. The size of the file is that or more. Leaves the file an orphan if it was
/// one and has no name.
pub type CutFn = dyn Fn(&Arc<Node>, u64) -> Result<(), Fault> + Send + Sync;

/// Records that one transaction takes out of the trees of an inode: more of them if the log is not
/// small.
const RECORDS_AT_ONCE: [usize; 2] = [8, 2];
/// The most blocks of trees that one transaction here changes without freeing them: three of a
/// level.
const TREE_BLOCKS_AT_ONCE: u32 = 12;

/// The most inodes that are freed in one transaction, and the part of the log that it may ask for
/// at most.
const FREED_AT_ONCE: u32 = 32;
const FREED_LOG_SHARE: u64 = 16;

/// Inodes in all queues from which on those wait who unlink more.
const WAITING_MAX: usize = 1024;
/// The same, in one of them.
const WAITING_MIN: usize = 16;
/// The most threads that free inodes of one queue; where there are several, each has one.
const THREADS_MAX: u32 = 4;

/// What a mount has done with the orphans that it found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Orphans {
    /// Inodes without a name that were freed.
    pub removed: u64,
    /// Files whose rest behind their end was freed.
    pub cut: u64,
    /// Those that something is wrong with. They stay orphans.
    pub failed: u64,
}

/// Frees inodes that have neither names nor users. `Send` and `Sync`.
///
/// Dropped, or stopped, it leaves what is not freed yet for the next mount.
pub struct Inactivator {
    volume: Arc<Volume>,
    table: Arc<NodeTable>,
    cut: Arc<CutFn>,
    /// Who adds something adds it where it runs.
    queues: PerCpu<Queue<Arc<Node>>>,
    aside: Arc<Aside>,
}

/// What could not be freed because the volume is read-only for a while.
type Aside = Mutex<Vec<Arc<Node>>, InactiveAside>;

impl Inactivator {
    /// For the inodes of `volume`, which are in `table` while they are in memory.
    #[must_use]
    pub fn new(volume: Arc<Volume>, table: Arc<NodeTable>, cut: Arc<CutFn>) -> Self {
        let queues = volume.orphans().lists();
        let at_once = freed_at_once(&volume);
        let threads = if queues == 1 { cpu::possible().min(THREADS_MAX) } else { 1 };
        let aside = Arc::<Aside>::default();
        let queue = |_| {
            let (volume, cut, aside) = (Arc::clone(&volume), Arc::clone(&cut), Arc::clone(&aside));
            Queue::new(
                threads as usize,
                (WAITING_MAX / queues).max(WAITING_MIN),
                at_once,
                move |nodes: Vec<Arc<Node>>| inactivate_all(&volume, nodes, &*cut, &aside),
            )
        };
        let queues = PerCpu::new(queues, queue);
        Self { volume, table, cut, queues, aside }
    }

    /// Looks after all orphans of the volume, when it is mounted: nobody uses any inode yet. Inodes
    /// without names are freed, others are cut to their size. Blocks for I/O.
    ///
    /// # Errors
    /// Those of the groups, and of the log. What is wrong with single inodes is counted.
    pub fn recover(&self) -> Result<Orphans, Fault> {
        recover(&self.volume, &self.table, &*self.cut)
    }

    /// An inode without names has lost its last user. Never waits for anything slow.
    pub fn queue(&self, node: Arc<Node>) {
        let is_quick = is_bare_and_unread(&node);
        self.queues.this().add(node, is_quick);
    }

    /// Frees some of the inodes that wait to be freed, if they are many and quickly freed; waits
    /// while they are very many. For who takes names away, before he begins his transaction.
    pub fn throttle(&self) {
        self.queues.this().throttle();
    }

    /// Waits until everything is freed that was [queued](Self::queue) before the call. The caller
    /// holds no lock of an inode, and has no transaction.
    pub fn flush(&self) {
        self.queues.iter().for_each(Queue::flush);
    }

    /// Whether nothing waits to be freed, nor is being freed, that was [queued](Self::queue) before
    /// the call.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.queues.iter().all(Queue::is_empty)
    }

    /// How many inodes are about to be freed, and how many blocks these have or have set aside.
    /// What changes meanwhile may be seen or not.
    #[must_use]
    pub fn going(&self) -> (u64, u64) {
        let inodes = self.queues.iter().map(|queue| queue.len() as u64).sum();
        let blocks_of = |node: Arc<Node>| {
            let core = node.core();
            let delayed = node.data().map_or(0, |data| data.delayed_blocks());
            if core.nlink == 0 { core.blocks.saturating_add(delayed) } else { 0 }
        };
        let slow = self.queues.iter().flat_map(Queue::slow);
        (inodes, slow.map(blocks_of).fold(0, u64::saturating_add))
    }

    /// The volume can be written again: what came while it could not is queued now.
    pub fn resume(&self) {
        let nodes = std::mem::take(&mut *self.aside.lock());
        nodes.into_iter().for_each(|node| self.queue(node));
    }

    /// Ends the threads after what they are doing. May be called again.
    pub fn stop(&self) {
        self.queues.iter().for_each(Queue::stop);
    }
}

impl fmt::Debug for Inactivator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inactivator").field("queues", &self.queues).finish_non_exhaustive()
    }
}

/// Frees inodes without names that nobody uses any more: together, if they have nothing but their
/// records.
fn inactivate_all(volume: &Volume, mut nodes: Vec<Arc<Node>>, cut: &CutFn, aside: &Aside) {
    nodes.sort_unstable_by_key(|node| node.ino());
    if nodes.len() > 1
        && let Err(fault) = free_bare(volume, &mut nodes)
    {
        // Those that something is wrong with are told apart below.
        tracing::debug!(%fault, "inodes without names could not be freed together");
    }
    for node in nodes {
        while let Err(fault) = inactivate(volume, &node, cut) {
            if !matches!(fault, Fault::ReadOnly) {
                let ino = node.ino();
                tracing::warn!(ino, %fault, "an inode without names could not be freed");
                break;
            }
            if set_aside(volume, &node, aside) {
                break;
            }
        }
    }
}

/// Keeps a node until the volume can be written again; false if it can be by now.
fn set_aside(volume: &Volume, node: &Arc<Node>, aside: &Aside) -> bool {
    // Who makes it writable takes afterwards what is here, under the same lock.
    let mut aside = aside.lock();
    let is_read_only = volume.is_read_only();
    if is_read_only {
        aside.push(Arc::clone(node));
    }
    is_read_only
}

/// Frees those of the nodes in one transaction that have no blocks, nor anything in memory that
/// would be written, and takes them out of `nodes`: by then they may be other inodes, which
/// somebody uses. No more than [`freed_at_once`].
///
/// # Errors
/// Those of the device and the log, and damage. Nothing was freed then.
fn free_bare(volume: &Volume, nodes: &mut Vec<Arc<Node>>) -> Result<(), Fault> {
    let bare: SmallVec<[&Arc<Node>; FREED_AT_ONCE as usize]> =
        nodes.iter().filter(|node| is_bare_and_unread(node)).collect();
    if bare.is_empty() {
        return Ok(());
    }
    let mut tx = volume.begin(need_of_bare(volume, bare.len() as u32))?;
    let locked = lock_all(&bare);
    let mut freed = SmallVec::<[u64; FREED_AT_ONCE as usize]>::new();
    for node in &bare {
        let core = tx.core(node);
        if is_bare(&core) {
            free(&mut tx, node, core.generation);
            freed.push(node.ino());
        }
    }
    tx.commit()?;
    drop((locked, bare));
    nodes.retain(|node| !freed.contains(&node.ino()));
    Ok(())
}

/// An inode without names that has nothing but its record.
fn is_bare(core: &InodeCore) -> bool {
    !core.is_free()
        && core.nlink == 0
        && !matches!(core.attr, AttrFork::Tree { .. })
        && !has_blocks(core)
}

/// The same, and nothing is in memory that would have to be written or cut.
fn is_bare_and_unread(node: &Node) -> bool {
    node.data().is_none() && is_bare(&node.core())
}

/// What freeing so many inodes in one transaction needs.
fn need_of_bare(volume: &Volume, inodes: u32) -> Need {
    let log_blocks = volume.groups().log_blocks(0, inodes) + inodes;
    Need { log_blocks, space: 0, from_pool: true }
}

/// How many inodes are freed in one transaction at most: fewer where that might ask for much of the
/// log.
fn freed_at_once(volume: &Volume) -> usize {
    let log = volume.superblock().log().blocks() / FREED_LOG_SHARE;
    let fits = |count: &u32| u64::from(need_of_bare(volume, *count).log_blocks) <= log;
    (1..=FREED_AT_ONCE).rev().find(fits).unwrap_or(1) as usize
}

/// Frees the number of an inode that has nothing but its record. The node is locked. Once this is
/// committed the node may be that of another inode, and is not touched any more.
fn free(tx: &mut Tx<'_>, node: &Arc<Node>, generation: u32) {
    // They would outlive it, and be those of the next inode with this number.
    node.forget_times();
    node.drop_data();
    tx.set_orphan(node, false);
    tx.free_inode(node.ino());
    tx.set_core(node, InodeCore::free(generation));
}

/// Frees an inode without names that nobody uses any more, if it is still so. Begins transactions;
/// the caller holds no lock. Blocks for I/O.
///
/// # Errors
/// Those of the device and the log, and damage. It is an orphan then.
fn inactivate(volume: &Volume, node: &Arc<Node>, cut: &CutFn) -> Result<(), Fault> {
    let core = node.core();
    if core.is_free() || core.nlink != 0 {
        return Ok(());
    }
    if core.is_regular() && (has_blocks(&core) || node.data().is_some()) {
        cut(node, 0)?;
    }
    while !step(volume, node)? {}
    Ok(())
}

/// One transaction; true if it was the last.
fn step(volume: &Volume, node: &Arc<Node>) -> Result<bool, Fault> {
    let (records, need) = step_of(volume, &node.core());
    let mut tx = volume.begin(need)?;
    let _guard = node.lock();
    let mut core = InodeCore::clone(&tx.core(node));
    if core.is_free() || core.nlink != 0 {
        return Ok(true);
    }
    if core.is_regular() && has_blocks(&core) {
        // Something was written after it was cut: that somebody uses it will be seen when he stops.
        return Err(Fault::Refused(Errno::BUSY));
    }
    let is_bare = strip(&mut tx, node.ino(), &mut core, records)?;
    if is_bare {
        free(&mut tx, node, core.generation);
    } else {
        tx.set_core(node, core);
    }
    tx.commit()?;
    Ok(is_bare)
}

fn has_blocks(core: &InodeCore) -> bool {
    matches!(core.data, DataFork::Extents(_) | DataFork::Tree { .. })
}

/// How many records one step takes out of trees, and what it needs at most.
fn step_of(volume: &Volume, core: &InodeCore) -> (usize, Need) {
    let has_trees = has_blocks(core) || matches!(core.attr, AttrFork::Tree { .. });
    let need = |records: usize| {
        // Half as many leaves as records, since these have two at least; one more at the end of a
        // tree, a block above them, and the root.
        let (runs, blocks) =
            if has_trees { (records as u32 / 2 + 3, TREE_BLOCKS_AT_ONCE) } else { (0, 0) };
        let log_blocks = volume.groups().log_blocks(runs, 1) + blocks + 1;
        Need { log_blocks, space: 0, from_pool: true }
    };
    let [many, few] = RECORDS_AT_ONCE;
    let wanted = need(many);
    let log = u32::try_from(volume.superblock().log().blocks()).unwrap_or(u32::MAX);
    if wanted.log_blocks <= log / 4 {
        return (many, wanted);
    }
    // The smallest logs can't grant the worst case of a few records either, each with blocks in
    // groups of their own. What it comes to is far less; should it not be, the transaction is
    // refused when it commits.
    let least = need(few);
    (few, Need { log_blocks: least.log_blocks.min(log / 3), ..least })
}

/// See [`Inactivator::recover`].
fn recover(volume: &Volume, table: &NodeTable, cut: &CutFn) -> Result<Orphans, Fault> {
    let mut orphans = Orphans::default();
    for group in 0..volume.groups().count() {
        for ino in volume.groups().orphans(&volume.reader(), group)? {
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

/// True if it was freed, false if it was cut.
fn recover_one(volume: &Volume, table: &NodeTable, cut: &CutFn, ino: u64) -> Result<bool, Fault> {
    use crate::format::inode::{InodeDamage, InodeFault};
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
