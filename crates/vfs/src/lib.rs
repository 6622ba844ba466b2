//! The virtual file system: path walk, dentries, inodes, mounts, open files, tasks.
//!
//! The layers above the drivers and below the public API: names and permissions, references and
//! mounts. The contents of files and their memory are the business of a driver
//! ([`driver::FileSystem`]).
//!
//! # The rooms
//!
//! Folders import downward only, from the top of this table to its end. Files do not import each
//! other in a circle, except for the objects: an inode belongs to a super block, which lists its
//! dentries, mounts and open files.
//!
//! | folder | contents |
//! | --- | --- |
//! | `std_like` | the methods with names of `std::fs` |
//! | `syscalls` | Linux's calls of a task ([`Calls`]), a file for each family |
//! | `task` | tasks ([`Task`]) |
//! | `namei` | path walks, under RCU first and with references if that fails; lookups that a driver answers |
//! | `file` | handles on open files ([`File`]) and their calls, descriptors, [`file_list`], directory streams |
//! | `mount` | the topology of mounts, their propagation, [`namespace`], paths seen through mounts |
//! | `objects` | the [`driver`] traits, [`super_block`], [`inode`], dentries and their caches, mounts, open file descriptions, the take-down |
//! | `ipc` | pipes and sockets |
//! | [`locks`] | advisory locks, and the wait queues of all calls that wait |
//! | `security` | credentials ([`cred`]), [`acl`], names of extended attributes ([`xattr`]) |
//! | `base` | errors, types, clocks, [`limits`], lock classes ([`ranks`]), [`scaling`], [`lockstat`], [`cpu`] |
//!
//! # Lock order
//!
//! [`ranks`] lists every lock class with its rank; a thread takes locks only in rising rank, which
//! debug builds check. A dentry's own lock (in its count) is below all of them and is held for a
//! few instructions. RCU sections are entered before any lock is taken.
//!
//! # References
//!
//! A file, a working directory and a root hold a dentry and a use of its mount, a dentry holds its
//! inode, a mount holds its superblock and root dentry, a superblock owns the memory of its
//! dentries and inodes. RCU walks hold nothing: what they see stays in memory until their section
//! ends.

mod base;
mod file;
mod ipc;
pub mod locks;
mod mount;
mod namei;
#[cfg(test)]
mod names_only_tests;
mod objects;
#[cfg(all(test, not(any(loom, shuttle))))]
mod section_tests;
mod security;
mod std_like;
mod syscalls;
mod task;

pub use base::{cpu, limits, lock_classes as ranks, lockstat, types};
pub use file::file_list;
pub use mount::namespace;
pub use objects::{driver, inode, super_block};
pub use security::{acl, cred, xattr};
pub use vfscale_sync::scaling;

pub use base::error::{Errno, Error, Result};
pub use base::escaped::Escaped;
pub use base::limits::{Limits, Usage};
pub use base::types::*;
pub use file::fd_table::{Fd, OPEN_MAX};
pub use file::file_list::{FileList, OpenFileInfo};
pub use file::open_file::File;
pub use file::readdir::{DirEntryBuf, Dirents};
pub use ipc::pipe::PIPE_BUF;
pub use ipc::socket::SocketType;
pub use locks::{Acquire, LockKind, LockRange, Owner, PendingLock, RecordLock, WaitToken};
pub use mount::mountinfo::MountInfo;
pub use mount::namespace::{Counts, Users, Vfs, WeakVfs};
pub use mount::pseudo_fs::MemfdFlags;
pub use namei::walk::{PATH_MAX, SYMLINKS_MAX};
pub use objects::dcache::lru::CACHE_LIMIT_DEFAULT;
pub use objects::dcache::name::NAME_MAX;

pub use objects::driver::{
    AttrChange, DirOps, FileOps, FileSystem, Found, NameAccounting, Names, ParentName, Reclaimed,
    Rename, XattrChange, XattrPair,
};
pub use objects::driver::{CacheCounts, LogCounts, StorageCounts};
pub use objects::fsnotify::queue::{FileChange, WatchEvent, WatchId};
pub use objects::seals::SealFlags;
pub use security::cred::Credentials;
pub use std_like::file::TryLockError;
pub use std_like::metadata::Metadata;
pub use std_like::options::{DirBuilder, OpenOptions};
pub use std_like::read_dir::{DirEntry, ReadDir};
pub use std_like::replace::{Durability, TempFile};
pub use std_like::task::Space;
pub use std_like::walk_dir::{WalkDir, WalkEntry};
pub use syscalls::handle::FileHandle;
pub use syscalls::posix::Calls;
pub use syscalls::watcher::Watcher;
pub use task::task_struct::{At, Task};
pub use vfscale_sync::scaling::{PATCHES, Patch, Scaling, ScalingError};
