//! The driver: a volume as a file system of the VFS.
//!
//! # Purpose
//!
//! A [`DiskFs`] is a [`FileSystem`] with directories of its own. Each call that changes something
//! is one transaction of the [volume](crate::volume); data of files is read and written through
//! [`Files`] instead. An inode has two objects, one of the VFS and one of the volume: the VFS inode
//! holds a [`Node`](crate::inode::incore::Node), and every change is stored in the node before the
//! VFS inode shows it.
//!
//! # Order of locks
//!
//! The VFS holds its inode's lock, or a name, or nothing. Then the transaction is begun, nodes are
//! locked in ascending order of their numbers, the transaction commits, and nodes are unlocked.
//! While a node is locked, only functions of the VFS that never block are called.
//!
//! # Background threads
//!
//! | threads | work |
//! | --- | --- |
//! | the journal's | write the log when it has grown long, and write items back in place |
//! | the one of [`Files`] | writes data back and forces the log in every interval, and stores times |
//! | those of the [`Inactivator`] | free files that have neither names nor users |

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
