//! How far each structure is spread, and what the kernel did before it was.
//!
//! # Purpose
//!
//! Every scaled structure takes its number of slots when it is made, and the few patches that are
//! no matter of slots are a boolean. A [`Scaling`] holds all of them. Its default follows the
//! machine; [`Scaling::before`] and a constructor for each patch take one patch back, so that one
//! binary compares before and after. Settings combine: [`Scaling::and_before`].
//!
//! # Invariants
//!
//! * A setting is chosen when a tree of mounts is made, and never changes: calls don't ask for it
//!   where the structure itself can be made differently (a number of slots, a bit in a word).
//! * [`PATCHES`] lists the settings there are, each with a structure behind it that obeys. Any
//!   other name is refused, and never ignored.
//! * What is taken back is the patch and nothing else: results of calls are the same either way.
//!
//! `docs/SCALING.md` has a paragraph on each, with the test that proves it.

use std::fmt;

use vfscale_sync::cpu;

/// How far each structure is spread. `Default` follows the machine.
///
/// ```
/// use vfscale_vfs::Scaling;
///
/// let scaling = Scaling::before("lockref")?.and_before("mount-count")?;
/// assert_eq!(scaling, Scaling::before_mount_count().and_before("lockref")?);
/// assert_eq!((scaling.lockref(), scaling.mount_count_slots()), (false, 1));
/// assert!(Scaling::before("magic").unwrap_err().to_string().contains("lockref"));
/// # Ok::<(), vfscale_vfs::ScalingError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scaling {
    slots: usize,
    lockref: bool,
    seqrwlock: bool,
    vfsmount_lock: usize,
    mount_count: usize,
    files_lock: usize,
    dcache_hash: bool,
    lru: usize,
    inode_hash: bool,
    inode_list: bool,
    ino_alloc: usize,
    pseudo: bool,
    read_mostly: bool,
    active_trans: usize,
    cil_counters: usize,
    cil_lists: usize,
    busy_extents: bool,
    orphan: bool,
}

/// A patch of the seeds that [`Scaling`] can take back.
pub struct Patch {
    name: &'static str,
    seed: &'static str,
    summary: &'static str,
    of_volumes: bool,
    take_back: fn(&mut Scaling),
}

impl Patch {
    /// A patch of what every file system has.
    const fn of_trees(
        name: &'static str,
        seed: &'static str,
        summary: &'static str,
        take_back: fn(&mut Scaling),
    ) -> Patch {
        Patch { name, seed, summary, of_volumes: false, take_back }
    }

    /// A patch of what volumes have.
    const fn of_volumes(
        name: &'static str,
        seed: &'static str,
        summary: &'static str,
        take_back: fn(&mut Scaling),
    ) -> Patch {
        Patch { name, seed, summary, of_volumes: true, take_back }
    }
}

/// The patches that can be taken back, in the order of the documentation.
pub const PATCHES: &[Patch] = &[
    Patch::of_trees(
        "lockref",
        "000",
        "a dentry's count changes only under its lock (d_lock), never by cmpxchg",
        |scaling| scaling.lockref = false,
    ),
    Patch::of_trees(
        "seqrwlock",
        "000",
        "paths and moves of directories write rename_lock, one at a time",
        |scaling| scaling.seqrwlock = false,
    ),
    Patch::of_trees(
        "brlock",
        "004",
        "every crossing of a mount takes one vfsmount_lock",
        |scaling| scaling.vfsmount_lock = 1,
    ),
    Patch::of_trees(
        "mount-count",
        "004",
        "one counter of users and one of writers for each mount",
        |scaling| scaling.mount_count = 1,
    ),
    Patch::of_trees(
        "files-lock",
        "004",
        "one list of open files, with one files_lock, for the file system",
        |scaling| scaling.files_lock = 1,
    ),
    Patch::of_trees(
        "dcache-hash",
        "004",
        "names are made, removed and renamed under one dcache_lock",
        |scaling| scaling.dcache_hash = false,
    ),
    Patch::of_trees(
        "lru",
        "004",
        "one list, with one dcache_lru_lock, of the dentries that can be dropped",
        |scaling| scaling.lru = 1,
    ),
    Patch::of_trees(
        "inode-hash",
        "004",
        "finding, entering and removing an inode by number takes one inode_lock",
        |scaling| scaling.inode_hash = false,
    ),
    Patch::of_trees(
        "inode-list",
        "004",
        "every inode is on its superblock's one list, under one inode_sb_list_lock",
        |scaling| scaling.inode_list = false,
    ),
    Patch::of_trees(
        "ino-alloc",
        "004",
        "all CPUs take inode numbers from one counter",
        |scaling| scaling.ino_alloc = 1,
    ),
    Patch::of_trees(
        "pseudo",
        "004",
        "pipes and the like hang below one root, numbered by one counter",
        |scaling| scaling.pseudo = false,
    ),
    Patch::of_volumes(
        "read-mostly",
        "003",
        "what every commit reads of the log lies on lines that commits write",
        |scaling| scaling.read_mostly = false,
    ),
    Patch::of_volumes(
        "active-trans",
        "003",
        "one counter of the transactions that are under way",
        |scaling| scaling.active_trans = 1,
    ),
    Patch::of_volumes(
        "cil-counters",
        "003",
        "one counter of the space in the CIL, one of what is reserved for it",
        |scaling| scaling.cil_counters = 1,
    ),
    Patch::of_volumes(
        "cil-lists",
        "003",
        "one list, with one lock, of what has been committed and not yet logged",
        |scaling| scaling.cil_lists = 1,
    ),
    Patch::of_volumes(
        "busy-extents",
        "003",
        "one list, with one lock, of what was freed and not yet logged",
        |scaling| scaling.busy_extents = false,
    ),
    Patch::of_volumes(
        "orphan",
        "001",
        "one list of orphans; its lock is held to ask, and while disk changes",
        |scaling| scaling.orphan = false,
    ),
];

impl Patch {
    /// The name that [`Scaling::before`] takes.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The number of the document that describes the patch.
    #[must_use]
    pub fn seed(&self) -> &'static str {
        self.seed
    }

    /// Whether it is about volumes, and makes no difference to file systems in memory.
    #[must_use]
    pub fn is_of_volumes(&self) -> bool {
        self.of_volumes
    }

    /// What the file system does without the patch, in a line.
    #[must_use]
    pub fn summary(&self) -> &'static str {
        self.summary
    }
}

impl fmt::Debug for Patch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Patch")
            .field("name", &self.name)
            .field("seed", &self.seed)
            .finish_non_exhaustive()
    }
}

/// `name (seed 000): what it does`.
impl fmt::Display for Patch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (seed {}): {}", self.name, self.seed, self.summary)
    }
}

/// Why a patch can't be taken back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScalingError {
    /// No patch has this name.
    Unknown(String),
}

impl fmt::Display for ScalingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ScalingError::Unknown(name) => write!(f, "`{name}` is not the name of a patch")?,
        }
        let names: Vec<&str> = PATCHES.iter().map(Patch::name).collect();
        write!(f, "; those that can be taken back are {}", names.join(", "))
    }
}

impl std::error::Error for ScalingError {}

impl Default for Scaling {
    fn default() -> Scaling {
        Scaling::with_slots(cpu::possible() as usize)
    }
}

impl Scaling {
    /// Everything scaled, for `slots` CPUs (at least one) instead of those of the machine.
    #[must_use]
    pub fn with_slots(slots: usize) -> Scaling {
        let slots = slots.max(1);
        Scaling {
            slots,
            lockref: true,
            seqrwlock: true,
            vfsmount_lock: 0,
            mount_count: slots,
            files_lock: slots,
            dcache_hash: true,
            lru: slots,
            inode_hash: true,
            inode_list: true,
            ino_alloc: slots,
            pseudo: true,
            read_mostly: true,
            active_trans: slots,
            cil_counters: slots,
            cil_lists: slots,
            busy_extents: true,
            orphan: true,
        }
    }

    /// The machine's default without the patch `name`.
    ///
    /// # Errors
    /// If there is no such patch; the error lists those there are.
    pub fn before(name: &str) -> Result<Scaling, ScalingError> {
        Scaling::default().and_before(name)
    }

    /// This without the patch `name` as well.
    ///
    /// # Errors
    /// As [`before`](Self::before).
    pub fn and_before(mut self, name: &str) -> Result<Scaling, ScalingError> {
        if let Some(patch) = PATCHES.iter().find(|patch| patch.name == name) {
            (patch.take_back)(&mut self);
            return Ok(self);
        }
        Err(ScalingError::Unknown(name.to_owned()))
    }

    /// Without any of the patches: as the kernel was at the time of 2.6.
    #[must_use]
    pub fn kernel_2_6() -> Scaling {
        let mut scaling = Scaling::default();
        for patch in PATCHES {
            (patch.take_back)(&mut scaling);
        }
        scaling
    }

    /// Before seed 000, patch 1: a dentry's count changes under its lock only.
    #[must_use]
    pub fn before_lockref() -> Scaling {
        Scaling { lockref: false, ..Scaling::default() }
    }

    /// Before seed 000, patches 2 and 3: readers of `rename_lock` that block take the writer's
    /// side, and directories move one at a time.
    #[must_use]
    pub fn before_seqrwlock() -> Scaling {
        Scaling { seqrwlock: false, ..Scaling::default() }
    }

    /// Before seed 004's brlock: one `vfsmount_lock` for every crossing of a mount.
    #[must_use]
    pub fn before_brlock() -> Scaling {
        Scaling { vfsmount_lock: 1, ..Scaling::default() }
    }

    /// Before seed 004's counts per CPU: one counter of a mount's users, one of its writers.
    #[must_use]
    pub fn before_mount_count() -> Scaling {
        Scaling { mount_count: 1, ..Scaling::default() }
    }

    /// Before seed 004's lists per CPU: one list of open files, one `files_lock`.
    #[must_use]
    pub fn before_files_lock() -> Scaling {
        Scaling { files_lock: 1, ..Scaling::default() }
    }

    /// Before seed 004's locks per bucket: names change under one `dcache_lock`.
    #[must_use]
    pub fn before_dcache_hash() -> Scaling {
        Scaling { dcache_hash: false, ..Scaling::default() }
    }

    /// Before seed 004's lists per CPU: one list of the dentries that can be dropped.
    #[must_use]
    pub fn before_lru() -> Scaling {
        Scaling { lru: 1, ..Scaling::default() }
    }

    /// Before seed 004's lookup of inodes without a lock: one `inode_lock` for their hash.
    #[must_use]
    pub fn before_inode_hash() -> Scaling {
        Scaling { inode_hash: false, ..Scaling::default() }
    }

    /// Before seed 004's lists per CPU: every inode is on its superblock's one list.
    #[must_use]
    pub fn before_inode_list() -> Scaling {
        Scaling { inode_list: false, ..Scaling::default() }
    }

    /// Before seed 004's inode numbers per CPU: one counter.
    #[must_use]
    pub fn before_ino_alloc() -> Scaling {
        Scaling { ino_alloc: 1, ..Scaling::default() }
    }

    /// Before seed 004's pseudo file systems without a root: all pipes are children of one dentry.
    #[must_use]
    pub fn before_pseudo() -> Scaling {
        Scaling { pseudo: false, ..Scaling::default() }
    }

    /// Before seed 003, patch 1: what every commit reads of the log lies on lines that commits
    /// write.
    #[must_use]
    pub fn before_read_mostly() -> Scaling {
        Scaling { read_mostly: false, ..Scaling::default() }
    }

    /// Before seed 003, patch 2: one counter of the transactions that are under way.
    #[must_use]
    pub fn before_active_trans() -> Scaling {
        Scaling { active_trans: 1, ..Scaling::default() }
    }

    /// Before seed 003, patch 3: one counter of the space in the CIL, one of what is reserved.
    #[must_use]
    pub fn before_cil_counters() -> Scaling {
        Scaling { cil_counters: 1, ..Scaling::default() }
    }

    /// Before seed 003, patch 4: one list of what has been committed, with one lock.
    #[must_use]
    pub fn before_cil_lists() -> Scaling {
        Scaling { cil_lists: 1, ..Scaling::default() }
    }

    /// Before seed 003, patch 5: one list of what was freed and not yet logged, with one lock.
    #[must_use]
    pub fn before_busy_extents() -> Scaling {
        Scaling { busy_extents: false, ..Scaling::default() }
    }

    /// Before seed 001: one list of a volume's orphans, whose lock is held across all that is done
    /// to them.
    #[must_use]
    pub fn before_orphan() -> Scaling {
        Scaling { orphan: false, ..Scaling::default() }
    }

    /// Lets crossings of mounts take a `vfsmount_lock` with `slots` slots, of which a reader takes
    /// that of its CPU: the brlock of seed 004. With 0, the default, they take no lock at all,
    /// since RCU and the mount tree's sequence count do the same without writing anything.
    #[must_use]
    pub fn with_vfsmount_lock(self, slots: usize) -> Scaling {
        Scaling { vfsmount_lock: slots, ..self }
    }

    /// The slots of what no patch is about: caches of memory and accounts of space.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Whether a dentry's count changes by compare-and-exchange, and spreads when it is hot.
    #[must_use]
    pub fn lockref(&self) -> bool {
        self.lockref
    }

    /// Whether readers of `rename_lock` retry, and share when they block, and directories move
    /// beside one another.
    #[must_use]
    pub fn seqrwlock(&self) -> bool {
        self.seqrwlock
    }

    /// The slots of the `vfsmount_lock`; 0 when there is none.
    #[must_use]
    pub fn vfsmount_lock_slots(&self) -> usize {
        self.vfsmount_lock
    }

    /// The slots of the lock of a file that several CPUs use: before `brlock` all use one word.
    #[must_use]
    pub fn file_lock_slots(&self) -> usize {
        if self.vfsmount_lock == 1 { 1 } else { self.slots }
    }

    /// The slots of a mount's counts of users and writers.
    #[must_use]
    pub fn mount_count_slots(&self) -> usize {
        self.mount_count
    }

    /// The slots of a superblock's lists of open files.
    #[must_use]
    pub fn files_lock_slots(&self) -> usize {
        self.files_lock
    }

    /// Whether a lock for each bucket suffices to change names.
    #[must_use]
    pub fn dcache_hash(&self) -> bool {
        self.dcache_hash
    }

    /// The slots of a superblock's lists of dentries that can be dropped.
    #[must_use]
    pub fn lru_slots(&self) -> usize {
        self.lru
    }

    /// Whether a lock for each bucket suffices to change the hash of inodes, and none to look in
    /// it.
    #[must_use]
    pub fn inode_hash(&self) -> bool {
        self.inode_hash
    }

    /// Whether inodes are on a list for each CPU, and only those that somebody may look for there.
    #[must_use]
    pub fn inode_list(&self) -> bool {
        self.inode_list
    }

    /// The slots of the counter of inode numbers.
    #[must_use]
    pub fn ino_alloc_slots(&self) -> usize {
        self.ino_alloc
    }

    /// Whether files that no path leads to have no parent.
    #[must_use]
    pub fn pseudo(&self) -> bool {
        self.pseudo
    }

    /// Whether what every commit reads of a volume's log is apart from what commits write.
    #[must_use]
    pub fn read_mostly(&self) -> bool {
        self.read_mostly
    }

    /// The slots of a volume's count of transactions that are under way.
    #[must_use]
    pub fn active_trans_slots(&self) -> usize {
        self.active_trans
    }

    /// The slots of a volume's counts of space in the CIL.
    #[must_use]
    pub fn cil_counter_slots(&self) -> usize {
        self.cil_counters
    }

    /// The slots of a volume's lists of what has been committed.
    #[must_use]
    pub fn cil_list_slots(&self) -> usize {
        self.cil_lists
    }

    /// Whether a volume has a list for each CPU of what was freed and not yet logged.
    #[must_use]
    pub fn busy_extents(&self) -> bool {
        self.busy_extents
    }

    /// The lists of a volume's files that have something to be written back. Before `inode-list`
    /// there is one: they were the same lists, under the same lock.
    #[must_use]
    pub fn dirty_lists(&self) -> usize {
        if self.inode_list { self.slots } else { 1 }
    }

    /// The lists of a volume's orphans; 0 for one with the lock of before the patch.
    #[must_use]
    pub fn orphan_lists(&self) -> usize {
        if self.orphan { self.slots } else { 0 }
    }

    /// The same for a file system that no path leads to: before that patch, its dentries are under
    /// one lock and its inode numbers come from one counter.
    pub(crate) fn of_internal(self) -> Scaling {
        if self.pseudo { self } else { Scaling { dcache_hash: false, ino_alloc: 1, ..self } }
    }
}

#[cfg(test)]
mod tests;
