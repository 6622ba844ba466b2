//! The virtual file system: path walk, dentries, inodes, mounts, open files, tasks.
//!
//! Everything above the drivers and below the public face. It knows names and permissions, references
//! and mounts; what a file contains and where its memory comes from is a driver's business
//! ([`driver::FileSystem`]).
//!
//! # The pieces
//!
//! | module | what |
//! | --- | --- |
//! | [`task`], [`cred`], [`maps`] | who calls, from where, with which rights, and what it has mapped |
//! | `namei` | path walks, under RCU first and with references when that fails |
//! | `lookup`, `lru` | names that a driver is asked for, and that are dropped again |
//! | `dentry`, `hot` | names and the tree they form; children tables, counts; whose counts are spread |
//! | [`inode`], [`super_block`], `super_ref`, `take_down` | what a file is; the memory of one mounted file system, who keeps it, and how it ends |
//! | `mount`, [`namespace`], `mountinfo` | the mount tree, per-CPU counts of uses and writers, what is mounted where |
//! | [`mod@file`], `position`, [`file_list`], `descriptors` | open files, their positions, the lists they are on, the numbers they go by |
//! | `pipe`, `socket`, `stream`, `pseudo`, `seals` | files without positions, and files that no path leads to |
//! | `open`, `create`, `remove`, `rename`, `attr`, ... | the calls, one file for each kind |
//! | [`scaling`], [`lockstat`], [`cpu`] | how many slots everything has, what it was like before, what locks cost, and who uses which slot |
//! | [`acl`], [`xattr`], [`locks`] | access control lists, extended attributes, advisory locks |
//! | [`limits`] | what a tree may take beside the data of its files |
//!
//! # Lock order
//!
//! [`ranks`] lists every lock class with its rank; a thread takes locks only in rising rank, which debug
//! builds check. A dentry's own lock (in its count) is below all of them and is held for a few
//! instructions. RCU sections are entered before any lock is taken.
//!
//! # Who holds what
//!
//! A file, a working directory and a root hold a dentry and a use of its mount, a dentry holds its
//! inode, a mount holds its superblock and root dentry, a superblock owns the memory of its dentries and
//! inodes. RCU walks hold nothing: what they see stays in memory until their section ends.

mod base;
mod file;
pub mod locks;
mod mount;
mod namei;
#[cfg(test)]
mod names_only_tests;
mod objects;
mod pseudo;
#[cfg(all(test, not(any(loom, shuttle))))]
mod section_tests;
mod security;
mod syscalls;
mod task;

pub use base::{cpu, limits, lock_classes as ranks, lockstat, scaling, types};
pub use file::file_list;
pub use mount::namespace;
pub use objects::{driver, inode, super_block};
pub use security::{acl, cred, xattr};
pub use task::mmap_table as maps;

pub use base::error::{Errno, Error, Result};
pub use base::limits::{Limits, Usage};
pub use base::scaling::{PATCHES, Patch, Scaling, ScalingError};
pub use base::types::*;
pub use file::fd_table::{Fd, OPEN_MAX};
pub use file::file_list::{FileList, OpenFileInfo};
pub use file::open_file::File;
pub use file::readdir::{DirEntry, DirEntryBuf, ReadDir};
pub use locks::{Acquire, LockKind, LockRange, Owner, PendingLock, RecordLock, WaitToken};
pub use mount::mountinfo::MountInfo;
pub use mount::namespace::{Counts, Users, Vfs, WeakVfs};
pub use namei::walk::{PATH_MAX, SYMLINKS_MAX};
pub use objects::dcache::dentry::NAME_MAX;
pub use objects::dcache::lru::CACHE_LIMIT_DEFAULT;
pub use objects::driver::{
    AttrChange, Directories, FileSystem, Found, ParentName, Rename, XattrChange, XattrPair,
};
pub use pseudo::memfd_seals::SealFlags;
pub use pseudo::pipe::PIPE_BUF;
pub use pseudo::pseudo_fs::MemfdFlags;
pub use pseudo::socket::SocketType;
pub use security::cred::Credentials;
pub use syscalls::handle::FileHandle;
pub use syscalls::std_like::{OpenOptions, WalkDir, WalkEntry};
pub use task::task_struct::{At, Task};
