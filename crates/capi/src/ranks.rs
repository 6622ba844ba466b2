//! The classes of this crate's locks, below all others: a call takes them before any other lock.

use vfscale_sync::lock_class;

lock_class! {
    /// Additions to a table of handles, and removals.
    pub(crate) HandleChanges = ("capi_changes", 2);
}
lock_class! {
    /// The copy of a table of handles that one CPU reads.
    pub(crate) HandleTable = ("capi_handles", 4);
}
lock_class! {
    /// The tree or volume of a handle, held while the volume is synced.
    pub(crate) TreeLock = ("capi_tree", 6) sleeping;
}
lock_class! {
    /// The position of a directory stream, and the entries that it has read ahead.
    pub(crate) DirStreamLock = ("capi_dir", 8) sleeping;
}
lock_class! {
    /// The numbers of a watcher's watches.
    pub(crate) WatchNumbers = ("capi_watches", 9);
}
lock_class! {
    /// The differences of two branches that a program has not taken yet.
    pub(crate) DiffLock = ("capi_diff", 10);
}
