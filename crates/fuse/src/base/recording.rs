//! The changes of a mount, told in their order.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use vfscale::Timestamp;

/// An object of the file system, also after its number is used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Object {
    /// The inode number.
    pub ino: u64,
    /// The number of earlier uses of that number.
    pub generation: u32,
}

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name {
    /// The directory.
    pub dir: Object,
    /// The name there.
    pub name: OsString,
    /// The whole path at that time.
    pub path: PathBuf,
}

/// Permissions, owner and times of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Type and permission bits, as in `st_mode`.
    pub mode: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The time of the last change of the data.
    pub mtime: Timestamp,
}

/// A change that a call through a mount has made, or the promise that changes are durable.
///
/// Paths are those of the moment, from the root of the file system.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// A new object, with its first name, if it has one (`O_TMPFILE`).
    Made {
        /// The object.
        object: Object,
        /// Its name.
        at: Option<Name>,
        /// The attributes that it was made with.
        attributes: Attributes,
        /// The number of a device.
        rdev: u64,
        /// The target of a symbolic link.
        target: PathBuf,
        /// The extended attributes that it was made with.
        xattrs: Vec<(OsString, Vec<u8>)>,
    },
    /// A further name.
    Linked {
        /// The object.
        object: Object,
        /// The name.
        at: Name,
    },
    /// A name that went.
    Removed {
        /// The object that had it.
        object: Object,
        /// The name.
        at: Name,
    },
    /// A name that was moved.
    Renamed {
        /// The object that has moved.
        object: Object,
        /// The former name.
        from: Name,
        /// The new name.
        to: Name,
        /// The object that had the new name.
        replaced: Option<Object>,
        /// Whether that has the former name now.
        exchanged: bool,
    },
    /// Data that were written.
    Written {
        /// The file.
        object: Object,
        /// Its path.
        path: PathBuf,
        /// The offset of the data, in bytes.
        offset: u64,
        /// The bytes that the file has there now.
        data: Vec<u8>,
        /// The length of the file before, in bytes.
        size: u64,
        /// The time of the change.
        mtime: Timestamp,
    },
    /// A new length.
    Resized {
        /// The file.
        object: Object,
        /// Its path.
        path: PathBuf,
        /// The new length, in bytes.
        size: u64,
        /// The former length, in bytes.
        former: u64,
        /// The time of the change.
        mtime: Timestamp,
    },
    /// Space that was allocated or given back (`fallocate`).
    Allocated {
        /// The file.
        object: Object,
        /// Its path.
        path: PathBuf,
        /// The flags of the call.
        mode: u32,
        /// The offset, in bytes.
        offset: u64,
        /// The length, in bytes.
        length: u64,
        /// The time of the change.
        mtime: Timestamp,
    },
    /// Permissions, owner or times.
    Attributes {
        /// The object.
        object: Object,
        /// Its path.
        path: PathBuf,
        /// The ones that it has now.
        attributes: Attributes,
    },
    /// An extended attribute, or an access control list, with which the permissions may change.
    Xattr {
        /// The object.
        object: Object,
        /// Its path.
        path: PathBuf,
        /// The name of the attribute.
        name: OsString,
        /// Its value; `None` if it was removed.
        value: Option<Vec<u8>>,
        /// The attributes that the object has now.
        attributes: Attributes,
    },
    /// A file or directory that was synced (`fsync`).
    Synced {
        /// The object.
        object: Object,
        /// Its path.
        path: PathBuf,
        /// Whether the call was `fdatasync`.
        data_only: bool,
    },
}

/// Listens to the changes of a mount.
pub trait Recorder: Send + Sync {
    /// Takes the next change. The call that has made it returns afterwards, and no other call
    /// changes anything meanwhile.
    fn record(&self, change: Change);
}

/// The recording of one mount.
pub(crate) struct Recording {
    pub(crate) recorder: Arc<dyn Recorder>,
    /// Held while a request changes something.
    pub(crate) turn: Mutex<()>,
}

impl Recording {
    pub(crate) fn new(recorder: Arc<dyn Recorder>) -> Self {
        Self { recorder, turn: Mutex::new(()) }
    }
}
