//! The scaling settings: the number of shards of each structure, and the state before each patch.
//!
//! # Purpose
//!
//! Every scaled structure gets its number of slots (shards) when it is made; the few patches that
//! do not concern slots are a boolean. A [`Scaling`] holds all of them. Its default follows the
//! machine. [`Scaling::before`] disables one patch, so one binary compares before and after.
//! Settings combine: [`Scaling::and_before`].
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

use crate::cpu;

/// Declares the settings, each with the documentation of its getter, and its value with all patches
/// on `slots` CPUs.
macro_rules! settings {
    (
        $slots:ident: $(#[$of:meta])* $all:ident;
        $($(#[doc = $doc:literal])+ $name:ident: $kind:ty = $value:expr;)+
    ) => {
        $(#[$of])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $all {
            slots: usize,
            $($name: $kind,)+
        }

        impl $all {
            /// Returns the settings with all patches, for `slots` CPUs (at least one) instead of
            /// those that the process may use.
            pub fn with_slots(slots: usize) -> $all {
                let $slots = slots.max(1);
                $all { slots: $slots, $($name: $value,)+ }
            }

            $(
                $(#[doc = $doc])+
                #[inline]
                pub fn $name(&self) -> $kind {
                    self.$name
                }
            )+
        }
    };
}

settings! {
    slots:
    /// The scaling settings of a tree. `Default` follows the CPUs that the process may use
    /// ([`cpu::slots`]).
    ///
    /// ```
    /// use vfscale_sync::scaling::Scaling;
    ///
    /// let scaling = Scaling::before("lockref")?.and_before("mount-count")?;
    /// assert_eq!(scaling, Scaling::before("mount-count")?.and_before("lockref")?);
    /// assert_eq!((scaling.lockref(), scaling.mount_count_slots()), (false, 1));
    /// assert!(Scaling::before("magic").unwrap_err().to_string().contains("lockref"));
    /// # Ok::<(), vfscale_sync::scaling::ScalingError>(())
    /// ```
    Scaling;

    /// Returns whether a dentry's count changes by compare-and-exchange.
    lockref: bool = true;
    /// Returns the number of parts into which a dentry's count is sharded when it is hot; 1 if it
    /// never is.
    lockref_parts: usize = slots;
    /// Returns whether readers of `rename_lock` share it when they block.
    seqrwlock: bool = true;
    /// Returns whether readers of a path retry before they block.
    path_retry: bool = true;
    /// Returns whether directories move concurrently.
    dir_moves: bool = true;
    /// Returns the slots of the `vfsmount_lock`; 0 if there is none.
    vfsmount_lock_slots: usize = 0;
    /// Returns the slots of the lock of a file that several CPUs use.
    file_lock_slots: usize = slots;
    /// Returns the slots of a mount's counts of users and writers.
    mount_count_slots: usize = slots;
    /// Returns the slots of a superblock's lists of open files.
    files_lock_slots: usize = slots;
    /// Returns whether the lock of a bucket suffices to change a name.
    dcache_hash: bool = true;
    /// Returns the slots of a superblock's LRU lists of dentries.
    lru_slots: usize = slots;
    /// Returns whether each CPU counts the dentries of a superblock.
    dentry_count: bool = true;
    /// Returns whether changes of the inode hash need only the lock of a bucket, and lookups none.
    inode_hash: bool = true;
    /// Returns whether inodes are on per-CPU lists, and only those that a list walk may need.
    inode_list: bool = true;
    /// Returns the slots of the counter of inode numbers.
    ino_alloc_slots: usize = slots;
    /// Returns whether each CPU counts the inodes of a superblock.
    inode_count: bool = true;
    /// Returns whether pseudo files, which no path leads to, have no parent.
    pseudo: bool = true;
    /// Returns whether the fields of a volume's log that every commit reads share no cache line
    /// with fields that commits write.
    read_mostly: bool = true;
    /// Returns the slots of a volume's count of active transactions.
    active_trans_slots: usize = slots;
    /// Returns the slots of a volume's counts of space in the CIL.
    cil_counter_slots: usize = slots;
    /// Returns the slots of a volume's lists of committed items.
    cil_list_slots: usize = slots;
    /// Returns whether a volume has per-CPU lists of freed extents that are not yet logged.
    busy_extents: bool = true;
    /// Returns the number of lists of a volume's dirty files.
    dirty_lists: usize = slots;
    /// Returns the slots of the lock of a volume's context of committed items.
    cil_context_slots: usize = slots;
    /// Returns the slots that hold free log space of a volume in batches.
    log_space_slots: usize = slots;
    /// Returns the number of parts of a volume's count of orphans, and of queues of those that are
    /// to be freed; 0 for one with one lock, as before the patch.
    orphan_parts: usize = slots;
}

/// A patch of the source documents (`docs/REFERENCES.md`) that [`Scaling`] can disable.
///
/// ```
/// for patch in vfscale_sync::scaling::PATCHES {
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

/// Declares the patches: what each concerns, its name, its source, a line on the state without
/// it, and the settings of that state.
macro_rules! patches {
    (@of_volumes trees) => { false };
    (@of_volumes volumes) => { true };
    ($($of:ident $name:literal, $source:literal, $summary:literal: $disable:expr;)+) => {
        /// The patches that can be disabled, in the order of the documentation.
        pub const PATCHES: &[Patch] = &[$(Patch {
            name: $name,
            source: $source,
            summary: $summary,
            of_volumes: patches!(@of_volumes $of),
            disable: $disable,
        },)+];
    };
}

patches! {
    trees "lockref", "Long 2013",
        "a dentry's count changes only under its lock (d_lock), never by cmpxchg":
        |s| (s.lockref, s.lockref_parts) = (false, 1);
    trees "seqrwlock", "Long 2013",
        "a path is read under the writer's side of rename_lock, one at a time":
        |s| (s.seqrwlock, s.path_retry) = (false, false);
    trees "brlock", "Piggin 2009",
        "every crossing of a mount takes one vfsmount_lock": |s| s.vfsmount_lock_slots = 1;
    trees "mount-count", "Piggin 2009",
        "one counter of users and one of writers for each mount": |s| s.mount_count_slots = 1;
    trees "files-lock", "Piggin 2009",
        "one list of open files, with one files_lock, for the file system":
        |s| s.files_lock_slots = 1;
    trees "dcache-hash", "Piggin 2009",
        "names are made, removed and renamed under one dcache_lock": |s| s.dcache_hash = false;
    trees "lru", "Piggin 2009",
        "one list, with one dcache_lru_lock, of the dentries that can be dropped":
        |s| s.lru_slots = 1;
    trees "dentry-count", "Piggin 2009",
        "one counter of the dentries of a file system": |s| s.dentry_count = false;
    trees "inode-hash", "Piggin 2009",
        "finding, entering and removing an inode by number takes one inode_lock":
        |s| s.inode_hash = false;
    trees "inode-list", "Piggin 2009",
        "every inode is on its superblock's one list, under one inode_sb_list_lock":
        |s| s.inode_list = false;
    trees "ino-alloc", "Piggin 2009",
        "all CPUs take inode numbers from one counter": |s| s.ino_alloc_slots = 1;
    trees "inode-count", "Piggin 2009",
        "one counter of the inodes of a file system": |s| s.inode_count = false;
    trees "pseudo", "Piggin 2009",
        "pipes and the like hang below one root, numbered by one counter": |s| s.pseudo = false;
    volumes "read-mostly", "Chinner 2020",
        "what every commit reads of the log lies on lines that commits write":
        |s| s.read_mostly = false;
    volumes "active-trans", "Chinner 2020",
        "one counter of the transactions that are under way": |s| s.active_trans_slots = 1;
    volumes "cil-counters", "Chinner 2020",
        "one counter of the space in the CIL, one of what is reserved for it":
        |s| s.cil_counter_slots = 1;
    volumes "cil-lists", "Chinner 2020",
        "one list, with one lock, of what has been committed and not yet logged":
        |s| s.cil_list_slots = 1;
    volumes "busy-extents", "Chinner 2020",
        "one list, with one lock, of what was freed and not yet logged": |s| s.busy_extents = false;
    volumes "orphan", "Kara 2014",
        "one count of orphans; its lock is held to ask, and while disk changes":
        |s| s.orphan_parts = 0;
    trees "lockref-spread", "beyond Long 2013",
        "a dentry's count is one word, also where all CPUs open the file": |s| s.lockref_parts = 1;
    trees "path-retry", "beyond Long 2013",
        "a path is read under the reader's side of rename_lock": |s| s.path_retry = false;
    trees "dir-moves", "beyond Long 2013",
        "directories move one at a time, on the writer's side of rename_lock":
        |s| s.dir_moves = false;
    trees "mount-rcu", "beyond Piggin 2009",
        "crossing a mount takes the CPU's part of vfsmount_lock":
        |s| s.vfsmount_lock_slots = s.vfsmount_lock_without_rcu();
    trees "file-lock", "beyond Piggin 2009",
        "the lock of a file that several CPUs overwrite is one word": |s| s.file_lock_slots = 1;
    volumes "dirty-list", "beyond Piggin 2009",
        "one list, with one lock, of the files that are to be written back": |s| s.dirty_lists = 1;
    volumes "cil-context", "beyond Chinner 2020",
        "every commit writes the word of one xc_ctx_lock": |s| s.cil_context_slots = 1;
    volumes "log-space", "beyond Chinner 2020",
        "every transaction takes log space from one grant head": |s| s.log_space_slots = 1;
}

impl Patch {
    /// Returns the name that [`Scaling::before`] takes.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns author and year of the document that describes the patch, as `docs/REFERENCES.md`
    /// cites it, or of the one that it [goes beyond](Self::goes_beyond), after "beyond".
    pub fn source(&self) -> &'static str {
        self.source
    }

    /// Returns whether the patch concerns volumes only, not file systems in memory.
    pub fn is_of_volumes(&self) -> bool {
        self.of_volumes
    }

    /// Returns whether no document has it: it goes beyond the patch of one, which stays in force
    /// when this is disabled.
    pub fn goes_beyond(&self) -> bool {
        self.source.starts_with("beyond ")
    }

    /// Returns a line on what the file system does without the patch.
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
/// let error = vfscale_sync::scaling::Scaling::before("no-such-patch").unwrap_err();
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
    pub fn kernel_2_6() -> Scaling {
        let mut scaling = Scaling::default();
        for patch in PATCHES {
            (patch.disable)(&mut scaling);
        }
        scaling
    }

    /// Sets the slots of the `vfsmount_lock`. A crossing of a mount takes the slot of its CPU: the
    /// brlock of Piggin 2009. With 0, the default, crossings take no lock, because RCU and the
    /// sequence count of the mount tree suffice without a write.
    #[must_use]
    pub fn with_vfsmount_lock(self, slots: usize) -> Scaling {
        Scaling { vfsmount_lock_slots: slots, ..self }
    }

    /// Sets the parts of a volume's count of orphans, and the queues of those that are to be freed.
    #[must_use]
    pub fn with_orphan_parts(self, parts: usize) -> Scaling {
        Scaling { orphan_parts: parts, ..self }
    }

    /// Returns the slots of structures that no patch concerns: caches of memory, counts of space.
    #[inline]
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Returns the slots of the `vfsmount_lock` if crossings of mounts take one.
    fn vfsmount_lock_without_rcu(&self) -> usize {
        if self.vfsmount_lock_slots == 0 { self.slots } else { self.vfsmount_lock_slots }
    }

    /// Returns whether one `inode_lock` protects the inode hash, the list of inodes and the counter
    /// of their numbers, as in Linux 2.6: if the patches of all three are disabled.
    #[inline]
    pub fn one_inode_lock(&self) -> bool {
        !self.inode_hash && !self.inode_list && self.ino_alloc_slots == 1
    }

    /// Returns the settings for an internal file system. Without the patch `pseudo`, one lock
    /// protects its dentries and one counter numbers its inodes.
    #[must_use]
    pub fn of_internal(self) -> Scaling {
        if self.pseudo { self } else { Scaling { dcache_hash: false, ino_alloc_slots: 1, ..self } }
    }
}

#[cfg(test)]
mod tests;
