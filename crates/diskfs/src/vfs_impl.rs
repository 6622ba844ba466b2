//! The driver: a volume as a file system of the VFS.
//!
//! # Purpose
//!
//! A [`DiskFs`] is a [`FileSystem`] with its own directories. Each call that changes metadata is
//! one transaction of the [volume](crate::volume); [`Files`] reads and writes the data of files. An
//! inode has two objects, one of the VFS and one of the volume: the VFS inode holds a
//! [`Node`](crate::inode::incore::Node), and every change is stored in the node before the VFS
//! inode shows it.
//!
//! # Order of locks
//!
//! The VFS holds the lock of its inode, or the lock of a name, or no lock. Then the transaction
//! begins, nodes are locked in ascending order of their numbers, the transaction commits, and the
//! nodes are unlocked. While a node is locked, the driver calls only functions of the VFS that
//! never block.
//!
//! # Work in the background
//!
//! It runs on threads that all volumes of the process share ([`worker`](vfscale_sync::worker)). The
//! items of the journal never wait for a thread, because all others may wait for log space:
//!
//! | items of | work |
//! | --- | --- |
//! | the journal | push the log when much has been committed, and write its items back in place |
//! | [`Files`] | write data back, behind writers and when much is dirty; force the log in every interval, and store times; read ahead; discard freed blocks |
//! | the [`Inactivator`] | free files that have neither names nor users |

mod attributes;
mod cut;
mod disk_fs;
mod errors;
mod file_ops;
mod flags;
mod inodes;
mod names;
mod needs;
mod stop;
mod super_ops;
mod walk;

pub use crate::page_cache::CacheBudget;
pub use cut::Cut;
pub use disk_fs::{DiskFs, Opened};

#[cfg(doc)]
use crate::{data::Files, icache::inactivate::Inactivator};
#[cfg(doc)]
use vfscale_vfs::driver::FileSystem;

#[cfg(test)]
mod tests;
