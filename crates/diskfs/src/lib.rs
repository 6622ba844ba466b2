//! On-disk file system: volumes, their format, and access to them.
//!
//! # Purpose
//!
//! A volume is an image file or a block device in blocks of 4 KiB, split into allocation groups.
//! `docs/FORMAT.md` gives every byte.
//!
//! # Rooms
//!
//! Each module imports from those above it only.
//!
//! | module | contents |
//! | --- | --- |
//! | `format` | the types on disk, and the division of a volume of a given size |
//! | `base` | the error of the crate, the classes of its locks |
//! | `btree` | the B+tree that every index uses |
//! | `buffer` | blocks of metadata in memory |
//! | `alloc` | allocation groups: free blocks and free inodes |
//! | `page_cache` | the pages of files |
//! | `inode` | one inode, on disk and in memory |
//! | `dir` | directories |
//! | `volume` | the open volume and its transactions |
//! | `icache` | the table of inodes in use, and their inactivation |
//! | `file_io` | the calls on the data of one file |
//! | `data` | the data of files between calls and volume |
//! | `vfs_impl` | the file system, as the VFS calls it |
//! | `tools` | making, checking, repairing, showing and rescuing a volume |
//!
//! # Invariants
//!
//! * On-disk types are in `format` and nowhere else; they are little-endian, without padding,
//!   and their sizes and offsets are asserted at compile time.
//! * Every block of metadata carries a magic, a checksum, its own address, its owner, the volume's
//!   id and the log position of its last change. Code uses the contents of a block only after all
//!   of them have been verified.
//! * Reading arbitrary bytes ends with a value or an error: never a panic, and never a number that
//!   points outside of the volume.
//! * Every kind of damage has a number ([`Damage`]), whose meaning never changes.
//!
//! # Locks, references
//!
//! `base/ranks.rs` lists the classes of locks, and the module pages say which code takes them.
//! Foundations such as `format` take none: they are values, or calls on a device that their
//! caller owns. Functions that take a [`Device`](vfscale_block::Device) block for its I/O; at most
//! one function that writes runs at a time.

mod alloc;
mod base;
mod btree;
mod buffer;
mod data;
mod dir;
mod file_io;
mod format;
mod icache;
mod inode;
mod page_cache;
mod tools;
mod vfs_impl;
mod volume;

/// Reads and changes blocks as they are on the device.
pub mod on_disk {
    pub use crate::format::inode::{INODE_MAGIC, InodeRecord, RECORD_BYTES, records_mut};
    pub use crate::format::{Block, Identity, Magic, byte_of_block};
}

/// Exports what models of concurrent code look at.
#[cfg(shuttle)]
#[doc(hidden)]
pub mod internals {
    pub use crate::buffer::{Buffer, BufferCache};
    pub use crate::data::Files;
    pub use crate::format::Expected;
    pub use crate::icache::table::NodeTable;
    pub use crate::inode::incore::Node;
    pub use crate::volume::tx::TxReservation;
}

// A volume as a file system.
pub use base::on_error::{OnError, OnErrorError};
pub use vfs_impl::{CacheBudget, Cut, DiskFs, Opened};

// An open volume.
pub use base::fault::Fault;
pub use base::open_error::OpenError;
pub use volume::grow::GrowError;
pub use volume::{Settings, TrimRange, Volume};

// Whole volumes: create, check, repair, show and rescue one.
pub use tools::{check, dump, identity, mkfs, rescue};
pub use volume::copies;

// The values in a volume.
pub use format::extent::Extent;
pub use format::geometry::{GROUP_BLOCKS_KEPT, Geometry, SizeError};
pub use format::inode::ROOT_INO;
pub use format::superblock::{Features, Label, LogPlace, NoLabel, Stopped, Superblock, Timestamp};
pub use format::uuid::{NoUuid, Uuid};
pub use format::{BLOCK_BYTES, BlockRange, Damage};
pub use inode::core::{AttrFork, DataFork, FileKind, InodeCore};
