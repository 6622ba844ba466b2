//! Whether a mount shares its file system with the library.

use std::time::Duration;

/// The users that change the file system while it is mounted. Decides how much the kernel may
/// cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Only users of the mount.
    ///
    /// The kernel caches names, attributes and data without a time limit, opens and closes files
    /// without a message, and manages file locks itself. Users of the mount would not see changes
    /// made through the library.
    Exclusive,
    /// Users of the mount, and this program through the library.
    ///
    /// Files are opened and locked in the library, so both sides see each other's open files and
    /// locks.
    Shared {
        /// Time for which the kernel may cache names and attributes. With zero the kernel requests
        /// them each time, and each side sees the other's changes immediately. Otherwise the mount
        /// shows changes made through the library after this time, or after
        /// [`Mounted::invalidate`](crate::Mounted::invalidate).
        cache: Duration,
    },
}
