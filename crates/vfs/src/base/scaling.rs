//! The scaling settings: the number of shards of each structure, and the state before each patch.
//!
//! # Purpose
//!
//! Every scaled structure gets its number of slots (shards) when it is made; the few patches that
//! do not concern slots are a boolean. A [`Scaling`] holds all of them. Its default follows the
//! machine. [`Scaling::before`] and a constructor for each patch disable one patch, so one binary
//! compares before and after. Settings combine: [`Scaling::and_before`].
//!
//! # Invariants
//!
//! * A setting is chosen when a mount tree is made, and never changes. Calls do not test it if the
//!   structure itself can encode it (a number of slots, a bit in a word).
//! * [`PATCHES`] lists all settings, each with a structure that obeys it. Other names are refused,
//!   never ignored.
//! * Where a structure goes beyond the patch that it follows, that part has a setting of its own
//!   ([`Patch::goes_beyond`]). So each patch can be had as it was published: to disable the patch
//!   disables what goes beyond it in the same structure, but not the reverse.
//! * Disabling a patch changes nothing else: calls return the same results.
//!
//! `docs/SCALING.md` has a section on each, with the test that proves it.

use std::fmt;

use vfscale_sync::cpu;

/// The scaling settings of a tree. `Default` follows the CPUs that the process may use
/// ([`cpu::slots`]).
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
    lockref_spread: bool,
    seqrwlock: bool,
    path_retry: bool,
    dir_moves: bool,
    file_lock: usize,
    vfsmount_lock: usize,
    mount_count: usize,
    files_lock: usize,
    dcache_hash: bool,
    lru: usize,
    dentry_count: bool,
    inode_hash: bool,
    inode_list: bool,
    dirty_list: usize,
    ino_alloc: usize,
    inode_count: bool,
    pseudo: bool,
    read_mostly: bool,
    active_trans: usize,
    cil_counters: usize,
    cil_lists: usize,
    busy_extents: bool,
    orphan: bool,
    cil_context: usize,
    log_space: usize,
}

/// A patch of the source documents (`docs/REFERENCES.md`) that [`Scaling`] can disable.
///
/// ```
/// for patch in vfscale_vfs::PATCHES {
///     println!("{patch:?}");
/// }
/// ```
pub struct Patch {
    name: &'static str,
    source: &'static str,
    summary: &'static str,
    of_volumes: bool,
    disable: fn(&mut Scaling),
}

impl Patch {
    /// Creates a patch that concerns every file system.
    const fn of_trees(
        name: &'static str,
        source: &'static str,
        summary: &'static str,
        disable: fn(&mut Scaling),
    ) -> Patch {
        Patch { name, source, summary, of_volumes: false, disable }
    }

    /// Creates a patch that concerns volumes only.
    const fn of_volumes(
        name: &'static str,
        source: &'static str,
        summary: &'static str,
        disable: fn(&mut Scaling),
    ) -> Patch {
        Patch { name, source, summary, of_volumes: true, disable }
    }
}

/// The patches that can be disabled, in the order of the documentation.
pub const PATCHES: &[Patch] = &[
    Patch::of_trees(
        "lockref",
        "Long 2013",
        "a dentry's count changes only under its lock (d_lock), never by cmpxchg",
        |scaling| (scaling.lockref, scaling.lockref_spread) = (false, false),
    ),
    Patch::of_trees(
        "seqrwlock",
        "Long 2013",
        "a path is read under the writer's side of rename_lock, one at a time",
        |scaling| (scaling.seqrwlock, scaling.path_retry) = (false, false),
    ),
    Patch::of_trees(
        "brlock",
        "Piggin 2009",
        "every crossing of a mount takes one vfsmount_lock",
        |scaling| scaling.vfsmount_lock = 1,
    ),
    Patch::of_trees(
        "mount-count",
        "Piggin 2009",
        "one counter of users and one of writers for each mount",
        |scaling| scaling.mount_count = 1,
    ),
    Patch::of_trees(
        "files-lock",
        "Piggin 2009",
        "one list of open files, with one files_lock, for the file system",
        |scaling| scaling.files_lock = 1,
    ),
    Patch::of_trees(
        "dcache-hash",
        "Piggin 2009",
        "names are made, removed and renamed under one dcache_lock",
        |scaling| scaling.dcache_hash = false,
    ),
    Patch::of_trees(
        "lru",
        "Piggin 2009",
        "one list, with one dcache_lru_lock, of the dentries that can be dropped",
        |scaling| scaling.lru = 1,
    ),
    Patch::of_trees(
        "dentry-count",
        "Piggin 2009",
        "one counter of the dentries of a file system",
        |scaling| scaling.dentry_count = false,
    ),
    Patch::of_trees(
        "inode-hash",
        "Piggin 2009",
        "finding, entering and removing an inode by number takes one inode_lock",
        |scaling| scaling.inode_hash = false,
    ),
    Patch::of_trees(
        "inode-list",
        "Piggin 2009",
        "every inode is on its superblock's one list, under one inode_sb_list_lock",
        |scaling| scaling.inode_list = false,
    ),
    Patch::of_trees(
        "ino-alloc",
        "Piggin 2009",
        "all CPUs take inode numbers from one counter",
        |scaling| scaling.ino_alloc = 1,
    ),
    Patch::of_trees(
        "inode-count",
        "Piggin 2009",
        "one counter of the inodes of a file system",
        |scaling| scaling.inode_count = false,
    ),
    Patch::of_trees(
        "pseudo",
        "Piggin 2009",
        "pipes and the like hang below one root, numbered by one counter",
        |scaling| scaling.pseudo = false,
    ),
    Patch::of_volumes(
        "read-mostly",
        "Chinner 2020",
        "what every commit reads of the log lies on lines that commits write",
        |scaling| scaling.read_mostly = false,
    ),
    Patch::of_volumes(
        "active-trans",
        "Chinner 2020",
        "one counter of the transactions that are under way",
        |scaling| scaling.active_trans = 1,
    ),
    Patch::of_volumes(
        "cil-counters",
        "Chinner 2020",
        "one counter of the space in the CIL, one of what is reserved for it",
        |scaling| scaling.cil_counters = 1,
    ),
    Patch::of_volumes(
        "cil-lists",
        "Chinner 2020",
        "one list, with one lock, of what has been committed and not yet logged",
        |scaling| scaling.cil_lists = 1,
    ),
    Patch::of_volumes(
        "busy-extents",
        "Chinner 2020",
        "one list, with one lock, of what was freed and not yet logged",
        |scaling| scaling.busy_extents = false,
    ),
    Patch::of_volumes(
        "orphan",
        "Kara 2014",
        "one count of orphans; its lock is held to ask, and while disk changes",
        |scaling| scaling.orphan = false,
    ),
    Patch::of_trees(
        "lockref-spread",
        "beyond Long 2013",
        "a dentry's count is one word, also where all CPUs open the file",
        |scaling| scaling.lockref_spread = false,
    ),
    Patch::of_trees(
        "path-retry",
        "beyond Long 2013",
        "a path is read under the reader's side of rename_lock",
        |scaling| scaling.path_retry = false,
    ),
    Patch::of_trees(
        "dir-moves",
        "beyond Long 2013",
        "directories move one at a time, on the writer's side of rename_lock",
        |scaling| scaling.dir_moves = false,
    ),
    Patch::of_trees(
        "mount-rcu",
        "beyond Piggin 2009",
        "crossing a mount takes the CPU's part of vfsmount_lock",
        |scaling| scaling.vfsmount_lock = scaling.vfsmount_lock_without_rcu(),
    ),
    Patch::of_trees(
        "file-lock",
        "beyond Piggin 2009",
        "the lock of a file that several CPUs overwrite is one word",
        |scaling| scaling.file_lock = 1,
    ),
    Patch::of_volumes(
        "dirty-list",
        "beyond Piggin 2009",
        "one list, with one lock, of the files that are to be written back",
        |scaling| scaling.dirty_list = 1,
    ),
    Patch::of_volumes(
        "cil-context",
        "beyond Chinner 2020",
        "every commit writes the word of one xc_ctx_lock",
        |scaling| scaling.cil_context = 1,
    ),
    Patch::of_volumes(
        "log-space",
        "beyond Chinner 2020",
        "every transaction takes log space from one grant head",
        |scaling| scaling.log_space = 1,
    ),
];

impl Patch {
    /// Returns the name that [`Scaling::before`] takes.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns author and year of the document that describes the patch, as `docs/REFERENCES.md`
    /// cites it, or of the one that it [goes beyond](Self::goes_beyond), after "beyond".
    #[must_use]
    pub fn source(&self) -> &'static str {
        self.source
    }

    /// Returns whether the patch concerns volumes only, not file systems in memory.
    #[must_use]
    pub fn is_of_volumes(&self) -> bool {
        self.of_volumes
    }

    /// Returns whether no document has it: it goes beyond the patch of one, which stays in force
    /// when this is disabled.
    #[must_use]
    pub fn goes_beyond(&self) -> bool {
        self.source.starts_with("beyond ")
    }

    /// Returns a line on what the file system does without the patch.
    #[must_use]
    pub fn summary(&self) -> &'static str {
        self.summary
    }
}

impl fmt::Debug for Patch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Patch")
            .field("name", &self.name)
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}

/// Prints `name (source): summary`.
impl fmt::Display for Patch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.name, self.source, self.summary)
    }
}

/// The reason why a patch cannot be disabled.
///
/// ```
/// let error = vfscale_vfs::Scaling::before("no-such-patch").unwrap_err();
/// assert!(error.to_string().contains("no-such-patch"));
/// ```
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
        write!(f, "; the patches are {}", names.join(", "))
    }
}

impl std::error::Error for ScalingError {}

impl Default for Scaling {
    fn default() -> Scaling {
        Scaling::with_slots(cpu::slots() as usize)
    }
}

impl Scaling {
    /// Returns the settings with all patches, for `slots` CPUs (at least one) instead of those that
    /// the process may use.
    #[must_use]
    pub fn with_slots(slots: usize) -> Scaling {
        let slots = slots.max(1);
        Scaling {
            slots,
            lockref: true,
            lockref_spread: true,
            seqrwlock: true,
            path_retry: true,
            dir_moves: true,
            file_lock: slots,
            vfsmount_lock: 0,
            mount_count: slots,
            files_lock: slots,
            dcache_hash: true,
            lru: slots,
            dentry_count: true,
            inode_hash: true,
            inode_list: true,
            dirty_list: slots,
            ino_alloc: slots,
            inode_count: true,
            pseudo: true,
            read_mostly: true,
            active_trans: slots,
            cil_counters: slots,
            cil_lists: slots,
            busy_extents: true,
            orphan: true,
            cil_context: slots,
            log_space: slots,
        }
    }

    /// Returns the default without the patch `name`.
    ///
    /// # Errors
    /// [`ScalingError::Unknown`], which lists the patches, if there is no such patch.
    pub fn before(name: &str) -> Result<Scaling, ScalingError> {
        Scaling::default().and_before(name)
    }

    /// Returns these settings without the patch `name`.
    ///
    /// # Errors
    /// See [`before`](Self::before).
    pub fn and_before(mut self, name: &str) -> Result<Scaling, ScalingError> {
        if let Some(patch) = PATCHES.iter().find(|patch| patch.name == name) {
            (patch.disable)(&mut self);
            return Ok(self);
        }
        Err(ScalingError::Unknown(name.to_owned()))
    }

    /// Returns the default without any of the patches, as Linux was at the time of 2.6.
    #[must_use]
    pub fn kernel_2_6() -> Scaling {
        let mut scaling = Scaling::default();
        for patch in PATCHES {
            (patch.disable)(&mut scaling);
        }
        scaling
    }

    /// Disables lockref (Long 2013, patch 1): a dentry's count changes under its lock only.
    #[must_use]
    pub fn before_lockref() -> Scaling {
        Scaling { lockref: false, lockref_spread: false, ..Scaling::default() }
    }

    /// Disables seqrwlock (Long 2013, patches 2 and 3): readers of a path take the writer's side of
    /// `rename_lock`.
    #[must_use]
    pub fn before_seqrwlock() -> Scaling {
        Scaling { seqrwlock: false, path_retry: false, ..Scaling::default() }
    }

    /// Disables the brlock (Piggin 2009): every crossing of a mount takes one `vfsmount_lock`.
    #[must_use]
    pub fn before_brlock() -> Scaling {
        Scaling { vfsmount_lock: 1, ..Scaling::default() }
    }

    /// Disables per-CPU mount counts (Piggin 2009): a mount has one counter of users and one of
    /// writers.
    #[must_use]
    pub fn before_mount_count() -> Scaling {
        Scaling { mount_count: 1, ..Scaling::default() }
    }

    /// Disables per-CPU file lists (Piggin 2009): one list of open files, one `files_lock`.
    #[must_use]
    pub fn before_files_lock() -> Scaling {
        Scaling { files_lock: 1, ..Scaling::default() }
    }

    /// Disables bucket locks (Piggin 2009): names change under one `dcache_lock`.
    #[must_use]
    pub fn before_dcache_hash() -> Scaling {
        Scaling { dcache_hash: false, ..Scaling::default() }
    }

    /// Disables per-CPU LRU lists (Piggin 2009): one list of droppable dentries.
    #[must_use]
    pub fn before_lru() -> Scaling {
        Scaling { lru: 1, ..Scaling::default() }
    }

    /// Disables the per-CPU count of dentries (Piggin 2009): a file system has one counter.
    #[must_use]
    pub fn before_dentry_count() -> Scaling {
        Scaling { dentry_count: false, ..Scaling::default() }
    }

    /// Disables lock-free inode lookup (Piggin 2009): one `inode_lock` for the inode hash.
    #[must_use]
    pub fn before_inode_hash() -> Scaling {
        Scaling { inode_hash: false, ..Scaling::default() }
    }

    /// Disables per-CPU inode lists (Piggin 2009): every inode is on its superblock's one list.
    #[must_use]
    pub fn before_inode_list() -> Scaling {
        Scaling { inode_list: false, ..Scaling::default() }
    }

    /// Disables per-CPU inode numbers (Piggin 2009): one counter.
    #[must_use]
    pub fn before_ino_alloc() -> Scaling {
        Scaling { ino_alloc: 1, ..Scaling::default() }
    }

    /// Disables the per-CPU count of inodes (Piggin 2009): a file system has one counter.
    #[must_use]
    pub fn before_inode_count() -> Scaling {
        Scaling { inode_count: false, ..Scaling::default() }
    }

    /// Disables parentless pseudo files (Piggin 2009): all pipes are children of one dentry.
    #[must_use]
    pub fn before_pseudo() -> Scaling {
        Scaling { pseudo: false, ..Scaling::default() }
    }

    /// Disables read-mostly fields (Chinner 2020, patch 1): commits read fields of the log on cache
    /// lines that commits write.
    #[must_use]
    pub fn before_read_mostly() -> Scaling {
        Scaling { read_mostly: false, ..Scaling::default() }
    }

    /// Disables the per-CPU count of active transactions (Chinner 2020, patch 2): one counter.
    #[must_use]
    pub fn before_active_trans() -> Scaling {
        Scaling { active_trans: 1, ..Scaling::default() }
    }

    /// Disables per-CPU CIL counters (Chinner 2020, patch 3): one counter of the space in the CIL,
    /// one of the reservations.
    #[must_use]
    pub fn before_cil_counters() -> Scaling {
        Scaling { cil_counters: 1, ..Scaling::default() }
    }

    /// Disables per-CPU CIL lists (Chinner 2020, patch 4): one list of committed items, one lock.
    #[must_use]
    pub fn before_cil_lists() -> Scaling {
        Scaling { cil_lists: 1, ..Scaling::default() }
    }

    /// Disables per-CPU busy extents (Chinner 2020, patch 5): one list of freed extents that are
    /// not yet logged, one lock.
    #[must_use]
    pub fn before_busy_extents() -> Scaling {
        Scaling { busy_extents: false, ..Scaling::default() }
    }

    /// Disables orphan scaling (Kara 2014): one lock of a volume's orphans is held during
    /// all work on them.
    #[must_use]
    pub fn before_orphan() -> Scaling {
        Scaling { orphan: false, ..Scaling::default() }
    }

    /// Sets the slots of the `vfsmount_lock`. A crossing of a mount takes the slot of its CPU: the
    /// brlock of Piggin 2009. With 0, the default, crossings take no lock, because RCU and the
    /// sequence count of the mount tree suffice without a write.
    #[must_use]
    pub fn with_vfsmount_lock(self, slots: usize) -> Scaling {
        Scaling { vfsmount_lock: slots, ..self }
    }

    /// Returns the slots of structures that no patch concerns: caches of memory, counts of space.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Returns whether a dentry's count changes by compare-and-exchange.
    #[must_use]
    pub fn lockref(&self) -> bool {
        self.lockref
    }

    /// Returns the number of parts into which a dentry's count is sharded when it is hot; 1 if it
    /// never is.
    #[must_use]
    pub fn lockref_parts(&self) -> usize {
        if self.lockref_spread { self.slots } else { 1 }
    }

    /// Returns whether readers of `rename_lock` share it when they block.
    #[must_use]
    pub fn seqrwlock(&self) -> bool {
        self.seqrwlock
    }

    /// Returns whether readers of a path retry before they block.
    #[must_use]
    pub fn path_retry(&self) -> bool {
        self.path_retry
    }

    /// Returns whether directories move concurrently.
    #[must_use]
    pub fn dir_moves(&self) -> bool {
        self.dir_moves
    }

    /// Returns the slots of the `vfsmount_lock`; 0 if there is none.
    #[must_use]
    pub fn vfsmount_lock_slots(&self) -> usize {
        self.vfsmount_lock
    }

    /// Returns the slots of the `vfsmount_lock` if crossings of mounts take one.
    fn vfsmount_lock_without_rcu(&self) -> usize {
        if self.vfsmount_lock == 0 { self.slots } else { self.vfsmount_lock }
    }

    /// Returns the slots of the lock of a file that several CPUs use.
    #[must_use]
    pub fn file_lock_slots(&self) -> usize {
        self.file_lock
    }

    /// Returns the slots of a mount's counts of users and writers.
    #[must_use]
    pub fn mount_count_slots(&self) -> usize {
        self.mount_count
    }

    /// Returns the slots of a superblock's lists of open files.
    #[must_use]
    pub fn files_lock_slots(&self) -> usize {
        self.files_lock
    }

    /// Returns whether the lock of a bucket suffices to change a name.
    #[must_use]
    pub fn dcache_hash(&self) -> bool {
        self.dcache_hash
    }

    /// Returns the slots of a superblock's LRU lists of dentries.
    #[must_use]
    pub fn lru_slots(&self) -> usize {
        self.lru
    }

    /// Returns whether each CPU counts the dentries of a superblock.
    #[must_use]
    pub fn dentry_count(&self) -> bool {
        self.dentry_count
    }

    /// Returns whether changes of the inode hash need only the lock of a bucket, and lookups none.
    #[must_use]
    pub fn inode_hash(&self) -> bool {
        self.inode_hash
    }

    /// Returns whether inodes are on per-CPU lists, and only those that a list walk may need.
    #[must_use]
    pub fn inode_list(&self) -> bool {
        self.inode_list
    }

    /// Returns whether one `inode_lock` protects the inode hash, the list of inodes and the counter
    /// of their numbers, as in Linux 2.6: if the patches of all three are disabled.
    #[must_use]
    pub fn one_inode_lock(&self) -> bool {
        !self.inode_hash && !self.inode_list && self.ino_alloc == 1
    }

    /// Returns the slots of the counter of inode numbers.
    #[must_use]
    pub fn ino_alloc_slots(&self) -> usize {
        self.ino_alloc
    }

    /// Returns whether each CPU counts the inodes of a superblock.
    #[must_use]
    pub fn inode_count(&self) -> bool {
        self.inode_count
    }

    /// Returns whether pseudo files, which no path leads to, have no parent.
    #[must_use]
    pub fn pseudo(&self) -> bool {
        self.pseudo
    }

    /// Returns whether the fields of a volume's log that every commit reads share no cache line
    /// with fields that commits write.
    #[must_use]
    pub fn read_mostly(&self) -> bool {
        self.read_mostly
    }

    /// Returns the slots of a volume's count of active transactions.
    #[must_use]
    pub fn active_trans_slots(&self) -> usize {
        self.active_trans
    }

    /// Returns the slots of a volume's counts of space in the CIL.
    #[must_use]
    pub fn cil_counter_slots(&self) -> usize {
        self.cil_counters
    }

    /// Returns the slots of a volume's lists of committed items.
    #[must_use]
    pub fn cil_list_slots(&self) -> usize {
        self.cil_lists
    }

    /// Returns whether a volume has per-CPU lists of freed extents that are not yet logged.
    #[must_use]
    pub fn busy_extents(&self) -> bool {
        self.busy_extents
    }

    /// Returns the number of lists of a volume's dirty files.
    #[must_use]
    pub fn dirty_lists(&self) -> usize {
        self.dirty_list
    }

    /// Returns the slots of the lock of a volume's context of committed items.
    #[must_use]
    pub fn cil_context_slots(&self) -> usize {
        self.cil_context
    }

    /// Returns the slots that hold free log space of a volume in batches.
    #[must_use]
    pub fn log_space_slots(&self) -> usize {
        self.log_space
    }

    /// Returns the number of parts of a volume's count of orphans, and of queues of those that are
    /// to be freed; 0 for one with one lock, as before the patch.
    #[must_use]
    pub fn orphan_parts(&self) -> usize {
        if self.orphan { self.slots } else { 0 }
    }

    /// Returns the settings for an internal file system. Without the patch `pseudo`, one lock
    /// protects its dentries and one counter numbers its inodes.
    pub(crate) fn of_internal(self) -> Scaling {
        if self.pseudo { self } else { Scaling { dcache_hash: false, ino_alloc: 1, ..self } }
    }
}

#[cfg(test)]
mod tests;
