//! The driver traits: the operations that a file system provides to the VFS.
//!
//! The VFS walks paths, checks permissions, and maintains names, link counts and times. It calls
//! the driver for the memory or disk space of an inode, and for its data.
//!
//! | trait | counterpart in Linux | implemented by |
//! | --- | --- | --- |
//! | [`FileSystem`] | `struct super_operations` | every driver |
//! | [`FileOps`] | `struct file_operations`, `setattr` and `get_link` of `struct inode_operations` | every driver |
//! | [`DirOps`] | the rest of `struct inode_operations`, `iterate_shared` | backed drivers |
//! | [`NameAccounting`] | none: a `libfs` file system counts in its own operations | drivers without [`DirOps`] |
//!
//! # Two kinds of drivers
//!
//! [`FileSystem::names`] says which kind a driver is.
//!
//! A driver **without** [`DirOps`] is like the ramfs of Linux. The children table of a directory in
//! the dcache *is* the directory, and a name pins its dentry. The VFS reports each name that it
//! makes or removes to the driver ([`NameAccounting`]), which can charge it.
//!
//! A **backed** driver has [`DirOps`]: it stores directories itself, and the dcache is a cache of
//! them. It looks up the names that the dcache does not hold, and the VFS drops unused dentries
//! when the cache grows too large
//! ([`SuperBlock::set_cache_limit`](crate::super_block::SuperBlock::set_cache_limit)). If
//! directories can be changed ([`DirOps::is_writable`]), the VFS makes all checks of a call, locks
//! the name, calls the driver, and then changes the dcache. A backed driver maintains link counts
//! and the times of directories, because it stores them with the change.
//!
//! # Locks that the VFS holds
//!
//! For drivers without [`DirOps`]:
//!
//! | call | held |
//! | --- | --- |
//! | `create`, `link`, `renamed`, `unlinked` | the bucket lock of the name; no inode lock |
//! | `charge`, `uncharge` | the bucket lock of the name, or the inode's lock |
//! | `write_at`, `set_size`, `fallocate` | the inode's lock, exclusively |
//! | `overwrite` | the inode's lock, shared; an RCU section |
//! | `read_at`, `seek_data`, `seek_hole`, `get_link` | nothing; they run concurrently with the calls above |
//!
//! For backed drivers, all of whose calls may wait for a disk unless the table states otherwise:
//!
//! | call | held |
//! | --- | --- |
//! | `DirOps::lookup` | the name, so no other thread looks it up or changes it |
//! | `DirOps::{create, link, unlink, rmdir}` | the name, and write access to the mount |
//! | `DirOps::rename` | both names, write access to the mount; if a directory moves to another one, the lock of all such moves in the file system |
//! | `DirOps::create_unnamed` | write access to the mount |
//! | `DirOps::{read_dir, inode, parent}` | nothing |
//! | `DirOps::is_current`, `get_link` | an RCU section: must not block |
//! | `set_attr`, `write_at`, `set_size`, `fallocate` | the inode's lock, exclusively; write access to the mount or a file that is open for writing |
//! | `seek_data`, `seek_hole` | the inode's lock, shared |
//! | `read_at`, `sync` | no lock of an inode |
//! | `dirtied` | any lock: must not block |
//!
//! A call on a file with a position (`read`, `write`, `seek`) also holds the lock of that position.
//! "The name" is no lock of a class but an entry in a table of names (`in_lookup`). A driver need
//! not consider it, but must not walk paths of its own file system.
//!
//! For all drivers:
//!
//! | call | held |
//! | --- | --- |
//! | `evict` | any lock, an RCU section: must not block. No other thread can reach the inode |
//! | dropping the private part of an inode | an RCU section: must not block |
//! | `unmounted` | no lock; possibly an RCU section: must not wait for a grace period |
//! | `put_super`, and dropping the driver | an RCU section: must not block |
//! | `fill_super`, `sync_fs`, `grow_fs`, `trim_fs`, `reclaim`, `storage_counts`, `text` | nothing |
//!
//! Calls that get a [`Guard`](vfscale_sync::rcu::Guard) run inside an RCU section and must not
//! block for long.

pub use vfscale_sync::errseq::{ErrorCursor, ErrorSeq};
pub use vfscale_sync::fork;

use crate::base::types::{InodeFlags, Timestamp};

mod accounting;
mod dir_ops;
mod file_ops;
mod file_system;
mod storage;

pub use accounting::NameAccounting;
pub(crate) use accounting::NoAccounting;
pub use dir_ops::{DirEntry, DirOps, Found, ParentName, Rename};
pub use file_ops::{FileOps, OVERWRITE_MAX};
pub use file_system::{FileSystem, Names, Reclaimed};
pub use storage::{CacheCounts, LogCounts, StorageCounts};

/// Binary logarithm of the number of buckets that a new directory has on several CPUs: two of its
/// names share a cache line once in 16 times.
pub(crate) const FIRST_TABLE_BITS: u32 = 4;

/// Maximum memory of the children table of a new directory, in bytes.
pub const FIRST_TABLE_BYTES: usize = 64 << FIRST_TABLE_BITS;

/// The attributes of an inode that a driver is to make.
#[derive(Clone, Copy, Debug)]
pub struct NewInode<'a> {
    /// Type and permission bits, after the umask and the default ACL.
    pub mode: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The device number of a device node.
    pub rdev: u64,
    /// The target of a symbolic link; `None` for other files.
    pub target: Option<&'a [u8]>,
    /// The flags that it gets from its directory. A driver without [`DirOps`] need not store them:
    /// the VFS holds them.
    pub flags: InodeFlags,
    /// The length of its first name in bytes; 0 for a file without a name (`O_TMPFILE`).
    pub name_len: usize,
    /// Its first extended attributes, with access control lists in the form in which `getxattr`
    /// returns them. Empty for drivers without [`DirOps`], whose extended attributes the VFS holds.
    pub xattrs: &'a [XattrPair],
}

/// Name and value of an extended attribute, or of an access control list in the form of one
/// (`system.posix_acl_access`).
pub type XattrPair = (Box<[u8]>, Box<[u8]>);

/// A change of attributes that a driver applies as a whole or not at all.
#[derive(Clone, Copy, Debug, Default)]
pub struct AttrChange<'a> {
    /// Type and permission bits.
    pub mode: Option<u32>,
    /// The owner.
    pub uid: Option<u32>,
    /// The group.
    pub gid: Option<u32>,
    /// The time of last access.
    pub atime: Option<Timestamp>,
    /// The time of the last change of the data.
    pub mtime: Option<Timestamp>,
    /// The time of this change.
    pub ctime: Option<Timestamp>,
    /// The inode flags; only such as the driver [stores](FileOps::inode_flags).
    pub flags: Option<InodeFlags>,
    /// Extended attributes and access control lists to set or remove. Each name occurs once; a name
    /// to remove need not exist.
    pub xattrs: &'a [XattrChange<'a>],
}

/// A change of one extended attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XattrChange<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// Its new value; `None` removes it.
    pub value: Option<&'a [u8]>,
}
