//! Allocation groups: who has which block and which inode.
//!
//! # Purpose
//!
//! A group knows its free blocks and free inodes twice: on disk, in two trees and a header, and in
//! memory, in an index that says what can still be had. Taking something from the index (a *claim*)
//! takes a short lock of one group and no I/O, at any time and in any order of groups. What a
//! transaction does with its claims is collected ([`Changes`]) and written into the trees when it
//! commits ([`Groups::finish`]).
//!
//! # Invariants
//!
//! * What is free on disk is one of these: in the index, or in a part of the group that the index
//!   has not loaded; claimed by a transaction or by who writes data back; busy, which means that a
//!   transaction has freed it and is not durable yet. Of what is claimed or busy the index has a
//!   list (*pending*).
//! * A block is in the index only once the transaction that freed it is durable: whoever claims it
//!   may write data there at once, and a crash must not bring the former owner back. A tree of the
//!   group may have such a block earlier: what is written there is logged, and goes home only after
//!   that.
//! * An inode that was freed can be had as soon as its transaction is committed: whatever becomes
//!   of it is logged behind that.
//! * Whatever the index holds was checked against what a group can have. Damage is an error of the
//!   call that meets it.
//! * The trees find the blocks they need: `alloc/ag_update.rs` has the argument.
//!
//! # Indexes are loaded in parts
//!
//! An index is made when a group is used for the first time, from the header, with the group
//! locked. Until then no claim can have been made in it, and nothing freed. A search asks for a
//! *zone* of 16 MiB that it needs, and that is read from the trees, with the group locked: about
//! 2,048 records at a time, so that a group with fewer is loaded at once. As the list of what is
//! pending is whole, a zone can be dropped at any time and read again: it holds what the trees have
//! there, without that. The indexes of a volume have a limit of memory together ([`memory`]),
//! beyond which zones are dropped that were not used of late. What was known of a zone stays, in
//! two bytes: the longest run, so that searches need not read it in vain.
//!
//! A search for a good place reads so much and no more, and takes the best it has found. Only who
//! would be refused otherwise looks everywhere.
//!
//! # Locks
//!
//! `group_lock` is held by a commit from the first change of a tree until the journal has the
//! transaction, and while a part of an index is loaded; several are taken in the order of groups.
//! `group_index` is a leaf, held for one search, or while a part is put in or dropped.
//!
//! # Who goes where
//!
//! Files go to the group of their directory, directories are spread over the groups, each CPU
//! beginning elsewhere; so threads that work in different directories lock different groups.

mod ag_update;
mod agfl;
mod alloc_group;
pub mod changes;
mod chunks;
mod extents;
mod index;
pub mod initial;
mod layout;
mod list;
mod load;
pub mod memory;
mod nodes;
mod pending;
mod search;
pub mod space;
#[cfg(test)]
mod tests;
mod zones;

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use smallvec::SmallVec;
use vfscale_sync::atomic::{AtomicU32, AtomicU64, Ordering};
use vfscale_sync::percpu::{IdAlloc, PerCpu};
use vfscale_sync::{Mutex, MutexGuard, cpu};

pub use changes::Changes;
pub use layout::Layout;
pub use nodes::GroupNodes;

use crate::base::ranks::{GroupLock, GrowthLock};
use crate::btree::{Entry, Error, Nodes};
use crate::format::group::{GroupFault, fault};
use crate::format::inode::{CHUNK_INODES, INODES_PER_BLOCK, block_of, chunk_of};
use crate::format::{Damage, Run};
use crate::{Geometry, LogPlace};
use ag_update::{Outcome, Part, Work, impossible, in_order};
use alloc_group::Group;
use list::GroupList;
use load::Effort;
use memory::IndexMemory;

/// Runs shorter than this are left alone as long as there are others, in whatever group.
const RUN_WANTED: u32 = 16;
/// How many groups are compared when a place for a directory is sought.
const GROUPS_COMPARED: u32 = 8;

/// The groups of an open volume. `Send` and `Sync`.
pub struct Groups {
    /// What it was when the volume was opened.
    opened: Geometry,
    /// How many blocks the volume has.
    blocks: AtomicU64,
    log: LogPlace,
    list: GroupList,
    memory: Arc<IndexMemory>,
    /// One thread at a time makes the volume larger.
    growth: Mutex<(), GrowthLock>,
    /// Where each CPU looks for a place for the next directory.
    cursors: PerCpu<AtomicU32>,
    generations: IdAlloc,
    /// The most blocks that the trees of a group have had.
    largest_trees: AtomicU64,
    /// The most levels that they can have.
    levels_max: AtomicU32,
}

/// What all groups have together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Blocks that files can have if there are none.
    pub blocks: u64,
    /// Blocks that are neither used nor claimed nor kept for the groups' own trees.
    pub available: u64,
    /// Inodes of all chunks.
    pub inodes: u64,
    /// Inodes that are free on disk.
    pub free_inodes: u64,
    /// Inodes that are orphans on disk.
    pub orphans: u64,
}

/// Runs that a transaction has freed: free in the trees, and not to be used before the transaction
/// is durable.
#[derive(Debug, Default)]
#[must_use = "what is lost here is not free before the next mount"]
pub struct Busy {
    parts: Vec<BusyPart>,
    blocks: u64,
}

/// The same of one group.
#[derive(Debug)]
struct BusyPart {
    group: u32,
    runs: Vec<Run>,
    /// How many blocks of these were its trees' before.
    drained: u64,
    /// If the group was extended, how many blocks its trees can now come to need.
    tree_max: Option<u64>,
}

impl Busy {
    /// How many blocks the transaction has freed.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Whether nothing was freed, so that nobody has to be told.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty() && self.blocks == 0
    }
}

/// Groups that a transaction has changed, which stay locked until the journal has it.
#[must_use = "a transaction that is finished is committed or abandoned"]
pub struct Finished<'g> {
    groups: &'g Groups,
    parts: SmallVec<[Locked<'g>; 1]>,
}

/// What is to be done in each group, by their numbers.
#[derive(Default)]
struct Parts(SmallVec<[(u32, Part); 1]>);

impl Parts {
    fn of(&mut self, group: u32) -> &mut Part {
        let at = self.0.binary_search_by_key(&group, |(group, _)| *group).unwrap_or_else(|at| {
            self.0.insert(at, (group, Part::default()));
            at
        });
        &mut self.0[at].1
    }
}

struct Locked<'g> {
    group: &'g Group,
    outcome: Outcome,
    _guard: MutexGuard<'g, (), GroupLock>,
}

impl Groups {
    /// The groups of a volume that is divided so, with its log there. Reads one block per group.
    ///
    /// # Errors
    /// [`Error`].
    pub fn load<N: Nodes>(
        nodes: &N,
        geometry: Geometry,
        log: LogPlace,
    ) -> Result<Self, Error<N::Error>> {
        let memory = Arc::new(IndexMemory::new());
        let groups = read_groups(nodes, (geometry, log), 0, &memory)?;
        let of = |group: &Group| (group.counts.trees.load(Ordering::Relaxed), group.levels_max());
        let most = |most: (u64, u64), group| {
            let (trees, levels) = of(group);
            (most.0.max(trees), most.1.max(levels))
        };
        let (largest_trees, levels_max) = groups.iter().fold((0, 1), most);
        let slots = cpu::possible().max(1);
        let step = (geometry.groups() / slots).max(1);
        let start = |slot: usize| (slot as u32).wrapping_mul(step) % geometry.groups();
        // Numbers that are not those of an earlier mount, as far as that can be.
        let first = RandomState::new().build_hasher().finish() >> 32;
        Ok(Self {
            opened: geometry,
            blocks: AtomicU64::new(geometry.blocks()),
            log,
            list: GroupList::new(groups),
            memory,
            growth: Mutex::new(()),
            cursors: PerCpu::new(slots as usize, |slot| AtomicU32::new(start(slot))),
            generations: IdAlloc::new(first, slots as usize),
            largest_trees: AtomicU64::new(largest_trees),
            levels_max: AtomicU32::new(levels_max as u32),
        })
    }

    /// What all groups have together. Sums up; what changes meanwhile may be seen or not.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.list.iter().fold(Totals::default(), |sum, group| {
            let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
            let layout = group.layout();
            Totals {
                blocks: sum.blocks
                    + layout.usable_blocks().saturating_sub(layout.tree_blocks_max()),
                available: sum.available + value(&group.available),
                inodes: sum.inodes + value(&group.counts.inodes),
                free_inodes: sum.free_inodes + value(&group.counts.free_inodes),
                orphans: sum.orphans + value(&group.counts.orphans),
            }
        })
    }

    /// How many groups there are.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.geometry().groups()
    }

    /// The most blocks that [`finish`](Self::finish) changes, makes or frees for a transaction with
    /// so many claims and frees of blocks, and so many inodes made, freed or made orphans.
    ///
    /// A change of a tree is a removal and an insertion, in the worst case: at each level a block,
    /// its neighbour, and the one behind a new or a freed one; a root has no neighbours. An inode
    /// changes a leaf, and may make a chunk or give one up, which is a change of both trees. Each
    /// may be in another group, which has a header and may fetch blocks for its trees. Trees don't
    /// grow by more than a level from now until then: that takes thousands of runs.
    #[must_use]
    pub fn log_blocks(&self, runs: u32, inodes: u32) -> u32 {
        let trees = self.largest_trees.load(Ordering::Relaxed);
        // A tree of so many levels has two blocks at least below its root, four below these, and so
        // on.
        let levels = (trees / 2 + 1).ilog2() + 2;
        let levels = levels.min(self.levels_max.load(Ordering::Relaxed));
        let change = 6 * levels;
        let changes = runs.saturating_add(inodes);
        let groups = changes.min(self.count());
        runs.saturating_mul(change)
            .saturating_add(inodes.saturating_mul(change + 3 * levels))
            .saturating_add(groups.saturating_mul(change + 1))
    }

    /// A number for a new inode's generation. It differs from those before it in this mount, unless
    /// these are 2^32, and from those of earlier mounts most probably: so a handle of a file that
    /// was removed does not find another file with the same number.
    #[must_use]
    pub fn generation(&self) -> u32 {
        // Zero is for who has none.
        loop {
            let generation = self.generations.next() as u32;
            if generation != 0 {
                return generation;
            }
        }
    }

    /// How the volume is divided.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        let blocks = self.blocks.load(Ordering::Acquire);
        // It was that of a volume when it was stored.
        self.opened.grown(blocks).unwrap_or(self.opened)
    }

    /// The group that a block is in; `None` outside of the volume.
    fn group_of(&self, block: u64) -> Option<u32> {
        let is_inside = block < self.blocks.load(Ordering::Acquire);
        is_inside.then_some((block >> self.opened.group_log2()) as u32)
    }

    fn at(&self, group: u32) -> Option<&Group> {
        self.list.at(group)
    }

    /// All groups, from this one on.
    fn from(&self, first: u32) -> impl Iterator<Item = &Group> {
        (first..self.count()).chain(0..first).filter_map(|group| self.at(group))
    }

    /// Takes `min` to `max` consecutive blocks, `min` at least one, near the block `near` if
    /// possible: right there, if it is free; elsewhere in its group; in another group. `None` if
    /// there are not as many free blocks in one piece anywhere; with a `min` of more than 1, a
    /// piece that lies across two zones may be missed. They are the caller's until it gives them to
    /// [`Changes::use_claim`], or back ([`unclaim`](Self::unclaim)).
    ///
    /// Takes leaf locks, and reads from the device, with a group locked, what is not loaded.
    ///
    /// # Errors
    /// [`Error`], from that reading.
    pub fn claim<N: Nodes>(
        &self,
        nodes: &N,
        near: u64,
        min: u32,
        max: u32,
    ) -> Result<Option<Run>, Error<N::Error>> {
        let max = max.max(min);
        let first = self.group_of(near).unwrap_or(0);
        // Fragments are for when nothing else is left. And what others have taken while we looked
        // may be back in a group that we have left, so nothing is refused after one look.
        let mut efforts = [Effort::better(), Effort::anything(), Effort::anything()];
        for (effort, min) in efforts.iter_mut().zip([min.max(max.min(RUN_WANTED)), min, min]) {
            for group in self.from(first) {
                if let Some(run) = group.claim(nodes, near, (min, max), effort)? {
                    self.shrink_indexes();
                    return Ok(Some(run));
                }
            }
        }
        self.shrink_indexes();
        Ok(None)
    }

    /// Gives a claim back, or a part of it, that was not used.
    pub fn unclaim(&self, run: Run) {
        if let Some(group) = self.group_of(run.start).and_then(|group| self.at(group)) {
            group.change_index(|index| index.release(run));
        }
    }

    /// Takes a free inode for the transaction with `changes`, or makes a chunk of inodes in it: for
    /// a file in the group of the block `near`, which is that of its directory's inode; for a
    /// directory in a group with more free space than others. `None` if neither is possible.
    /// Returns the inode's number.
    ///
    /// A chunk takes 8 blocks.
    ///
    /// # Errors
    /// As [`claim`](Self::claim).
    pub fn claim_inode<N: Nodes>(
        &self,
        nodes: &N,
        near: u64,
        is_dir: bool,
        changes: &mut Changes,
    ) -> Result<Option<u64>, Error<N::Error>> {
        let of_near = self.group_of(near).unwrap_or(0);
        let wanted = if is_dir { self.group_for_directory() } else { of_near };
        for mut effort in [Effort::better(), Effort::anything()] {
            for group in self.from(wanted) {
                let found = claim_inode_in(group, nodes, near, changes, &mut effort)?;
                if let Some((chunk, bit)) = found {
                    let ino = chunk * INODES_PER_BLOCK + u64::from(bit);
                    changes.inode(ino).is_new = true;
                    self.shrink_indexes();
                    return Ok(Some(ino));
                }
            }
        }
        self.shrink_indexes();
        Ok(None)
    }

    /// A group with at least as much free space as others beside it; the next one each time.
    fn group_for_directory(&self) -> u32 {
        let groups = self.count();
        let compared = GROUPS_COMPARED.min(groups);
        let cursor = self.cursors.this();
        let start = cursor.load(Ordering::Relaxed) % groups;
        let window = (start..start + compared).map(|group| group % groups);
        let free =
            |group: u32| self.at(group).map_or(0, |group| group.available.load(Ordering::Relaxed));
        let sum: u64 = window.clone().map(free).sum();
        let average = sum / u64::from(compared);
        let chosen = window.clone().find(|group| free(*group) >= average).unwrap_or(start);
        cursor.store((chosen + 1) % groups, Ordering::Relaxed);
        chosen
    }

    /// Writes what a transaction does into the trees of the groups, whose locks it takes. Reads
    /// what it needs from the device. Comes last before the journal's commit;
    /// [`Finished::committed`] comes after it.
    ///
    /// # Errors
    /// [`Error`], [`GroupNodes::no_space`] among them. The transaction must not be committed then;
    /// `changes` is to be [abandoned](Self::abandon).
    pub fn finish<N: GroupNodes>(
        &self,
        nodes: &mut N,
        changes: &mut Changes,
    ) -> Result<Finished<'_>, Error<N::Error>> {
        let mut finished = Finished { groups: self, parts: SmallVec::new() };
        for (number, part) in self.parts(changes)?.0 {
            let Some(group) = self.at(number) else { continue };
            // In the order of groups.
            let guard = group.lock.lock_nested();
            group.make_index(nodes)?;
            let outcome = Work::run(group, nodes, &mut changes.undo, part)?;
            finished.parts.push(Locked { group, outcome, _guard: guard });
        }
        Ok(finished)
    }

    /// What is to be done in each group.
    fn parts(&self, changes: &mut Changes) -> Result<Parts, Damage> {
        let mut parts = Parts::default();
        let header = |run: Run| {
            let group = self.group_of(run.start).unwrap_or(0);
            self.at(group).map_or(0, |group| group.whole().header())
        };
        let ordered = |runs: &[Run], is_free: bool| {
            let group_of = |run: Run| {
                let group = self.group_of(run.start)?;
                self.at(group)?.layout().is_usable(run.start, run.len()).then_some(group)
            };
            in_order(runs.to_vec(), group_of).map_err(|run| impossible(header(run), run, is_free))
        };
        for (group, run) in ordered(&changes.claims, true)? {
            parts.of(group).claims.push(run);
        }
        for (group, run) in ordered(&changes.frees, false)? {
            parts.of(group).frees.push(run);
        }
        for (group, run) in ordered(&changes.destroyed, false)? {
            parts.of(group).destroyed.push(run);
        }
        for &(ino, change) in &changes.inodes {
            let block = ino / INODES_PER_BLOCK;
            let Some(group) = self.group_of(block) else {
                return Err(fault(header(Run::new(0, 0)), GroupFault::Inode { ino }));
            };
            parts.of(group).inodes.push((ino, change));
        }
        for &chunk in changes.new_chunks.keys() {
            let group = self.group_of(chunk).unwrap_or(0);
            parts.of(group).new_chunks.push(chunk);
        }
        for &group in &changes.extended {
            parts.of(group).is_extended = true;
        }
        Ok(parts)
    }

    /// Lets one thread at a time make the volume larger.
    pub fn growth(&self) -> MutexGuard<'_, (), GrowthLock> {
        self.growth.lock()
    }

    /// The volume is divided so from now on: it has grown. The caller holds
    /// [`growth`](Self::growth), and has written new groups and the superblock. False if it has
    /// grown too often while it is open; then nothing has changed.
    ///
    /// # Errors
    /// [`Error`], from reading the new groups; nothing has changed then.
    pub fn grow<N: Nodes>(&self, nodes: &N, geometry: Geometry) -> Result<bool, Error<N::Error>> {
        let former = self.geometry();
        let last = former.groups() - 1;
        let new = read_groups(nodes, (geometry, self.log), former.groups(), &self.memory)?;
        let levels = new.iter().map(Group::levels_max).max().unwrap_or(1) as u32;
        if !new.is_empty() && !self.list.push(new) {
            return Ok(false);
        }
        self.levels_max.fetch_max(levels, Ordering::Relaxed);
        if let (Some(group), Some(blocks)) = (self.at(last), geometry.blocks_of(last)) {
            let blocks = blocks.end - blocks.start;
            group.grow(blocks);
            self.levels_max.fetch_max(group.levels_max() as u32, Ordering::Relaxed);
        }
        // Who sees the new size finds the groups.
        self.blocks.store(geometry.blocks(), Ordering::Release);
        Ok(true)
    }

    /// The groups that don't account for all of their blocks yet, since the volume has grown: a
    /// transaction is to [extend](Changes::extend) them.
    pub fn unfinished(&self) -> impl Iterator<Item = u32> {
        let is_unfinished = |group: &&Group| group.layout() != group.whole();
        self.list.iter().filter(is_unfinished).map(|group| group.whole().group())
    }

    /// The transaction was not committed: what it had claimed can be had by others.
    pub fn abandon(&self, changes: Changes) {
        let Changes { claims, claimed_inodes, undo, .. } = changes;
        let at = |block: u64| self.group_of(block).and_then(|group| self.at(group));
        // Before the claims: what was claimed and freed is nobody's after that.
        for run in undo.withheld {
            at(run.start).and_then(|group| group.change_index(|index| index.forget(run)));
        }
        claims.into_iter().for_each(|run| self.unclaim(run));
        for run in undo.fetched {
            at(run.start).and_then(|group| {
                group.change_index(|index| {
                    index.tree_total = index.tree_total.saturating_sub(run.len());
                    index.release(run);
                })
            });
        }
        for (chunk, free) in claimed_inodes.into_iter().chain(undo.chunks) {
            at(chunk)
                .and_then(|group| group.change_index(|index| index.chunks.unclaim(chunk, free)));
        }
    }

    /// The transaction that freed this is durable: now it can be had. Called by
    /// [`on_durable`](vfscale_journal::Transaction::on_durable); takes leaf locks.
    pub fn durable(&self, busy: Busy) {
        for BusyPart { group, runs, drained, tree_max } in busy.parts {
            let Some(group) = self.at(group) else { continue };
            group.change_index(|index| {
                index.tree_total = index.tree_total.saturating_sub(drained);
                index.tree_max = tree_max.unwrap_or(index.tree_max);
                for run in runs {
                    index.release(run);
                }
            });
        }
        self.shrink_indexes();
    }

    /// Whether an inode of this number is in use, as the last commit of its group has left it. For
    /// numbers that come from outside: what the block of such a number holds says nothing, for
    /// blocks of inodes that were given up stay on the device as they were. Takes the lock of the
    /// group, and may read its tree.
    ///
    /// # Errors
    /// [`Error`].
    pub fn has_inode<N: Nodes>(&self, nodes: &N, ino: u64) -> Result<bool, Error<N::Error>> {
        let block = block_of(ino);
        let Some(group) = self.group_of(block).and_then(|group| self.at(group)) else {
            return Ok(false);
        };
        let _guard = group.lock.lock();
        let key = chunk_of(block).into();
        let Some(value) = group.whole().chunk_tree().get(nodes, key)? else { return Ok(false) };
        let (_, (free, _)) = Group::chunk(&group.layout(), &Entry { key, value })?;
        Ok(free & 1 << (ino % CHUNK_INODES) == 0)
    }

    /// The orphans of a group, by number. Reads nothing if its header counts none.
    ///
    /// # Errors
    /// [`Error`].
    pub fn orphans<N: Nodes>(&self, nodes: &N, group: u32) -> Result<Vec<u64>, Error<N::Error>> {
        let mut orphans = Vec::new();
        let Some(group) = self.at(group) else { return Ok(orphans) };
        if group.counts.orphans.load(Ordering::Relaxed) == 0 {
            return Ok(orphans);
        }
        let _guard = group.lock.lock();
        for record in group.whole().chunk_tree().range(nodes, ..)? {
            let (chunk, mask) = Group::chunk(&group.layout(), &record?)?;
            let bits = (0..CHUNK_INODES).filter(|bit| mask.1 & (1 << bit) != 0);
            orphans.extend(bits.map(|bit| chunk * INODES_PER_BLOCK + bit));
        }
        Ok(orphans)
    }
}

/// Takes an inode in a group, or makes a chunk of inodes there: the chunk, and which of its inodes.
fn claim_inode_in<N: Nodes>(
    group: &Group,
    nodes: &N,
    near: u64,
    changes: &mut Changes,
    effort: &mut Effort,
) -> Result<Option<(u64, u32)>, Error<N::Error>> {
    let range = group.whole().blocks();
    let near = if range.contains(&near) { near } else { range.start };
    if let Some((&chunk, free)) = changes.new_chunks.range_mut(range).find(|(_, free)| **free != 0)
    {
        let bit = free.trailing_zeros();
        *free &= !(1 << bit);
        return Ok(Some((chunk, bit)));
    }
    if let Some((chunk, bit)) = group.claim_inode(nodes, near, effort)? {
        changes.claimed_inodes.push((chunk, 1 << bit));
        return Ok(Some((chunk, bit)));
    }
    let Some(run) = group.claim_for_chunk(nodes, near, effort)? else { return Ok(None) };
    changes.claims.push(run);
    changes.new_chunks.insert(run.start, !1);
    Ok(Some((run.start, 0)))
}

/// Reads the headers of all groups from number `first` on.
fn read_groups<N: Nodes>(
    nodes: &N,
    (geometry, log): (Geometry, LogPlace),
    first: u32,
    memory: &Arc<IndexMemory>,
) -> Result<Box<[Group]>, Error<N::Error>> {
    let mut groups = Vec::new();
    for number in first..geometry.groups() {
        let Some(group) = Group::new(geometry, log, number, memory) else { break };
        group.read_header(nodes)?;
        groups.push(group);
    }
    Ok(groups.into())
}

impl std::fmt::Debug for Groups {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Groups").field("totals", &self.totals()).finish_non_exhaustive()
    }
}

impl Finished<'_> {
    /// What the transaction has freed, to be told to [`Groups::durable`] when it is durable. Taken
    /// once, before the commit.
    pub fn busy(&mut self) -> Busy {
        let mut busy = Busy::default();
        for Locked { group, outcome, .. } in &mut self.parts {
            let runs = std::mem::take(&mut outcome.busy);
            let freed: u64 = runs.iter().map(|run| run.len()).sum();
            busy.blocks += freed - outcome.drained - outcome.extended + outcome.donated;
            let tree_max = (outcome.extended > 0).then(|| group.whole().tree_blocks_max());
            let (group, drained) = (group.whole().group(), outcome.drained);
            if !runs.is_empty() || drained > 0 || tree_max.is_some() {
                busy.parts.push(BusyPart { group, runs, drained, tree_max });
            }
        }
        busy
    }

    /// The journal has the transaction: what it did is seen from now on, and the groups are
    /// unlocked.
    pub fn committed(self, changes: Changes) {
        let Changes { new_chunks, claimed_inodes, undo, .. } = changes;
        for (chunk, free) in new_chunks {
            let group = self.groups.group_of(chunk);
            if let Some(group) = group.and_then(|at| self.groups.at(at)) {
                group.change_index(|index| index.chunks.add(chunk, free));
            }
        }
        for Locked { group, outcome, .. } in self.parts {
            let trees = outcome.header.tree_blocks;
            if trees > self.groups.largest_trees.load(Ordering::Relaxed) {
                self.groups.largest_trees.fetch_max(trees, Ordering::Relaxed);
            }
            group.counts.set(&outcome.header);
            group.account(outcome.header.blocks);
            let range = group.whole().blocks();
            let claimed = claimed_inodes.iter().chain(&undo.chunks);
            let claimed = claimed.filter(|(chunk, _)| range.contains(chunk));
            group.change_index(|index| {
                index.tree_total += outcome.donated;
                outcome.used.iter().for_each(|run| index.forget(*run));
                for run in outcome.freed_claims {
                    index.withhold(run);
                }
                claimed.for_each(|(chunk, inodes)| index.chunks.forget(*chunk, *inodes));
                for (chunk, freed) in outcome.freed_inodes {
                    index.chunks.add(chunk, freed);
                }
            });
        }
    }
}
