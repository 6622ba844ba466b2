//! Transactions: changes of several blocks and inodes that take effect together or not at all.
//!
//! # Purpose
//!
//! Every change of a volume is made by a [`Tx`]. It works on copies: of blocks ([`Nodes`]) and of
//! inodes. No other thread sees these before [`Tx::commit`]. So after a failure before that,
//! dropping the transaction undoes everything: after an error of the device, a lack of space, or
//! damage that was found half way.
//!
//! # Steps of a commit
//!
//! 1. The claims and frees are written into the trees of the groups, in copies as well. For that
//!    the groups are locked, in ascending order, and stay locked until the end. If only the state
//!    of inodes changes in a group, that is noted in memory instead (`alloc/delayed.rs`). The
//!    blocks of the records of the inodes are read, unless their nodes hold them.
//! 2. Every item is added to the log's transaction, which pins it: the item is not written back.
//! 3. The copies are published: readers see them. Inodes become orphans, or cease to be.
//! 4. The log's transaction is committed, and the groups are unlocked.
//!
//! Until step 1 is complete, everything may fail, and nothing has changed. From step 2 on only the
//! log itself may fail, after which nothing becomes durable any more.
//!
//! # Invariants
//!
//! * Two transactions never change one block or inode concurrently: a thread that changes it holds
//!   the lock of its owner, from the first change until the commit has returned. For everything
//!   that an inode owns this is the lock of the inode, for the trees of a group the lock that the
//!   commit takes. So two commits that change a common block are in the log in the order in which
//!   they changed it, and a recovery ends with the later one.
//! * Other transactions can claim a freed block only when the free is durable
//!   ([`Transaction::on_durable`]): after a crash, no block is in the file that it was freed from
//!   and has the contents of another one.
//! * The log gets the copies of locked inodes that are published, and not what is published at the
//!   commit: the same, since no other thread changes them before it has returned. That holds for a
//!   new inode, too: a thread with a handle of its number finds it as soon as it is published, and
//!   would otherwise commit a later state first.
//! * An inode is published when the log's transaction has pinned it ([`ChangeList::add_image`]).
//!   The commit notes in it which checkpoint has the change
//!   ([`LogItem::logged`](vfscale_journal::LogItem::logged)), so the transaction keeps no reference
//!   of its own until then.
//! * A transaction logs no more than it has reserved. One that would log more is refused before
//!   anything is published: the program has a defect.
//!
//! # Locks
//!
//! [`Volume::begin`] sleeps for log space, and is called without any lock of this crate. Commit is
//! called with inodes locked, and takes the locks of groups.
//!
//! # References
//!
//! A transaction holds references to the buffers that it changes, so none of them is evicted. From
//! the commit on the journal holds them, until the buffers are written back.

pub(crate) mod names;
pub(super) mod shadows;
pub(crate) mod steps;

use std::sync::Arc;

use smallvec::SmallVec;
use vfscale_journal::{Admitted, ChangeList, Committed, Delayed, LogKey, Reservation, Transaction};
use vfscale_sync::lock::assert_held;

use crate::alloc::{Changes, Finished, GroupNodes};
use crate::base::fault::Fault;
use crate::base::ranks::NodeLock;
use crate::btree::{Error, Nodes};
use crate::buffer::{Buffer, Cancel, InodeChunk, KIND_INODE_CHUNK};
use crate::format::inode::{
    CHUNK_BLOCKS, CHUNK_INODES, INODE_MAGIC, INODES_PER_BLOCK, RECORD_BYTES, chunk_of, ino_at,
};
use crate::format::{BLOCK_BYTES, Block, BlockRange, Expected, Identity};
use crate::inode::core::InodeCore;
use crate::inode::incore::{KIND_INODE, Node};
use crate::inode::orphans::WholeGuard;
use crate::inode::times::Times;
use crate::volume::credits::{Purpose, TxCredit};
use crate::volume::{Metadata, Volume};
use shadows::Shadows;
pub use shadows::{BlockRef, Slot};
use steps::{Fold, Noted};

/// The most free inodes that a new one is searched among, if blocks of inodes can't be read.
const INODES_TRIED: u64 = 8 * INODES_PER_BLOCK;

/// The reservation of a transaction: the most that it may need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TxReservation {
    /// Blocks and inodes that it may log.
    pub log_blocks: u32,
    /// Blocks that it may take from free space.
    pub space: u64,
    /// Whether they may come from the pool reserved for removal and write-back.
    pub from_pool: bool,
}

impl TxReservation {
    /// Returns the reservation of log space, in bytes of items.
    fn log_bytes(self) -> u64 {
        Reservation::item_bytes(BLOCK_BYTES as u64).saturating_mul(self.log_blocks.into())
    }
}

/// A transaction. `Send`.
///
/// A drop without a commit returns everything that was claimed and reserved, and changes nothing.
#[must_use = "a transaction that is dropped does nothing"]
pub struct Tx<'v> {
    metadata: &'v Metadata,
    shadows: Shadows<'v>,
    nodes: SmallVec<[ChangedNode; 3]>,
    /// The blocks of records that it has read, for nodes that hold none.
    homes: Homes,
    changes: Changes,
    /// The directories whose delayed names it writes.
    folds: Vec<Fold>,
    /// `None` once it was committed.
    log: Option<TxLog<'v>>,
    /// The log space that it may use, in bytes of reservation.
    log_bytes: u64,
    /// Number of blocks of free space that are reserved and not claimed yet, and of those that are
    /// claimed.
    space_left: u64,
    space_used: u64,
    from_pool: bool,
    /// Whether it leaves out groups that can't be read.
    leaves_out: bool,
    /// Whether it has exceeded its reservation, and can only be dropped.
    is_spoiled: bool,
    /// The blocks that it may write home, reserved on the device. Ends after the commit.
    #[expect(dead_code, reason = "held until its drop")]
    credit: TxCredit<'v>,
}

/// Blocks of inodes.
type Homes = SmallVec<[Arc<Buffer>; 2]>;

/// The part of a transaction in the log.
enum TxLog<'v> {
    /// A transaction of its own.
    Begun(Transaction<'v>),
    /// One of the commits at the end of a context, which log delayed changes.
    AtEnd(ChangeList, &'v dyn Delayed),
}

impl TxLog<'_> {
    fn changes(&mut self) -> &mut ChangeList {
        match self {
            Self::Begun(transaction) => transaction.changes(),
            Self::AtEnd(changes, _) => changes,
        }
    }

    fn commit(&mut self) -> vfscale_journal::Result<Committed> {
        match self {
            Self::Begun(transaction) => transaction.commit_in_place(),
            Self::AtEnd(changes, delayed) => delayed.commit(changes),
        }
    }
}

/// An inode that a transaction changes.
struct ChangedNode {
    node: Arc<Node>,
    /// The times before the change.
    before: Times,
    /// The inode after the change: a copy of this transaction's own. `None` while it is edited.
    core: Option<Arc<InodeCore>>,
    /// Whether the inode becomes an orphan, or ceases to be one; `None` for no change.
    orphan: Option<bool>,
    /// Whether the node is known to hold the block of its record until the commit.
    has_home: bool,
}

impl Volume {
    /// Begins a transaction: reserves the most that it may need. Sleeps for log space, and while
    /// the volume is frozen; the caller holds no lock of an inode or a group, and has no other
    /// transaction.
    ///
    /// # Errors
    /// [`Fault::ReadOnly`], [`Fault::NoSpace`], and the errors of the log.
    pub fn begin(&self, need: TxReservation) -> Result<Tx<'_>, Fault> {
        self.begin_for(need, if need.from_pool { Purpose::Removal } else { Purpose::Growth })
    }

    /// Begins a transaction like [`begin`](Self::begin); `purpose` says what may refuse it.
    ///
    /// # Errors
    /// Errors of [`begin`](Self::begin).
    pub(crate) fn begin_for(&self, need: TxReservation, purpose: Purpose) -> Result<Tx<'_>, Fault> {
        let (mut log, mut credit) = self.reserve(need, purpose)?;
        if !credit.is_counted() && self.credits().is_on() {
            // The transaction has waited at the gate of the log while the device came to need
            // reservations.
            self.space().give(need.space);
            drop((log, credit));
            (log, credit) = self.reserve(need, purpose)?;
        }
        Ok(Tx::new(self.metadata(), TxLog::Begun(log.begin()), credit, need))
    }

    /// Reserves what a transaction needs, and has the log admit it.
    fn reserve(
        &self,
        need: TxReservation,
        purpose: Purpose,
    ) -> Result<(Admitted<'_>, TxCredit<'_>), Fault> {
        let journal = self.writable()?;
        if self.groups().has_to_withdraw() {
            self.metadata().withdraw();
        }
        let credit = self.credit(need, purpose)?;
        if !self.space().take(need.space, need.from_pool) {
            return Err(Fault::NoSpace);
        }
        // The volume may have been sealed during the wait.
        let may_begin = || self.writable().is_ok();
        match journal.admit_if(Reservation::new(need.log_bytes()), may_begin) {
            Ok(Some(log)) => Ok((log, credit)),
            refused => {
                self.space().give(need.space);
                Err(match refused {
                    Err(vfscale_journal::Error::Full) => Fault::NoSpace,
                    Err(error) => error.into(),
                    Ok(_) => Fault::ReadOnly,
                })
            }
        }
    }
}

impl<'v> Tx<'v> {
    #[inline]
    fn new(
        metadata: &'v Metadata,
        log: TxLog<'v>,
        credit: TxCredit<'v>,
        need: TxReservation,
    ) -> Self {
        Self {
            credit,
            metadata,
            shadows: Shadows::new(metadata.cache(), metadata.uuid()),
            nodes: SmallVec::new(),
            homes: SmallVec::new(),
            changes: Changes::new(),
            folds: Vec::new(),
            log: Some(log),
            log_bytes: need.log_bytes(),
            space_left: need.space,
            space_used: 0,
            from_pool: need.from_pool,
            leaves_out: false,
            is_spoiled: false,
        }
    }

    /// Begins a transaction at the end of a context of the log, to log delayed changes with the
    /// space that was set aside for them. It may leave out groups that can't be read.
    pub(super) fn at_end(
        metadata: &'v Metadata,
        delayed: &'v dyn Delayed,
        leaves_out: bool,
    ) -> Self {
        let credit = metadata.credit_of_delayed();
        let need = TxReservation { log_blocks: 0, space: 0, from_pool: false };
        let log = TxLog::AtEnd(delayed.begin(), delayed);
        let mut tx = Self::new(metadata, log, credit, need);
        tx.leaves_out = leaves_out;
        tx
    }

    /// Takes `blocks` of the reserved space; reserves more if that is too little.
    fn take_space(&mut self, blocks: u64) -> Result<(), Fault> {
        let missing = blocks.saturating_sub(self.space_left);
        if missing > 0 && !self.metadata.space().take(missing, self.from_pool) {
            return Err(Fault::NoSpace);
        }
        self.space_left = self.space_left + missing - blocks;
        self.space_used += blocks;
        Ok(())
    }

    fn give_space(&mut self, blocks: u64) {
        self.space_used -= blocks;
        self.space_left += blocks;
    }

    /// Takes `min` to `max` consecutive blocks for data, near the block `near` if possible. The
    /// transaction owns them, and they are in use once it is committed.
    ///
    /// # Errors
    /// [`Fault::NoSpace`] if no run of free blocks is that long; the errors of the device, and
    /// damage.
    pub fn claim(&mut self, near: u64, min: u32, max: u32) -> Result<BlockRange, Fault> {
        let min = min.max(1);
        let affordable = u32::try_from(self.space_left).unwrap_or(u32::MAX);
        let max = max.min(affordable).max(min);
        self.take_space(max.into())?;
        let claimed = self.metadata.groups().claim(&self.metadata.reader(), near, min, max);
        let blocks = claimed.as_ref().map_or(0, |run| run.map_or(0, BlockRange::len));
        self.give_space(u64::from(max) - blocks);
        let run = claimed.map_err(Fault::local)?.ok_or(Fault::NoSpace)?;
        self.changes.use_claim(run);
        Ok(run)
    }

    /// Gives back a block that the transaction has claimed and does not need.
    fn unclaim(&mut self, address: u64) {
        let run = BlockRange::one(address);
        let was_claimed = self.changes.drop_claim(run);
        debug_assert!(was_claimed, "block {address} was not claimed");
        if was_claimed {
            self.metadata.groups().unclaim(run);
            self.give_space(1);
        }
    }

    /// Takes over an earlier claim ([`Groups::claim`](crate::alloc::Groups::claim)), whose space
    /// the caller has reserved. If the transaction is dropped, the blocks are free for others, and
    /// the caller owns the reservation again.
    pub fn use_claim(&mut self, run: BlockRange) {
        self.changes.use_claim(run);
    }

    /// Frees blocks of data. Other transactions can claim them when the free is durable.
    pub fn free(&mut self, run: BlockRange) {
        self.changes.free(run);
    }

    /// Claims a free inode: for a file near the block `near`, the block of its directory's inode;
    /// for a directory in a group with much free space. Creates eight blocks of inodes if no inode
    /// is free. Inodes whose block can't be read are left out until the next opening. `node_of`
    /// returns the node of a number. Returns that of the inode, and the inode's generation.
    ///
    /// # Errors
    /// [`Fault::NoSpace`]; the errors of the device, and damage.
    pub fn new_node(
        &mut self,
        near: u64,
        is_dir: bool,
        node_of: impl Fn(u64) -> Arc<Node>,
    ) -> Result<(Arc<Node>, u32), Fault> {
        let before = self.changes.new_chunks().count() as u64;
        let groups = self.metadata.groups();
        let reader = self.metadata.reader();
        let mut tries = INODES_TRIED;
        let node = loop {
            let ino = groups.claim_inode(&reader, near, is_dir, &mut self.changes);
            let Some(ino) = ino.map_err(Fault::local)? else { break None };
            let node = node_of(ino);
            tries -= 1;
            match self.metadata.hold_home(&mut self.homes, &self.changes, &node) {
                Err(Fault::Device(_) | Fault::Local(_)) if tries > 0 => {
                    self.changes.withhold_inode(ino);
                }
                held => break Some(held.map(|()| node)?),
            }
        };
        let made = self.changes.new_chunks().count() as u64 - before;
        if let Err(fault) = self.take_space(made * CHUNK_BLOCKS) {
            // The changes contain the chunk, which must not be created.
            self.is_spoiled = true;
            return Err(fault);
        }
        Ok((node.ok_or(Fault::NoSpace)?, groups.generation()))
    }

    /// Returns the transaction's copy of an inode, to change it: with the latest times, and
    /// published by the commit. The caller holds the node locked until the commit has returned.
    #[cfg(test)]
    pub fn inode(&mut self, node: &Arc<Node>) -> &mut InodeCore {
        let changed = self.changed(node);
        // A core is edited only while the transaction is borrowed for that.
        Arc::make_mut(changed.core.get_or_insert_with(|| node.core()))
    }

    /// Returns the entry of an inode, with a copy which equals the published one until it is
    /// changed. Nobody else refers to a new copy, so that a change makes no second one.
    fn changed(&mut self, node: &Arc<Node>) -> &mut ChangedNode {
        let at = self.nodes.iter().position(|changed| Arc::ptr_eq(&changed.node, node));
        let at = at.unwrap_or_else(|| {
            let (core, has_home) = node.copy();
            let (before, core) = (Times::of(&core), Some(Arc::new(core)));
            let node = Arc::clone(node);
            self.nodes.push(ChangedNode { node, before, core, orphan: None, has_home });
            self.nodes.len() - 1
        });
        &mut self.nodes[at]
    }

    /// Edits the transaction's copy of an inode by `change`, which may use the transaction, but not
    /// this inode in it. After an error, the transaction can only be dropped.
    ///
    /// # Errors
    /// The errors of `change`.
    pub(crate) fn edit<T>(
        &mut self,
        node: &Arc<Node>,
        change: impl FnOnce(&mut Self, &mut InodeCore) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let mut core = self.changed(node).core.take().unwrap_or_else(|| node.core());
        let done = change(self, Arc::make_mut(&mut core));
        self.is_spoiled |= done.is_err();
        self.changed(node).core = Some(core);
        done
    }

    /// Replaces the transaction's own copy of an inode (see [`inode`](Self::inode)).
    pub fn set_core(&mut self, node: &Arc<Node>, core: InodeCore) {
        let core = Arc::new(core);
        match self.nodes.iter_mut().find(|changed| Arc::ptr_eq(&changed.node, node)) {
            Some(changed) => changed.core = Some(core),
            None => {
                // Times that change before an inode is freed are not stored.
                let before = if core.is_free() { Times::of(&core) } else { node.times() };
                let (node, core) = (Arc::clone(node), Some(core));
                let (orphan, has_home) = (None, false);
                self.nodes.push(ChangedNode { node, before, core, orphan, has_home });
            }
        }
    }

    /// Returns the inode as this transaction sees it: its own copy, if it has one, or the published
    /// one.
    #[must_use]
    pub fn core(&self, node: &Arc<Node>) -> Arc<InodeCore> {
        let own = self.nodes.iter().find(|changed| Arc::ptr_eq(&changed.node, node));
        own.and_then(|changed| changed.core.clone()).unwrap_or_else(|| node.core())
    }

    /// Marks the inode as free.
    pub fn free_inode(&mut self, ino: u64) {
        self.changes.free_inode(ino);
    }

    /// Marks the inode as an orphan, which the next mount processes if this one does not, or
    /// removes that mark. Changes and locks nothing if the mark is right already; otherwise the
    /// inode is logged, too. The node stays locked until the commit has returned.
    pub fn set_orphan(&mut self, node: &Arc<Node>, is_orphan: bool) {
        assert_held::<NodeLock>();
        let own = self.nodes.iter().find(|changed| Arc::ptr_eq(&changed.node, node));
        let own = own.and_then(|changed| changed.orphan);
        let was_orphan = own.unwrap_or_else(|| self.metadata.orphans().has(node));
        if was_orphan != is_orphan {
            self.changes.set_orphan(node.ino(), is_orphan);
            self.changed(node).orphan = Some(is_orphan);
        }
    }

    /// Extends a group to all of its blocks: the blocks by which the volume has grown become free.
    pub(crate) fn extend_group(&mut self, group: u32) {
        self.changes.extend(group);
    }

    /// Commits all changes. Returns the sequence number with which [`Volume::force`] makes them
    /// durable.
    ///
    /// Locks the affected groups, reads the blocks of their trees that it needs, and may sleep
    /// until the write-back of a block that it frees ends, but not for the log. All affected inodes
    /// stay locked until it returns.
    ///
    /// # Errors
    /// The errors of the device, damage and [`Fault::NoSpace`]: nothing was changed; likewise if
    /// more would be logged than was reserved, which is a defect of the program. Otherwise
    /// [`Fault::Journal`]: the log was shut down, nothing becomes durable any more, and the state
    /// in memory means nothing.
    #[inline]
    pub fn commit(mut self) -> Result<u64, Fault> {
        self.commit_in_place()
    }

    /// Commits like [`commit`](Self::commit), but does not move the transaction, which is large. It
    /// has ended then, and returns the rest of its reservation when it is dropped; the caller
    /// begins no other before that.
    ///
    /// # Errors
    /// Errors of [`commit`](Self::commit).
    pub(crate) fn commit_in_place(&mut self) -> Result<u64, Fault> {
        self.commit_with(&[])
    }

    /// Commits, with changes of names that were noted.
    fn commit_with(&mut self, noted: &[Noted<'_>]) -> Result<u64, Fault> {
        if !self.nodes.is_empty() || !noted.is_empty() {
            assert_held::<NodeLock>();
        }
        let mut changes = std::mem::take(&mut self.changes);
        let has_orphans = self.nodes.iter().any(|changed| changed.orphan.is_some());
        let whole = if has_orphans { self.metadata.orphans().lock_whole() } else { None };
        // Filled where it is, because it is large.
        let mut finished = self.metadata.groups().finished();
        if let Err(fault) = self.finish(&mut changes, &mut finished) {
            self.changes = changes;
            debug_assert!(!is_overrun(&fault), "{fault}");
            return Err(fault);
        }
        self.release_names(noted);
        let committed = self.publish(&changes, &mut finished, &whole)?;
        drop(whole);
        finished.committed(&changes, committed.order);
        // The claimed blocks are in use now.
        self.space_used = 0;
        Ok(committed.sequence)
    }

    /// Writes the claims and frees into the trees of the groups, and checks that the reservation
    /// suffices to log everything.
    fn finish(&mut self, changes: &mut Changes, finished: &mut Finished<'v>) -> Result<(), Fault> {
        if self.is_spoiled {
            return Err(Fault::NoSpace);
        }
        let groups = self.metadata.groups();
        if !changes.is_empty() {
            groups.finish(self, changes, finished).map_err(Fault::local)?;
        }
        let has_home = |changed: &&ChangedNode| changed.has_home || changed.node.has_home();
        for changed in self.nodes.iter().filter(|changed| !has_home(changed)) {
            self.metadata.hold_home(&mut self.homes, changes, &changed.node)?;
        }
        let chunks = (changes.new_chunks().count() + changes.freed_chunks().count()) as u64;
        let of_chunk = Reservation::item_bytes(0) * (1 + CHUNK_INODES);
        let inodes = self.nodes.len() as u64 * Reservation::item_bytes(RECORD_BYTES as u64);
        let (needed, gained) = finished.log_bytes();
        let used = self.shadows.log_bytes() + chunks * of_chunk + inodes + needed;
        let reserved = self.log_bytes + gained;
        if used > reserved {
            self.metadata.count_overrun();
            return Err(vfscale_journal::Error::Overrun { used, reserved }.into());
        }
        Ok(())
    }

    /// Writes the delayed changes of a group, if there are any, and commits them.
    ///
    /// # Errors
    /// The errors of the device and the log, and damage: the log has to be shut down.
    pub(super) fn write_group(mut self, group: u32) -> Result<(), Fault> {
        let groups = self.metadata.groups();
        let written = groups.write_delayed(&mut self, group).map_err(Fault::local)?;
        let Some(mut finished) = written else { return Ok(()) };
        let changes = Changes::new();
        let committed = self.publish(&changes, &mut finished, &None)?;
        finished.committed(&changes, committed.order);
        Ok(())
    }

    /// Pins, publishes and commits everything.
    fn publish(
        &mut self,
        changes: &Changes,
        finished: &mut Finished<'_>,
        whole: &WholeGuard<'_>,
    ) -> Result<Committed, Fault> {
        let (metadata, cache) = (self.metadata, self.metadata.cache());
        let Some(log) = &mut self.log else { return Err(Fault::ReadOnly) };
        let changed = log.changes();
        // The log space of the names that are folded.
        self.folds.iter().for_each(|fold| changed.take_over(fold.held.log_bytes));
        let busy = finished.busy();
        finished.prepare(changed);
        // The chunks precede the inodes in them: a recovery follows the order of the items.
        for first in changes.new_chunks() {
            let chunk = new_chunk(metadata, first);
            changed.add(chunk.clone());
            cache.publish_inodes(&chunk);
            self.homes.extend(chunk.buffers().iter().cloned());
        }
        for first in changes.freed_chunks() {
            changed.add(Cancel::new(LogKey { kind: KIND_INODE_CHUNK, id: first }));
            // Inodes freed here cancel themselves, see below. The others were freed by transactions
            // that have changed the group, as this one does, so they precede it in the log.
            let is_here = |ino| self.nodes.iter().any(|changed| changed.node.ino() == ino);
            let inodes = ino_at(first, 0)..ino_at(first + CHUNK_BLOCKS, 0);
            for id in inodes.filter(|ino| !is_here(*ino)) {
                changed.add(Cancel::new(LogKey { kind: KIND_INODE, id }));
            }
            cache.give_up_inodes(first);
        }
        self.shadows.publish(changed);
        for ChangedNode { node, before, core, orphan, .. } in self.nodes.drain(..) {
            // Each is put back after an edit.
            let core = core.unwrap_or_else(|| node.core());
            if let Some(is_orphan) = orphan {
                metadata.orphans().set(whole, &node, is_orphan);
            }
            let is_gone = changes.freed_chunks().any(|chunk| chunk == chunk_of(node.block()));
            if is_gone {
                changed.add(Arc::clone(&node));
                node.publish(core, before, None);
                node.give_up();
            } else {
                let image = Arc::clone(&core) as _;
                let home = self.homes.iter().find(|home| home.address() == node.block());
                changed.add_image(node, image, |node| node.publish(core, before, home));
            }
        }
        if busy.expected() != 0 {
            metadata.space().expect(busy.expected());
        }
        if !busy.is_empty() {
            let shared = metadata.keep();
            changed.on_durable(move |durable| {
                if durable.is_ok() {
                    let blocks = busy.blocks();
                    shared.groups.durable(&busy);
                    if let Some(freed) = &shared.freed {
                        freed.note(busy.runs());
                    }
                    shared.space.come_back(blocks);
                }
            });
        }
        let committed = log.commit();
        self.log = None;
        let committed = committed?;
        self.end_folds();
        Ok(committed)
    }
}

impl Metadata {
    /// Reads the block of a node's record into `homes`, unless it is there, or a transaction with
    /// these changes makes or frees it.
    fn hold_home(&self, homes: &mut Homes, changes: &Changes, node: &Node) -> Result<(), Fault> {
        let block = node.block();
        let mut chunks = changes.new_chunks().chain(changes.freed_chunks());
        let is_here = homes.iter().any(|home| home.address() == block);
        if !is_here && !chunks.any(|chunk| chunk == chunk_of(block)) {
            homes.push(self.cache().get_inodes(block, &Node::expected(node.ino()))?);
        }
        Ok(())
    }
}

fn is_overrun(fault: &Fault) -> bool {
    matches!(fault, Fault::Journal(vfscale_journal::Error::Overrun { .. }))
}

/// Creates eight blocks of free inodes.
fn new_chunk(metadata: &Metadata, first: u64) -> Arc<InodeChunk> {
    let buffer = |address| {
        let mut block = Block::zeroed();
        let (magic, owner, volume_id) = (INODE_MAGIC, first, metadata.uuid());
        block.seal(&Identity { magic, address, owner, volume: volume_id }, 0);
        metadata.cache().fresh(address, block.into())
    };
    metadata.cache().inode_chunk((first..first + CHUNK_BLOCKS).map(buffer).collect())
}

impl Drop for Tx<'_> {
    fn drop(&mut self) {
        let shared = self.metadata.shared();
        if !self.changes.is_untouched() {
            shared.groups.abandon(std::mem::take(&mut self.changes));
        }
        let reserved = self.space_left + self.space_used;
        shared.space.give(reserved.saturating_sub(self.folded_blocks()));
    }
}

impl Nodes for Tx<'_> {
    type Error = Fault;
    type Ref<'a>
        = BlockRef<'a>
    where
        Self: 'a;
    type Slot = Slot;

    fn is_possible(&self, address: u64) -> bool {
        self.metadata.places().is_for_trees(address)
    }

    fn is_for_data(&self, start: u64, blocks: u64) -> bool {
        self.metadata.places().is_run_for_files(start, blocks)
    }

    fn read(&self, address: u64, expected: &Expected) -> Result<BlockRef<'_>, Error<Fault>> {
        Ok(self.shadows.read(address, expected)?)
    }

    fn writable(&mut self, address: u64, expected: &Expected) -> Result<Slot, Error<Fault>> {
        Ok(self.shadows.prepare(address, expected)?)
    }

    fn freeable(&mut self, address: u64, expected: &Expected) -> Result<Slot, Error<Fault>> {
        Ok(self.shadows.prepare(address, expected)?)
    }

    fn allocate(&mut self, hint: u64, expected: &Expected) -> Result<(u64, Slot), Error<Fault>> {
        let run = self.claim(hint, 1, 1)?;
        Ok((run.start, self.shadows.create(run.start, expected)))
    }

    fn edit(&mut self, slot: Slot) -> &mut Block {
        self.shadows.edit(slot)
    }

    fn free(&mut self, slot: Slot) {
        let (address, is_new) = self.shadows.destroy(slot);
        if is_new {
            self.unclaim(address);
        } else {
            self.changes.free_destroyed(address);
        }
    }

    fn cancel(&mut self, slot: Slot) {
        let (address, _) = self.shadows.destroy(slot);
        self.unclaim(address);
    }
}

impl GroupNodes for Tx<'_> {
    fn create(&mut self, address: u64, expected: &Expected) -> Result<Slot, Error<Fault>> {
        Ok(self.shadows.create(address, expected))
    }

    fn destroy(&mut self, slot: Slot) {
        self.shadows.destroy(slot);
    }

    fn uncreate(&mut self, slot: Slot) {
        self.shadows.destroy(slot);
    }

    fn hold(&self, address: u64, expected: &Expected) -> Result<Option<Arc<Buffer>>, Error<Fault>> {
        Ok(Some(self.metadata.cache().get(address, expected)?))
    }

    fn log_left(&self) -> u64 {
        // With nothing to log, the commit would not tell which checkpoint has the runs.
        if self.nodes.is_empty() {
            return 0;
        }
        let inodes = self.nodes.len() as u64 * Reservation::item_bytes(RECORD_BYTES as u64);
        self.log_bytes.saturating_sub(self.shadows.log_bytes() + inodes)
    }

    fn leaves_out(&self) -> bool {
        self.leaves_out
    }

    fn is_unreadable(error: &Fault) -> bool {
        matches!(error, Fault::Device(error) if !error.is_no_space())
    }

    fn no_space() -> Fault {
        Fault::NoSpace
    }
}

impl std::fmt::Debug for Tx<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tx")
            .field("shadows", &self.shadows)
            .field("nodes", &self.nodes.len())
            .field("changes", &self.changes)
            .field("log_bytes", &self.log_bytes)
            .field("space_left", &self.space_left)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
