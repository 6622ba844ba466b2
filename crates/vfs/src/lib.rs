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

pub mod acl;
mod alias;
mod attr;
mod attr_plan;
mod change;
mod convenience;
pub mod cpu;
mod create;
pub mod cred;
mod d_path;
mod dentry;
mod descriptors;
pub mod driver;
mod error;
mod fd_calls;
pub mod file;
pub mod file_list;
mod file_sync;
mod file_write;
mod graft;
mod handle;
mod hot;
mod icache;
pub mod inode;
mod kept;
mod key_locks;
pub mod limits;
mod link_calls;
mod lock_calls;
pub mod locks;
pub mod lockstat;
mod lookup;
mod lru;
pub mod maps;
mod mount;
mod mount_calls;
mod mount_flags;
mod mount_tree;
mod mountinfo;
mod name;
mod namei;
#[cfg(test)]
mod names_only_tests;
pub mod namespace;
mod open;
mod overwrite;
mod pipe;
mod position;
mod propagation;
mod prune;
mod pseudo;
pub mod ranks;
mod readdir;
mod remove;
mod rename;
pub mod scaling;
mod seals;
#[cfg(all(test, not(any(loom, shuttle))))]
mod section_tests;
mod sleep;
mod socket;
mod stream;
pub mod super_block;
mod super_ref;
mod take_down;
pub mod task;
mod text;
mod time;
pub mod types;
pub mod xattr;
mod xattr_calls;

pub use convenience::{OpenOptions, WalkDir, WalkEntry};
pub use cred::Credentials;
pub use dentry::NAME_MAX;
pub use descriptors::{Fd, OPEN_MAX};
pub use driver::{
    AttrChange, Directories, FileSystem, Found, ParentName, Rename, XattrChange, XattrPair,
};
pub use error::{Errno, Error, Result};
pub use file::File;
pub use file_list::{FileList, OpenFileInfo};
pub use handle::FileHandle;
pub use limits::{Limits, Usage};
pub use locks::{Acquire, LockKind, LockRange, Owner, PendingLock, RecordLock, WaitToken};
pub use lru::CACHE_LIMIT_DEFAULT;
pub use mountinfo::MountInfo;
pub use namei::{PATH_MAX, SYMLINKS_MAX};
pub use namespace::{Counts, Users, Vfs, WeakVfs};
pub use pipe::PIPE_BUF;
pub use pseudo::MemfdFlags;
pub use readdir::{DirEntry, DirEntryBuf, ReadDir};
pub use scaling::{PATCHES, Patch, Scaling, ScalingError};
pub use seals::SealFlags;
pub use socket::SocketType;
pub use task::{At, Task};
pub use types::*;
