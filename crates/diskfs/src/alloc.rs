//! Allocation groups: which blocks and inodes are free, and which are allocated. Counterpart of the
//! allocation groups (AG) of XFS.
//!
//! # Purpose
//!
//! A group records its free blocks and free inodes twice: on disk, in two trees and a header, and
//! in memory, in an index of those that can be claimed. A *claim* takes blocks or an inode out of
//! the index. It needs a short lock of one group and no I/O, and is possible at any time and in any
//! order of groups. What a transaction does with its claims is collected ([`Changes`]) and written
//! into the trees when it commits ([`Groups::finish`]).
//!
//! # Invariants
//!
//! * A block or inode that is free on disk is in one of three states. *Available*: in the index, or
//!   in a zone that the index has not loaded. *Claimed*: by a transaction or by writeback. *Busy*:
//!   freed by a transaction that is not durable yet. The index has a list of all claimed and busy
//!   blocks (*pending*).
//! * A block enters the index only once the transaction that freed it is durable: the claimant may
//!   write data to it immediately, and a crash must not give it back to its former owner. A tree of
//!   the group may receive such a block earlier: writes to a tree are logged, and are written back
//!   in place only after that transaction is durable.
//! * A freed inode can be claimed as soon as its transaction is committed: every later change of
//!   the inode is logged behind that transaction.
//! * Every entry of an index was checked against the bounds of its group. Corruption is an error of
//!   the call that finds it.
//! * The trees find the blocks they need: `alloc/ag_update.rs` has the argument.
//!
//! # Indexes are loaded by zone
//!
//! The index of a group is created from the header when the group is used for the first time, with
//! the group locked. Before that nothing can have been claimed or freed in the group. A search
//! names a *zone* of 16 MiB that it needs, and the zone is read from the trees, with the group
//! locked. About 2,048 records are read at a time; a group with fewer is loaded in one step. The
//! list of pending blocks is complete. Hence a zone can be dropped at any time and read again: its
//! content is the content of the trees without the pending blocks. All indexes of a volume share a
//! limit of memory ([`memory`]). Beyond it, zones that were not used recently are dropped. A
//! summary of two bytes remains of each: the length of its longest run, which spares searches from
//! reading it in vain.
//!
//! A search for a good location reads a limited number of records and takes the best that it has
//! found. Only a search that would fail otherwise reads all zones.
//!
//! # Locks
//!
//! `group_lock` is held by a commit from the first change of a tree until the journal has the
//! transaction, and while a zone is loaded; several are taken in the order of groups. `group_index`
//! is a leaf, held for one search, or while a zone is loaded or dropped.
//!
//! # Placement
//!
//! Files are allocated in the group of their directory. Directories are distributed over the
//! groups, and each CPU starts at a different group. Hence threads that work in different
//! directories lock different groups. If CPUs contend for a group nevertheless, as in a directory
//! that several threads change, each claims in a group of its own until they no longer do
//! (`alloc/heat.rs`).

mod ag_update;
mod agfl;
mod alloc_group;
pub mod changes;
mod chunks;
mod delay;
mod delayed;
mod extents;
mod finished;
mod headers;
mod heat;
mod index;
pub mod initial;
mod layout;
mod leave_out;
mod left_out;
mod list;
mod load;
pub mod memory;
mod nodes;
mod pending;
mod search;
pub mod space;
mod sums;
#[cfg(test)]
mod tests;
mod trim;
mod zones;

use std::collections::hash_map::RandomState;
use std::fmt::Display;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use smallvec::SmallVec;
use vfscale_sync::atomic::{AtomicU32, AtomicU64, Ordering};
use vfscale_sync::lock::assert_held;
use vfscale_sync::percpu::{IdAlloc, PerCpu};
use vfscale_sync::{Mutex, MutexGuard, cpu};

pub use changes::Changes;
pub use finished::{Busy, Finished};
pub use headers::{Recorded, Totals};
pub use layout::Layout;
pub use nodes::GroupNodes;
pub use search::FreeRuns;

use crate::base::ranks::GrowthLock;
use crate::btree::{Entry, Error, Nodes};
use crate::format::damage::GroupFault;
use crate::format::group::fault;
use crate::format::inode::{CHUNK_INODES, INODES_PER_BLOCK, block_of, chunk_of};
use crate::format::{BlockRange, Damage};
use crate::{Geometry, LogPlace};
use ag_update::{AgChanges, AgUpdate, impossible};
use alloc_group::Group;
use changes::{BlockChanges, InodeChange, Undo, in_order};
use delayed::DelayedGroups;
use finished::{BusyPart, Locked, Work};
use headers::{Headers, Shared};
use left_out::{Failures, LeftOut};
use list::GroupList;
use load::{Effort, chunk_masks};
use memory::IndexMemory;

/// Runs shorter than this are used only when no group has a longer one.
const RUN_WANTED: u32 = 16;
/// Number of groups that are compared when a group is chosen.
const GROUPS_COMPARED: u32 = 8;

/// The groups of an open volume. `Send` and `Sync`.
pub struct Groups {
    /// The geometry of the volume when it was opened.
    opened: Geometry,
    /// Number of blocks of the volume.
    blocks: AtomicU64,
    log: LogPlace,
    list: GroupList,
    shared: Arc<Shared>,
    /// The groups that had orphans when the volume was opened.
    with_orphans: Vec<u32>,
    delayed: DelayedGroups,
    left_out: LeftOut,
    /// Serializes calls that make the volume larger.
    growth: Mutex<(), GrowthLock>,
    starts: PerCpu<Start>,
    generations: IdAlloc,
    /// Upper bound on the levels of a tree.
    levels_max: AtomicU32,
}

/// The groups at which a CPU starts its searches.
struct Start {
    /// The group from which it chooses one for the next directory.
    directory: AtomicU32,
    /// Its own group, for claims that would contend elsewhere.
    own: u32,
}

/// The changes in each group, sorted by group number.
#[derive(Default)]
struct ChangesByGroup(SmallVec<[(u32, AgChanges); 1]>);

/// The changes of a transaction in one group.
enum GroupPart<'c> {
    /// All are of existing inodes, in ascending order.
    Inodes(&'c [(u64, InodeChange)]),
    All(AgChanges),
}

impl GroupPart<'_> {
    /// Returns the changed inodes, if nothing else changes.
    fn of_inodes(&self) -> Option<&[(u64, InodeChange)]> {
        match self {
            Self::Inodes(inodes) => Some(inodes),
            Self::All(part) => part.is_of_inodes().then_some(&part.inodes[..]),
        }
    }

    fn into_changes(self) -> AgChanges {
        match self {
            Self::Inodes(inodes) => AgChanges { inodes: inodes.into(), ..AgChanges::default() },
            Self::All(part) => part,
        }
    }
}

impl ChangesByGroup {
    fn of(&mut self, group: u32) -> &mut AgChanges {
        let at = self.0.binary_search_by_key(&group, |(group, _)| *group).unwrap_or_else(|at| {
            self.0.insert(at, (group, AgChanges::default()));
            at
        });
        &mut self.0[at].1
    }
}

impl Groups {
    /// Loads the groups of a volume with this geometry and log. With what was `recorded` when its
    /// log was closed, reads nothing; otherwise one block per group, and leaves out groups whose
    /// block can't be read.
    ///
    /// # Errors
    /// [`Error`], if that is so of all groups.
    pub fn load<N: Nodes>(
        nodes: &N,
        geometry: Geometry,
        log: LogPlace,
        recorded: Option<Recorded>,
    ) -> Result<Self, Error<N::Error>> {
        let found = match recorded {
            Some(recorded) => Headers::recorded(geometry, log, recorded.sums),
            None => Headers::read(nodes, (geometry, log), 0)?,
        };
        let shared = Shared {
            memory: IndexMemory::new(),
            last: recorded.and_then(|recorded| recorded.last),
            unread: Mutex::new(found.unread),
            largest_trees: AtomicU64::new(found.trees),
        };
        let slots = cpu::most_slots();
        let step = (geometry.groups() / slots).max(1);
        let start = |slot: usize| {
            let own = (slot as u32).wrapping_mul(step) % geometry.groups();
            Start { directory: AtomicU32::new(own), own }
        };
        // The first number most probably differs from those of earlier mounts.
        let first = RandomState::new().build_hasher().finish() >> 32;
        let groups = Self {
            opened: geometry,
            blocks: AtomicU64::new(geometry.blocks()),
            log,
            list: GroupList::new(geometry),
            shared: Arc::new(shared),
            with_orphans: found.with_orphans,
            delayed: DelayedGroups::default(),
            left_out: LeftOut::default(),
            growth: Mutex::new(()),
            starts: PerCpu::new(slots as usize, start),
            generations: IdAlloc::new(first, slots as usize),
            levels_max: AtomicU32::new(headers::levels_max(geometry, log)),
        };
        found.unusable.iter().for_each(|(number, why)| groups.open_without(*number, why));
        // Groups that are to be extended are found among the groups in memory.
        for number in found.unfinished {
            groups.at(number).map_or(Ok(()), |group| group.ensure_read(nodes))?;
        }
        Ok(groups)
    }

    /// Returns the number of groups.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.geometry().groups()
    }

    /// Returns the maximum number of blocks that [`finish`](Self::finish) changes, creates or frees
    /// for a transaction with `runs` claims and frees of blocks, and `inodes` inodes that are
    /// created, freed or made orphans.
    ///
    /// In the worst case a change of a tree is a removal and an insertion: at each level a block,
    /// its neighbour, and the one behind a new or a freed one; a root has no neighbours. An inode
    /// changes a leaf, and may create or free a chunk, which is a change of both trees. Each may be
    /// in another group, which has a header and may fetch blocks for its trees. Trees don't grow by
    /// more than a level before the commit: that takes thousands of runs.
    #[must_use]
    pub fn log_blocks(&self, runs: u32, inodes: u32) -> u32 {
        let levels = self.levels();
        let change = 6 * levels;
        let changes = runs.saturating_add(inodes);
        let groups = changes.min(self.count());
        runs.saturating_mul(change)
            .saturating_add(inodes.saturating_mul(change + 3 * levels))
            .saturating_add(groups.saturating_mul(change + 1))
    }

    /// Returns the most levels that a tree has, or may have at the end of a transaction.
    fn levels(&self) -> u32 {
        let trees = self.shared.largest_trees.load(Ordering::Relaxed);
        // A tree of n levels has at least two blocks below its root, four below these, and so on.
        let levels = (trees / 2 + 1).ilog2() + 2;
        levels.min(self.levels_max.load(Ordering::Relaxed))
    }

    /// Returns a generation for a new inode. It differs from all earlier ones of this mount, unless
    /// these are 2^32, and most probably from those of earlier mounts. Hence a handle of a removed
    /// file does not find another file with the same number.
    #[must_use]
    pub fn generation(&self) -> u32 {
        // Zero means no generation.
        loop {
            let generation = self.generations.next(vfscale_sync::cpu::current()) as u32;
            if generation != 0 {
                return generation;
            }
        }
    }

    /// Returns the geometry of the volume.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        let blocks = self.blocks.load(Ordering::Acquire);
        // The stored size was checked when it was set.
        self.opened.grown(blocks).unwrap_or(self.opened)
    }

    /// Returns the group of a block; `None` outside of the volume.
    fn group_of(&self, block: u64) -> Option<u32> {
        let is_inside = block < self.blocks.load(Ordering::Acquire);
        is_inside.then_some((block >> self.opened.group_log2()) as u32)
    }

    /// Returns the group with this number, which is made if it was not used before.
    #[inline]
    fn at(&self, group: u32) -> Option<&Group> {
        self.list.at(group, |geometry| Group::new(geometry, self.log, group, &self.shared))
    }

    /// Iterates over all groups, starting with number `first`.
    fn from(&self, first: u32) -> impl Iterator<Item = &Group> {
        (first..self.count()).chain(0..first).filter_map(|group| self.at(group))
    }

    /// Claims `min` to `max` consecutive blocks, `min` at least one, near the block `near` if
    /// possible: at `near`, if that block is free; elsewhere in its group; in another group. If
    /// CPUs contend for the group, a group of this CPU comes first.
    /// Returns `None` if no run of `min` free blocks exists; with a `min` of more than 1, a run
    /// that crosses the boundary of two zones may be missed. The caller owns the blocks until it
    /// gives them to [`Changes::use_claim`], or back ([`unclaim`](Self::unclaim)).
    ///
    /// Takes leaf locks, and reads zones that are not loaded from the device, with a group locked.
    ///
    /// # Errors
    /// [`Error`], from that reading.
    pub fn claim<N: Nodes>(
        &self,
        nodes: &N,
        near: u64,
        min: u32,
        max: u32,
    ) -> Result<Option<BlockRange>, Error<N::Error>> {
        let max = max.max(min);
        let first = self.uncontended(self.group_of(near).unwrap_or(0));
        // Fragments are used only when nothing else is left. Blocks that other threads had taken
        // during the first search may have been given back to a group already passed, so nothing is
        // refused after one search.
        let efforts = [Effort::better(), Effort::anything(), Effort::anything()];
        let least = [min.max(max.min(RUN_WANTED)), min, min];
        let efforts = efforts.into_iter().zip(least);
        self.first_of(first, efforts, |group, (effort, min)| {
            group.claim(nodes, near, (*min, max), effort)
        })
    }

    /// Searches the groups from number `first` on with each effort in turn, for what `claim` takes
    /// in one of them. A group that fails is left out if another one has it.
    fn first_of<E, X: Display, T>(
        &self,
        first: u32,
        efforts: impl IntoIterator<Item = E>,
        mut claim: impl FnMut(&Group, &mut E) -> Result<Option<T>, Error<X>>,
    ) -> Result<Option<T>, Error<X>> {
        let mut failures = Failures::new();
        for mut effort in efforts {
            for group in self.from(first) {
                match claim(group, &mut effort) {
                    Ok(None) => {}
                    Ok(found) => {
                        self.leave_out_all(failures);
                        self.shrink_indexes();
                        return Ok(found);
                    }
                    Err(error) => failures.add(group, error)?,
                }
            }
        }
        self.shrink_indexes();
        self.leave_out_all(failures.end()?);
        Ok(None)
    }

    /// Gives an unused claim, or a part of one, back.
    pub fn unclaim(&self, run: BlockRange) {
        if let Some(group) = self.group_of(run.start).and_then(|group| self.at(group)) {
            group.change_index(|index| index.release(run));
        }
    }

    /// Claims a free inode for the transaction with `changes`, or creates a chunk of inodes in it:
    /// for a file in the group of the block `near`, which is that of its directory's inode; for a
    /// directory in a group with more free space than others. If CPUs contend for the group, a
    /// group of this CPU comes first. Returns the inode's number, or `None`
    /// if neither is possible.
    ///
    /// A chunk takes 8 blocks.
    ///
    /// # Errors
    /// Any error of [`claim`](Self::claim).
    pub fn claim_inode<N: Nodes>(
        &self,
        nodes: &N,
        near: u64,
        is_dir: bool,
        changes: &mut Changes,
    ) -> Result<Option<u64>, Error<N::Error>> {
        let of_near = self.group_of(near).unwrap_or(0);
        let wanted = if is_dir { self.group_for_directory(nodes) } else { of_near };
        let wanted = self.uncontended(wanted);
        let efforts = [Effort::better(), Effort::anything()];
        let found = self.first_of(wanted, efforts, |group, effort| {
            claim_inode_in(group, nodes, near, changes, effort)
        })?;
        Ok(found.map(|(chunk, bit)| {
            let ino = chunk * INODES_PER_BLOCK + u64::from(bit);
            changes.inode(ino).is_new = true;
            ino
        }))
    }

    /// Returns `wanted`, unless CPUs contend for that group: then one at the start of this CPU for
    /// which they don't, if there is one.
    fn uncontended(&self, wanted: u32) -> u32 {
        let is_hot = |group: &u32| self.list.made(*group).is_some_and(|group| group.heat.is_hot());
        if !is_hot(&wanted) {
            return wanted;
        }
        let (groups, own) = (self.count(), self.starts.this().own);
        let mut near_own = (0..GROUPS_COMPARED.min(groups)).map(|next| (own + next) % groups);
        near_own.find(|group| !is_hot(group)).unwrap_or(wanted)
    }

    /// Chooses a group whose free space is at least the average of the compared groups; the next
    /// such group each time. Passes over groups that are left out, or can't be read.
    fn group_for_directory<N: Nodes>(&self, nodes: &N) -> u32 {
        let groups = self.count();
        let compared = GROUPS_COMPARED.min(groups);
        let cursor = &self.starts.this().directory;
        let start = cursor.load(Ordering::Relaxed) % groups;
        let window = (start..start + compared).map(|group| group % groups);
        let mut free: SmallVec<[(u32, u64); GROUPS_COMPARED as usize]> = SmallVec::new();
        for number in window {
            let Some(group) = self.at(number) else { continue };
            if !group.is_left_out() && group.ensure_read(nodes).is_ok() {
                free.push((number, group.available.load(Ordering::Relaxed)));
            }
        }
        let average = free.iter().map(|(_, free)| free).sum::<u64>() / (free.len() as u64).max(1);
        let fits = free.iter().find(|(_, free)| *free >= average);
        let chosen = fits.map_or(start, |(group, _)| *group);
        cursor.store((chosen + 1) % groups, Ordering::Relaxed);
        chosen
    }

    /// Writes the changes of a transaction into the trees of the groups, whose locks it takes, and
    /// adds the groups to `finished`, in which there are [none](Self::finished) yet. Reads blocks
    /// from the device where necessary. This is the last step before the journal's commit;
    /// [`Finished::committed`] follows the commit.
    ///
    /// # Errors
    /// [`Error`], [`GroupNodes::no_space`] among them. The transaction must not be committed then;
    /// `changes` is to be [abandoned](Self::abandon).
    pub fn finish<'g, N: GroupNodes>(
        &'g self,
        nodes: &mut N,
        changes: &mut Changes,
        finished: &mut Finished<'g>,
    ) -> Result<(), Error<N::Error>> {
        let is_of_inodes = changes.is_of_inodes();
        let parts = if is_of_inodes { ChangesByGroup::default() } else { self.parts(changes)? };
        let (inodes, blocks) = changes.split();
        for (number, part) in parts.0 {
            let Some(group) = self.at(number) else { continue };
            self.finish_or_leave_out(group, nodes, GroupPart::All(part), blocks, finished)?;
        }
        let inodes = if is_of_inodes { inodes } else { &[] };
        let group_of = |change: &(u64, InodeChange)| self.group_of(block_of(change.0));
        for here in inodes.chunk_by(|one, next| group_of(one) == group_of(next)) {
            let Some(group) = self.at(self.group_of_inode(here[0].0)?) else { continue };
            self.finish_or_leave_out(group, nodes, GroupPart::Inodes(here), blocks, finished)?;
        }
        Ok(())
    }

    /// Writes the changes of a transaction in one group into its trees, or delays them, and adds
    /// the group to `finished`.
    fn finish_in<'g, N: GroupNodes>(
        &self,
        group: &'g Group,
        nodes: &mut N,
        part: GroupPart<'_>,
        blocks: &mut Option<Box<BlockChanges>>,
        finished: &mut Finished<'g>,
    ) -> Result<(), Error<N::Error>> {
        let mut guard = group.lock_to_change();
        group.make_index(&mut guard, nodes)?;
        self.forget_delayed(group, nodes, &mut guard.delayed);
        let there = &guard.delayed;
        let delayed = if self.delayed.is_open() {
            let left = nodes.log_left().saturating_sub(finished.log_bytes().0);
            self.delay(group, nodes, there, &part, left)?
        } else {
            None
        };
        let work = match delayed {
            Some(update) => Work::Delayed(update),
            None => {
                let (part, undo) = (part.into_changes(), &mut blocks.get_or_insert_default().undo);
                let outcome = AgUpdate::run(group, nodes, undo, part, there)?;
                Work::Written(outcome.into())
            }
        };
        finished.parts.push(Locked { group, work, guard });
        Ok(())
    }

    /// Returns the group of an inode.
    fn group_of_inode(&self, ino: u64) -> Result<u32, Damage> {
        self.group_of(block_of(ino)).ok_or_else(|| {
            let header = self.at(0).map_or(0, |group| group.whole().header());
            fault(header, GroupFault::Inode { ino })
        })
    }

    /// Returns the finished changes of no group.
    pub fn finished(&self) -> Finished<'_> {
        let (delayed, largest_trees) = (&self.delayed, &self.shared.largest_trees);
        Finished { delayed, largest_trees, parts: SmallVec::new(), used: 0 }
    }

    /// Returns the groups with delayed changes.
    pub(crate) fn delayed(&self) -> &DelayedGroups {
        &self.delayed
    }

    /// Writes the delayed changes of a group into its trees; `None` if there are none. The caller
    /// commits them.
    ///
    /// # Errors
    /// [`Error`]: the volume has to be shut down.
    pub(crate) fn write_delayed<N: GroupNodes>(
        &self,
        nodes: &mut N,
        group: u32,
    ) -> Result<Option<Finished<'_>>, Error<N::Error>> {
        let Some(group) = self.at(group) else { return Ok(None) };
        let mut guard = group.lock.lock();
        guard.delayed.is_listed = false;
        self.forget_delayed(group, nodes, &mut guard.delayed);
        if guard.delayed.is_empty() && guard.delayed.expected == 0 {
            return Ok(None);
        }
        let (there, mut undo) = (&guard.delayed, Undo::default());
        let outcome = AgUpdate::run(group, nodes, &mut undo, AgChanges::default(), there);
        let outcome = outcome.inspect_err(|error| {
            if let Error::Damage(_) = error {
                self.leave_out(group, error);
            }
        })?;
        let work = Work::Written(outcome.into());
        let parts = std::iter::once(Locked { group, work, guard }).collect();
        Ok(Some(Finished { parts, ..self.finished() }))
    }

    /// Sorts the changes by group, those of blocks among them.
    fn parts(&self, changes: &Changes) -> Result<ChangesByGroup, Damage> {
        let mut parts = ChangesByGroup::default();
        let header = |run: BlockRange| {
            let group = self.group_of(run.start).unwrap_or(0);
            self.at(group).map_or(0, |group| group.whole().header())
        };
        let ordered = |runs: &[BlockRange], is_free: bool| {
            let group_of = |run: BlockRange| {
                let group = self.group_of(run.start)?;
                self.at(group)?.layout().is_usable(run.start, run.len()).then_some(group)
            };
            in_order(runs.to_vec(), group_of).map_err(|run| impossible(header(run), run, is_free))
        };
        let Some(blocks) = changes.blocks() else { return Ok(parts) };
        for (group, run) in ordered(&blocks.claims, true)? {
            parts.of(group).claims.push(run);
        }
        for (group, run) in ordered(&blocks.frees, false)? {
            parts.of(group).frees.push(run);
        }
        for (group, run) in ordered(&blocks.destroyed, false)? {
            parts.of(group).destroyed.push(run);
        }
        for &(ino, change) in &changes.inodes {
            parts.of(self.group_of_inode(ino)?).inodes.push((ino, change));
        }
        for &chunk in blocks.new_chunks.keys() {
            let group = self.group_of(chunk).unwrap_or(0);
            parts.of(group).new_chunks.push(chunk);
        }
        for &group in &blocks.extended {
            parts.of(group).is_extended = true;
        }
        Ok(parts)
    }

    /// Limits the memory of the indexes to about `bytes` bytes, or 256 KiB if that is more, plus
    /// four bytes for each 16 MiB of the volume.
    pub fn set_index_bytes(&self, bytes: u64) {
        self.shared.memory.set_limit(bytes);
        self.shrink_indexes();
    }

    /// Returns the approximate memory of the entries of the indexes, in bytes.
    #[cfg(test)]
    #[must_use]
    pub fn index_bytes(&self) -> u64 {
        self.shared.memory.bytes()
    }

    /// Drops zones that were not used recently, while the indexes exceed their memory limit. Takes
    /// the leaf lock of a group for one zone at a time.
    fn shrink_indexes(&self) {
        let drop_zone = |group| {
            let group: Option<&Group> = self.list.made(group);
            group.and_then(|group| group.change_index(|index| index.drop_zone())) == Some(true)
        };
        self.shared.memory.shrink(|| self.count(), drop_zone);
    }

    /// Returns the guard that serializes calls which make the volume larger.
    pub fn growth(&self) -> MutexGuard<'_, (), GrowthLock> {
        self.growth.lock()
    }

    /// Returns whether the volume can grow to this size: it has not grown too often.
    #[must_use]
    pub fn can_grow(&self, geometry: Geometry) -> bool {
        geometry.groups() == self.geometry().groups() || self.list.has_room()
    }

    /// Sets the geometry after the volume has grown under [`growth`](Self::growth): new groups and
    /// the superblock are written. Returns false if the volume has grown too often while it was
    /// open; then nothing has changed.
    ///
    /// # Errors
    /// [`Error`], from reading the new groups; nothing has changed then.
    pub fn grow<N: Nodes>(&self, nodes: &N, geometry: Geometry) -> Result<bool, Error<N::Error>> {
        assert_held::<GrowthLock>();
        let former = self.geometry();
        let last = former.groups() - 1;
        let new = Headers::read(nodes, (geometry, self.log), former.groups())?;
        // Its header tells how many blocks it had accounted for before.
        let group = self.at(last);
        group.map_or(Ok(()), |group| group.ensure_read(nodes))?;
        if let Some((_, why)) = new.unusable.into_iter().next() {
            return Err(why);
        }
        let mut unread = self.shared.unread.lock();
        if geometry.groups() > former.groups() && !self.list.push(geometry) {
            return Ok(false);
        }
        unread.add(&new.unread);
        drop(unread);
        headers::raise(&self.shared.largest_trees, new.trees);
        self.levels_max.fetch_max(headers::levels_max(geometry, self.log), Ordering::Relaxed);
        if let (Some(group), Some(blocks)) = (group, geometry.blocks_of(last)) {
            group.grow(blocks.end - blocks.start);
        }
        // A reader that sees the new size finds the groups.
        self.blocks.store(geometry.blocks(), Ordering::Release);
        Ok(true)
    }

    /// Lists the groups that don't account for all of their blocks yet, since the volume has grown:
    /// a transaction is to [extend](Changes::extend) them.
    pub fn unfinished(&self) -> impl Iterator<Item = u32> {
        let is_unfinished = |group: &&Group| group.layout() != group.whole();
        self.list.all_made().filter(is_unfinished).map(|group| group.whole().group())
    }

    /// Gives back all claims of a transaction that was not committed.
    pub fn abandon(&self, changes: Changes) {
        let at = |block: u64| self.group_of(block).and_then(|group| self.at(group));
        let unclaim = |&(chunk, free): &(u64, u64)| {
            at(chunk)
                .and_then(|group| group.change_index(|index| index.chunks.unclaim(chunk, free)));
        };
        changes.claimed_inodes.iter().for_each(unclaim);
        let Some(BlockChanges { claims, undo, .. }) = changes.blocks() else { return };
        // Before the claims: after their release, other threads may claim these blocks.
        for run in &undo.withheld {
            at(run.start).and_then(|group| group.change_index(|index| index.forget(*run)));
        }
        claims.iter().for_each(|run| self.unclaim(*run));
        for run in &undo.fetched {
            at(run.start).and_then(|group| {
                group.change_index(|index| {
                    index.tree_total = index.tree_total.saturating_sub(run.len());
                    index.release(*run);
                })
            });
        }
        undo.chunks.iter().for_each(unclaim);
    }

    /// Makes the runs freed by a transaction available, once it is durable. Called by
    /// [`on_durable`](vfscale_journal::Transaction::on_durable); takes leaf locks.
    pub fn durable(&self, busy: &Busy) {
        for BusyPart { group, runs, drained, tree_max } in &busy.parts {
            let Some(group) = self.at(*group) else { continue };
            group.change_index(|index| {
                index.tree_total = index.tree_total.saturating_sub(*drained);
                index.tree_max = tree_max.unwrap_or(index.tree_max);
                for run in runs {
                    index.release(*run);
                }
            });
        }
        self.shrink_indexes();
    }

    /// Returns whether the inode with this number is in use, as of the last commit of its group.
    /// Needed for untrusted numbers, such as those in file handles: the block of such a number
    /// proves nothing, because blocks of freed inode chunks stay unchanged on the device. Takes the
    /// lock of the group, and may read its tree.
    ///
    /// # Errors
    /// [`Error`].
    pub fn has_inode<N: Nodes>(&self, nodes: &N, ino: u64) -> Result<bool, Error<N::Error>> {
        let block = block_of(ino);
        let Some(group) = self.group_of(block).and_then(|group| self.at(group)) else {
            return Ok(false);
        };
        let guard = group.lock.lock();
        if let Some((free, _)) = guard.delayed.masks.get(&chunk_of(block)) {
            return Ok(free & 1 << (ino % CHUNK_INODES) == 0);
        }
        let key = chunk_of(block).into();
        let Some(value) = group.whole().chunk_tree().get(nodes, key)? else { return Ok(false) };
        let (_, (free, _)) = chunk_masks(&group.layout(), &Entry { key, value })?;
        Ok(free & 1 << (ino % CHUNK_INODES) == 0)
    }

    /// Lists the orphans of a group, by number. Reads nothing if there are none.
    ///
    /// # Errors
    /// [`Error`].
    pub fn orphans<N: Nodes>(&self, nodes: &N, group: u32) -> Result<Vec<u64>, Error<N::Error>> {
        let mut orphans = Vec::new();
        let Some(group) = self.at(group) else { return Ok(orphans) };
        if group.is_left_out() {
            // Its orphans stay for an opening that can read the group.
            return Ok(orphans);
        }
        let mut list = || {
            group.ensure_read(nodes)?;
            if group.counts.orphans.load(Ordering::Relaxed) == 0 {
                return Ok(());
            }
            let guard = group.lock.lock();
            for record in group.whole().chunk_tree().range(nodes, ..)? {
                let (chunk, mask) = chunk_masks(&group.layout(), &record?)?;
                let mask = guard.delayed.masks.get(&chunk).copied().unwrap_or(mask);
                let bits = (0..CHUNK_INODES).filter(|bit| mask.1 & (1 << bit) != 0);
                orphans.extend(bits.map(|bit| chunk * INODES_PER_BLOCK + bit));
            }
            Ok(())
        };
        // Orphans of a damaged group stay for a repair.
        list().or_else(|error| self.leave_out_damaged(group, error))?;
        Ok(orphans)
    }
}

/// Claims an inode in a group, or creates a chunk of inodes there. Returns the chunk and the
/// inode's index in it.
fn claim_inode_in<N: Nodes>(
    group: &Group,
    nodes: &N,
    near: u64,
    changes: &mut Changes,
    effort: &mut Effort,
) -> Result<Option<(u64, u32)>, Error<N::Error>> {
    let range = group.whole().blocks();
    let near = if range.contains(&near) { near } else { range.start };
    let new = changes.blocks().is_some_and(|blocks| !blocks.new_chunks.is_empty());
    let new = new.then(|| changes.blocks_mut().new_chunks.range_mut(range));
    if let Some((&chunk, free)) = new.and_then(|mut new| new.find(|(_, free)| **free != 0)) {
        let bit = free.trailing_zeros();
        *free &= !(1 << bit);
        return Ok(Some((chunk, bit)));
    }
    if let Some((chunk, bit)) = group.claim_inode(nodes, near, effort)? {
        changes.claimed_inodes.push((chunk, 1 << bit));
        return Ok(Some((chunk, bit)));
    }
    let Some(run) = group.claim_for_chunk(nodes, near, effort)? else { return Ok(None) };
    let blocks = changes.blocks_mut();
    blocks.claims.push(run);
    blocks.new_chunks.insert(run.start, !1);
    Ok(Some((run.start, 0)))
}

impl std::fmt::Debug for Groups {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Groups").field("totals", &self.totals()).finish_non_exhaustive()
    }
}
