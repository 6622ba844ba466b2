//! The driver: a volume as the VFS uses it.
//!
//! # Purpose
//!
//! A [`DiskFs`] is a [`FileSystem`] that keeps its directories itself. Each call that changes
//! something is one transaction of the [volume](crate::volume); data of files go through [`Files`]
//! instead. What the VFS knows of an inode and what the volume knows of it are two things: its
//! inode holds a [`Node`](crate::inode::incore::Node), and every change is stored in the node first
//! and shown by the inode then.
//!
//! # Order of locks
//!
//! The VFS has its inode's lock, or a name, or nothing. Then: the transaction is begun, nodes are
//! locked in ascending order of their numbers, the transaction commits, nodes are unlocked. Nothing
//! of the VFS is called with a node locked, but what never blocks.
//!
//! # What goes on without being asked
//!
//! | who | what |
//! | --- | --- |
//! | the journal's threads | write the log when there is much for it, and items home |
//! | the thread of [`Files`] | writes data back and forces the log in time, and stores times that changed in passing |
//! | the threads of the [`Inactivator`] | free files that have neither names nor users |

mod attributes;
mod disk_fs;
mod errors;
mod file_ops;
mod inodes;
mod names;
mod needs;
mod stop;
mod super_ops;
mod walk;

pub use disk_fs::{DiskFs, DiskOptions, Opened};
pub use stop::{OnError, OnErrorError};

#[cfg(doc)]
use crate::{data::Files, icache::inactivate::Inactivator};
#[cfg(doc)]
use vfscale_vfs::driver::FileSystem;

#[cfg(test)]
mod tests;
