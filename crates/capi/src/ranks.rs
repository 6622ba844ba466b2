//! The classes of this crate's locks, below all others: a call takes them before any other lock.

use vfscale_sync::lock_class;

lock_class! {
    /// Additions to a table of handles, and removals.
    pub(crate) HandleChanges = ("capi_changes", 2);
    /// The copy of a table of handles that one CPU reads.
    pub(crate) HandleTable = ("capi_handles", 4);
    /// The tree or volume of a handle, held while the volume is synced.
    pub(crate) TreeLock = ("capi_tree", 6) sleeping;
    /// The position of a directory stream, and the entries that it has read ahead.
    pub(crate) DirStreamLock = ("capi_dir", 8) sleeping;
    /// The numbers of a watcher's watches.
    pub(crate) WatchNumbers = ("capi_watches", 9);
    /// The differences of two branches that a program has not taken yet.
    pub(crate) DiffLock = ("capi_diff", 10);
}
