//! One step of a log, and what it is about.

use std::path::Path;

use vfscale_fuse::recording::{Change, Name, Object};

/// A step of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A change of the file system, or a sync.
    Change(Change),
    /// Bytes that the program has written to its standard output.
    Said(Vec<u8>),
}

/// The steps that a power cut treats alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A change of names.
    Name,
    /// A change of an inode: attributes, length, allocation.
    Inode,
    /// Data.
    Data,
    /// A sync, an output, or an object without a name: nothing that can be lost.
    Mark,
}

impl Event {
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Event::Change(change) => match change {
                Change::Made { at: Some(_), .. }
                | Change::Linked { .. }
                | Change::Removed { .. }
                | Change::Renamed { .. } => Kind::Name,
                Change::Resized { .. }
                | Change::Allocated { .. }
                | Change::Attributes { .. }
                | Change::Xattr { .. } => Kind::Inode,
                Change::Written { .. } => Kind::Data,
                _ => Kind::Mark,
            },
            Event::Said(_) => Kind::Mark,
        }
    }

    /// Returns the object that it changes or syncs, or whose name it changes.
    pub(crate) fn object(&self) -> Option<Object> {
        match self {
            Event::Change(
                Change::Made { object, .. }
                | Change::Linked { object, .. }
                | Change::Removed { object, .. }
                | Change::Renamed { object, .. }
                | Change::Written { object, .. }
                | Change::Resized { object, .. }
                | Change::Allocated { object, .. }
                | Change::Attributes { object, .. }
                | Change::Xattr { object, .. }
                | Change::Synced { object, .. },
            ) => Some(*object),
            _ => None,
        }
    }

    /// Returns the names that it changes.
    pub(crate) fn names(&self) -> Vec<&Name> {
        match self {
            Event::Change(
                Change::Made { at: Some(at), .. }
                | Change::Linked { at, .. }
                | Change::Removed { at, .. },
            ) => vec![at],
            Event::Change(Change::Renamed { from, to, .. }) => vec![from, to],
            _ => Vec::new(),
        }
    }

    /// Returns whether a sync of `object` concerns it.
    pub(crate) fn touches(&self, object: Object) -> bool {
        self.object() == Some(object) || self.names().iter().any(|name| name.dir == object)
    }

    /// Returns the path of the file that it changes or syncs.
    pub(crate) fn path(&self) -> Option<&Path> {
        match self {
            Event::Change(
                Change::Written { path, .. }
                | Change::Resized { path, .. }
                | Change::Allocated { path, .. }
                | Change::Attributes { path, .. }
                | Change::Xattr { path, .. }
                | Change::Synced { path, .. },
            ) => Some(path),
            _ => self.names().first().map(|name| name.path.as_path()),
        }
    }

    /// Returns whether it changes the data of a file, or their length.
    pub(crate) fn is_about_data(&self) -> bool {
        matches!(
            self,
            Event::Change(
                Change::Written { .. } | Change::Resized { .. } | Change::Allocated { .. }
            )
        )
    }
}
