//! Mounts on which changes are durable when their calls return.

/// The changes that are durable when their calls return, as with the options `sync` and `dirsync`
/// of `mount(8)`.
///
/// A file system in memory ([`volatile`](crate::Builder::volatile)) ignores it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Syncing {
    /// None: a program that needs that calls `fsync`.
    #[default]
    OnRequest,
    /// Changes of names (`dirsync`): files and directories that are made, linked, renamed, removed.
    Names,
    /// All (`sync`): names, data and attributes. Writes to mappings become durable by `msync`.
    All,
}
