//! Delayed names: the changed entries of a directory, in memory first. As the delayed items of
//! btrfs, but by ranges of positions, so that threads change names of one directory side by side.
//!
//! # Purpose
//!
//! A directory's entries are in its inode or in a tree, and whoever changes these holds the lock of
//! the inode to the end of the commit. Threads that create and remove files in one directory wait
//! for each other there. So a directory that is *hot*, for whose lock threads have waited a dozen
//! times or in which as many names came and went in one context, gets *ranges*: a
//! transaction that changes a name notes the change in the range of its position, with the inode
//! locked shared, and sets log space and blocks aside for it. A transaction that locks the
//! directory exclusively, or one at the end of the context
//! ([`Hooks::run_delayed`](vfscale_journal::Hooks::run_delayed)), writes the changes into the
//! directory (*folds* them). A name that is added and removed in the meantime leaves nothing. Names
//! that lead to directories are changed exclusively: they are few, and the links of the parent
//! count them.
//!
//! # Invariants
//!
//! * The entries of a directory are those on disk with these changes. Readers hold the inode locked
//!   shared, and see both. They read a copy of the inode that nobody counts references to, and skip
//!   ranges without changes without their locks, so readers share no line that one of them writes.
//! * A change keeps its position: it is the one that the fold uses. So whoever reads a directory in
//!   several calls gets every entry once, whether it was folded in between or not.
//! * Positions with one hash are in one range. The range's lock protects its changes, and is held
//!   only to look at them or to change them. The VFS has locked the name, so no other thread
//!   changes or removes the same name meanwhile.
//! * A transaction that removes a name keeps its position until it has committed
//!   ([`NameRange::leave`]). If it fails, the name returns there; another name with the same hash
//!   would be lost if it had taken the position meanwhile.
//! * A thread notes its change before it commits, and holds the inode shared until the commit has
//!   returned. The fold holds the inode exclusively. So what it folds is committed, or will never
//!   be.
//! * A directory is on the list of its volume, and counted, before the first commit of a change is
//!   on the CIL. A context ends only while no directory counts. So a checkpoint contains a name
//!   together with the inode that it leads to. A push takes a directory without changes off the
//!   list without its lock: it clears `is_listed` and then looks at the ranges,
//!   where a thread notes its change first and then looks whether the directory is listed. One of
//!   the two sees what the other has done ([`ListedFlag`]).
//! * What a fold may need is held by the changes that it folds: log space for the blocks of the
//!   directory, and for those of the groups where it allocates and frees; and blocks of free space.
//!   So a fold waits for nothing, and finds no lack of space.
//! * So are the blocks of the directory that it may need ([`HeldBlocks`]), and the block of its
//!   inode: they stay in memory until then. A change whose blocks can't be read is not delayed. So
//!   the fold reads nothing of the directory, and an unreadable block fails the call that needs it.
//!
//! # What readers of the directory's core see
//!
//! [`InodeCore::size`], `blocks` and the entries are those of the last fold. The number of links is
//! the present one: a name that leads to a directory is never delayed. A removed directory has no
//! links, and no delayed names. Times are up to date: those that changed are
//! [lazy](crate::inode::incore) until the fold or another transaction stores them.
//!
//! # Locks
//!
//! `name_range` is a leaf, but for `delayed_dirs`.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use vfscale_sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, ListedFlag, Ordering};
use vfscale_sync::lock::assert_held;
use vfscale_sync::percpu::CachePadded;
use vfscale_sync::rcu::{self, Rcu};
use vfscale_sync::{Mutex, MutexGuard, cpu};

use crate::base::fault::Fault;
use crate::base::ranks::{NameRangeLock, NodeCore, NodeLock};
use crate::btree::Error;
use crate::buffer::Buffer;
use crate::format::dir::{COLLISIONS_MAX, POSITION_MAX};
use crate::inode::core::{AttrFork, DataFork, FileKind, InodeCore};
use crate::inode::times::Times;

/// Number of ranges, within these limits; a power of two. Many, since threads that use a few names
/// each should mostly not meet.
const RANGES_PER_CPU: usize = 16;
const RANGES_MIN: usize = 64;
const RANGES_MAX: usize = 1024;

/// The most memory that the ranges of all directories of the process take, in bytes. They stay as
/// long as the inode is in memory.
const MEMORY_MAX: usize = 32 << 20;
/// The memory that they take. Not an atomic of models, whose schedules it outlives.
static MEMORY: AtomicUsize = AtomicUsize::new(0);

/// A name, and the inode that it leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamedInode {
    pub(crate) ino: u64,
    pub(crate) kind: FileKind,
    pub(crate) name: Box<[u8]>,
}

/// An entry that was found: its position, its inode and the type of that.
pub(crate) type Place = (u64, u64, FileKind);

/// A change of a name.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NameStep {
    /// A new name leads to this inode.
    Add(u64, FileKind),
    /// The name that leads to this inode is removed.
    Remove(u64),
    /// The name that leads to the first inode leads to the second one.
    Replace(u64, (u64, FileKind)),
}

/// The reason why a name can't be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The name exists.
    Exists,
    /// There is no such name, or it leads to another inode.
    IsOther,
    /// There are sixteen names with its hash.
    Full,
}

/// The log space and the blocks that are set aside for a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HeldSpace {
    /// The reservation, in bytes of items.
    pub(crate) item_bytes: u64,
    /// The log space that this has taken, in bytes of log.
    pub(crate) log_bytes: u64,
    /// Blocks of free space.
    pub(crate) blocks: u64,
}

impl std::ops::AddAssign for HeldSpace {
    fn add_assign(&mut self, other: Self) {
        self.item_bytes += other.item_bytes;
        self.log_bytes += other.log_bytes;
        self.blocks += other.blocks;
    }
}

/// The blocks of a directory's tree that the fold of changes at some positions may need
/// ([`Directory::around`](crate::dir::Directory::around)), which stay in memory as long as this.
#[derive(Debug)]
pub(crate) struct HeldBlocks {
    /// The first position, and the one behind the last.
    pub(crate) positions: (u64, u64),
    #[expect(dead_code, reason = "held until its drop")]
    pub(crate) blocks: Vec<Arc<Buffer>>,
}

impl HeldBlocks {
    /// Returns whether they are those of all names whose first position is `base`.
    fn is_for(&self, base: u64) -> bool {
        self.positions.0 <= base && base + COLLISIONS_MAX <= self.positions.1
    }
}

/// The change of the entry at a position.
#[derive(Clone, Debug)]
pub(crate) struct NameChange {
    /// The entry on disk.
    pub(crate) stored: Option<NamedInode>,
    /// The entry as it is now. Differs from the stored one.
    pub(crate) now: Option<NamedInode>,
    pub(crate) held: HeldSpace,
    /// `None` if the directory on disk has no tree.
    pub(crate) blocks: Option<Arc<HeldBlocks>>,
}

/// The directory on disk, which is the same until the inode is locked exclusively.
struct StoredDir {
    /// Its inode without attributes. Shares no memory with other copies.
    core: InodeCore,
    /// Levels of its tree; 0 for none, or [`UNKNOWN`].
    levels: AtomicU32,
}

/// Levels that nobody has counted yet.
const UNKNOWN: u32 = u32::MAX;

impl StoredDir {
    fn new(core: &InodeCore) -> Self {
        let mut core = InodeCore { attr: AttrFork::None, ..core.clone() };
        if let DataFork::Inline(bytes) = &mut core.data {
            *bytes = Arc::from(&**bytes);
        }
        let levels = if matches!(core.data, DataFork::Tree { .. }) { UNKNOWN } else { 0 };
        Self { core, levels: AtomicU32::new(levels) }
    }
}

/// The changes in a range of positions.
#[derive(Debug, Default)]
pub(crate) struct NameRange {
    /// In ascending order of positions. A vector, which keeps its memory: names come and go, and
    /// they are few.
    changes: Vec<(u64, NameChange)>,
    /// The positions of names that transactions remove which have not committed yet.
    leaving: Vec<u64>,
}

impl NameRange {
    /// Returns what a lookup of `name` finds, given the one on disk.
    fn shown(&self, base: u64, name: &[u8], stored: Option<Place>) -> Option<Place> {
        self.changed(base, name).unwrap_or(stored)
    }

    /// Returns the changes behind a position, up to `last`.
    fn between(&self, behind: u64, last: u64) -> &[(u64, NameChange)] {
        let start = self.changes.partition_point(|(position, _)| *position <= behind);
        let behind = &self.changes[start..];
        &behind[..behind.partition_point(|(position, _)| *position <= last)]
    }

    /// Returns the changes at the positions of a hash.
    fn at_base(&self, base: u64) -> &[(u64, NameChange)] {
        self.between(base - 1, base + (COLLISIONS_MAX - 1))
    }

    fn at(&self, position: u64) -> Option<&NameChange> {
        let at = self.changes.binary_search_by_key(&position, |(position, _)| *position);
        at.ok().map(|at| &self.changes[at].1)
    }

    /// Returns the present entry of a name that was changed; `None` if it was not.
    fn changed(&self, base: u64, name: &[u8]) -> Option<Option<Place>> {
        let is_it = |entry: &&NamedInode| *entry.name == *name;
        let mut was_removed = false;
        for (position, change) in self.at_base(base) {
            if let Some(now) = change.now.as_ref().filter(is_it) {
                return Some(Some((*position, now.ino, now.kind)));
            }
            was_removed |= change.stored.as_ref().is_some_and(|entry| is_it(&entry));
        }
        was_removed.then_some(None)
    }

    /// Returns a free position for a new name: its own, if the directory on disk has it.
    fn free_position(&self, base: u64, stored: Option<Place>, mut taken: u16) -> Option<u64> {
        for (position, change) in self.at_base(base) {
            let bit = 1 << (position - base);
            taken = if change.now.is_some() { taken | bit } else { taken & !bit };
        }
        let positions = base..base + COLLISIONS_MAX;
        for position in self.leaving.iter().filter(|position| positions.contains(position)) {
            taken |= 1 << (position - base);
        }
        let is_free = |position: &u64| taken & 1 << (position - base) == 0;
        let own = stored.map(|(position, ..)| position);
        own.filter(is_free).or_else(|| positions.clone().find(is_free))
    }

    /// Returns the position of a change, and the change that there is after it; `None` if the entry
    /// is as on disk then. `stored` and `taken` are what the directory on disk has: the entry of
    /// the name, and the taken ones of its positions.
    pub(crate) fn plan(
        &self,
        (base, name): (u64, &[u8]),
        (stored, taken): (Option<Place>, u16),
        step: NameStep,
    ) -> Result<(u64, Option<NameChange>), Refused> {
        let named = |(ino, kind)| Some(NamedInode { ino, kind, name: name.into() });
        let shown = self.shown(base, name, stored);
        let (position, now) = match (step, shown) {
            (NameStep::Add(..), Some(_)) => return Err(Refused::Exists),
            (NameStep::Add(ino, kind), None) => {
                let free = self.free_position(base, stored, taken).ok_or(Refused::Full)?;
                (free, named((ino, kind)))
            }
            (NameStep::Remove(former), Some((position, ino, _))) if ino == former => {
                (position, None)
            }
            (NameStep::Replace(former, to), Some((position, ino, _))) if ino == former => {
                (position, named(to))
            }
            (NameStep::Remove(_) | NameStep::Replace(..), _) => return Err(Refused::IsOther),
        };
        let (stored, held) = match self.at(position) {
            Some(former) => (former.stored.clone(), former.held),
            None => {
                let here = stored.filter(|(at, ..)| *at == position);
                (here.and_then(|(_, ino, kind)| named((ino, kind))), HeldSpace::default())
            }
        };
        let is_as_stored = stored == now;
        Ok((position, (!is_as_stored).then_some(NameChange { stored, now, held, blocks: None })))
    }

    /// Returns what is held for the change at a position.
    pub(crate) fn held(&self, position: u64) -> HeldSpace {
        self.at(position).map_or_else(HeldSpace::default, |change| change.held)
    }

    /// Returns the blocks that the fold of changes of names whose first position is `base` may
    /// need, if a change beside them holds these already.
    pub(crate) fn blocks_at(&self, base: u64) -> Option<Arc<HeldBlocks>> {
        let next = self.changes.partition_point(|(position, _)| *position < base);
        let beside = &self.changes[next.saturating_sub(1)..self.changes.len().min(next + 1)];
        let mut blocks = beside.iter().filter_map(|(_, change)| change.blocks.as_ref());
        blocks.find(|blocks| blocks.is_for(base)).cloned()
    }

    /// Keeps the position of a name that is removed, until [`left`](Self::left).
    pub(crate) fn leave(&mut self, position: u64) {
        self.leaving.push(position);
    }

    /// Gives up a position: the transaction that has removed its name has committed, or undone
    /// that.
    pub(crate) fn left(&mut self, position: u64) {
        if let Some(at) = self.leaving.iter().position(|leaving| *leaving == position) {
            self.leaving.swap_remove(at);
        }
    }

    /// Replaces the change at a position, and returns the former one.
    pub(crate) fn put(&mut self, position: u64, change: Option<NameChange>) -> Option<NameChange> {
        match self.changes.binary_search_by_key(&position, |(position, _)| *position) {
            Ok(at) => match change {
                Some(change) => Some(std::mem::replace(&mut self.changes[at].1, change)),
                None => Some(self.changes.remove(at).1),
            },
            Err(at) => {
                self.changes.splice(at..at, change.map(|change| (position, change)));
                None
            }
        }
    }
}

/// A range, and the number of its changes, for readers that skip it.
#[derive(Debug, Default)]
struct Range {
    count: AtomicU32,
    names: Mutex<NameRange, NameRangeLock>,
}

/// A locked range. Counts its changes when it is unlocked.
pub(crate) struct RangeGuard<'n> {
    count: &'n AtomicU32,
    names: MutexGuard<'n, NameRange, NameRangeLock>,
}

impl std::ops::Deref for RangeGuard<'_> {
    type Target = NameRange;

    fn deref(&self) -> &NameRange {
        &self.names
    }
}

impl std::ops::DerefMut for RangeGuard<'_> {
    fn deref_mut(&mut self) -> &mut NameRange {
        &mut self.names
    }
}

impl Drop for RangeGuard<'_> {
    fn drop(&mut self) {
        let count = self.names.changes.len() as u32;
        if self.count.load(Ordering::Relaxed) != count {
            self.count.store(count, Ordering::Release);
        }
    }
}

impl Range {
    fn lock(&self) -> RangeGuard<'_> {
        RangeGuard { count: &self.count, names: self.names.lock() }
    }

    /// Returns whether it has changes. Exact for a thread that holds the inode locked exclusively;
    /// another one may just miss the first change that is being made, and sees all that were made
    /// before.
    fn has_changes(&self) -> bool {
        self.count.load(Ordering::Acquire) != 0
    }
}

/// The delayed names of a directory. `Send` and `Sync`.
pub(crate) struct DelayedNames {
    ranges: Box<[CachePadded<Range>]>,
    /// The directory on disk. Changes while the inode is locked exclusively.
    stored: Rcu<StoredDir>,
    /// A copy of the last checkpoint that has changed the directory, which may be an older one.
    sequence: AtomicU64,
    /// The time of the last change that the inode has copied from the VFS inode, as that of its
    /// data and of the inode, and the time of the last access; 0 for none.
    changed_at: AtomicI64,
    accessed_at: AtomicI64,
    /// Number of CPUs that may change names.
    pub(crate) cpus: usize,
    /// Whether the block of the inode's record is known to be held in memory.
    has_home: AtomicBool,
    /// The state that a push writes, and a thread that only reads the directory does not need.
    by_push: CachePadded<ByPush>,
}

/// The state of a directory with delayed names that each push writes.
#[derive(Debug)]
struct ByPush {
    /// Whether the directory is on the list of its volume.
    is_listed: ListedFlag,
    /// Whether it was found hot, and has not cooled since.
    is_hot: AtomicBool,
}

impl DelayedNames {
    /// Creates empty ranges of a directory; `None` if those of others take too much memory.
    pub(crate) fn try_new(dir: &InodeCore) -> Option<Self> {
        let has_room = MEMORY.load(Ordering::Relaxed) < MEMORY_MAX;
        has_room.then(|| Self::new(dir))
    }

    fn new(dir: &InodeCore) -> Self {
        let cpus = cpu::most_slots() as usize;
        let ranges = (cpus * RANGES_PER_CPU).next_power_of_two().clamp(RANGES_MIN, RANGES_MAX);
        let ranges: Box<[CachePadded<Range>]> =
            (0..ranges).map(|_| CachePadded::default()).collect();
        MEMORY.fetch_add(size_of_val(&*ranges), Ordering::Relaxed);
        Self {
            ranges,
            stored: Rcu::new(StoredDir::new(dir)),
            sequence: AtomicU64::new(0),
            changed_at: AtomicI64::new(0),
            accessed_at: AtomicI64::new(0),
            cpus,
            has_home: AtomicBool::new(false),
            by_push: CachePadded::new(ByPush {
                is_listed: ListedFlag::default(),
                is_hot: AtomicBool::new(false),
            }),
        }
    }

    /// Returns whether the directory is on the list of its volume.
    pub(crate) fn is_listed(&self) -> &ListedFlag {
        &self.by_push.is_listed
    }

    /// Returns whether the block of the inode's record is known to be held in memory.
    pub(crate) fn has_home(&self) -> bool {
        self.has_home.load(Ordering::Acquire)
    }

    /// Notes whether the block of the inode's record is held in memory.
    pub(crate) fn note_home(&self, has_home: bool) {
        self.has_home.store(has_home, Ordering::Release);
    }

    /// Returns whether the directory is known to be hot.
    pub(crate) fn is_hot(&self) -> bool {
        self.by_push.is_hot.load(Ordering::Relaxed)
    }

    /// Notes whether the directory is hot.
    pub(crate) fn note_hot(&self, is_hot: bool) {
        if self.is_hot() != is_hot {
            self.by_push.is_hot.store(is_hot, Ordering::Relaxed);
        }
    }

    /// Returns a checkpoint that has changed the directory, for threads that would all look at the
    /// inode for it; 0 for none.
    pub(crate) fn sequence(&self) -> u64 {
        self.sequence.load(Ordering::Relaxed)
    }

    /// Notes that the inode has noted this checkpoint.
    pub(crate) fn note_sequence(&self, sequence: u64) {
        self.sequence.fetch_max(sequence, Ordering::Relaxed);
    }

    /// Locks the range of a position.
    pub(crate) fn range(&self, position: u64) -> RangeGuard<'_> {
        self.ranges[self.index(position)].lock()
    }

    fn index(&self, position: u64) -> usize {
        (position / (POSITION_MAX / self.ranges.len() as u64 + 1)) as usize
    }

    /// Passes `read` the directory on disk.
    ///
    /// `read` is called in an RCU section if the entries are in the inode, and may block for I/O
    /// otherwise.
    pub(crate) fn with_stored<T>(&self, read: impl FnOnce(&InodeCore) -> T) -> T {
        assert_held::<NodeLock>();
        let section = rcu::pin();
        let core = &self.stored.read(&section).core;
        if !matches!(core.data, DataFork::Tree { .. }) {
            return read(core);
        }
        // The address of a root: such a copy counts no reference.
        let core = core.clone();
        drop(section);
        read(&core)
    }

    /// Returns the levels of the tree of the directory on disk, 0 for none. `count` counts them for
    /// the first caller.
    ///
    /// # Errors
    /// The errors of `count`.
    pub(crate) fn levels(
        &self,
        count: impl FnOnce(&InodeCore) -> Result<u16, Error<Fault>>,
    ) -> Result<u16, Error<Fault>> {
        assert_held::<NodeLock>();
        let levels = self.stored.read(&rcu::pin()).levels.load(Ordering::Relaxed);
        if levels != UNKNOWN {
            return Ok(levels as u16);
        }
        let levels = self.with_stored(count)?;
        self.stored.read(&rcu::pin()).levels.store(levels.into(), Ordering::Relaxed);
        Ok(levels)
    }

    /// Notes that `core` is the inode of the directory now, which is locked exclusively.
    pub(crate) fn note_stored(&self, core: &InodeCore) {
        assert_held::<NodeLock>();
        self.stored.replace(StoredDir::new(core), &rcu::pin());
    }

    /// Notes that the inode has these times.
    pub(crate) fn note_times(&self, times: &Times) {
        assert_held::<NodeCore>();
        let changed_at = if times.mtime == times.ctime { times.ctime } else { 0 };
        for (noted, time) in [(&self.changed_at, changed_at), (&self.accessed_at, times.atime)] {
            if noted.load(Ordering::Relaxed) != time {
                noted.store(time, Ordering::Release);
            }
        }
    }

    /// Returns whether the inode has copied these times.
    pub(crate) fn has_times(&self, times: &Times) -> bool {
        times.ctime != 0
            && times.mtime == times.ctime
            && self.changed_at.load(Ordering::Acquire) == times.ctime
            && self.accessed_at.load(Ordering::Acquire) == times.atime
    }

    /// Notes that the directory was taken off the list. Returns whether it has changes, or may have
    /// some: then the caller writes them, with the inode locked exclusively. A thread that notes a
    /// change from now on lists the directory again.
    pub(crate) fn note_taken(&self) -> bool {
        self.by_push.is_listed.clear();
        self.ranges.iter().any(|range| range.has_changes())
    }

    /// Returns the present entry of a name whose first position is `base`; `None` if it is the one
    /// on disk.
    pub(crate) fn changed(&self, base: u64, name: &[u8]) -> Option<Option<Place>> {
        assert_held::<NodeLock>();
        let range = &self.ranges[self.index(base)];
        if range.has_changes() { range.lock().changed(base, name) } else { None }
    }

    /// Returns the changes behind a position up to `last`, with what is now at each of them, in
    /// order.
    pub(crate) fn between(&self, behind: u64, last: u64) -> Vec<(u64, Option<NamedInode>)> {
        assert_held::<NodeLock>();
        let mut found = Vec::new();
        if behind >= last {
            return found;
        }
        let ranges = &self.ranges[self.index(behind)..=self.index(last.min(POSITION_MAX))];
        for range in ranges.iter().filter(|range| range.has_changes()) {
            let range = range.lock();
            let changes = range.between(behind, last).iter();
            found.extend(changes.map(|(position, change)| (*position, change.now.clone())));
        }
        found
    }

    /// Returns all changes in order, of a directory that is locked exclusively.
    pub(crate) fn all(&self) -> Vec<(u64, NameChange)> {
        assert_held::<NodeLock>();
        let mut all = Vec::new();
        for range in self.ranges.iter().filter(|range| range.has_changes()) {
            all.extend_from_slice(&range.lock().changes);
        }
        all
    }

    /// Drops all changes: the directory on disk has them, and is locked exclusively.
    pub(crate) fn clear(&self) {
        assert_held::<NodeLock>();
        for range in self.ranges.iter().filter(|range| range.has_changes()) {
            range.lock().changes.clear();
        }
    }
}

impl Drop for DelayedNames {
    fn drop(&mut self) {
        MEMORY.fetch_sub(size_of_val(&*self.ranges), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
