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
//! | [`mod@format`] | the types on disk, and the division of a volume of a given size |
//! | [`base`] | the error of the crate, the classes of its locks |
//! | [`btree`] | the B+tree that every index uses |
//! | [`buffer`] | blocks of metadata in memory |
//! | [`alloc`] | allocation groups: free blocks and free inodes |
//! | [`page_cache`] | the pages of files |
//! | [`inode`] | one inode, on disk and in memory |
//! | [`dir`] | directories |
//! | [`volume`] | the open volume and its transactions |
//! | [`icache`] | the table of inodes in use, and their inactivation |
//! | [`file_io`] | the calls on the data of one file |
//! | [`data`] | the data of files between calls and volume |
//! | [`vfs_impl`] | the file system, as the VFS calls it |
//! | [`tools`] | making, checking, repairing, showing and rescuing a volume |
//!
//! # Invariants
//!
//! * On-disk types are in [`mod@format`] and nowhere else; they are little-endian, without padding,
//!   and their sizes and offsets are asserted at compile time.
//! * Every block of metadata carries a magic, a checksum, its own address, its owner, the volume's
//!   id and the log position of its last change. Code uses the contents of a block only after all
//!   of them have been verified.
//! * Reading arbitrary bytes ends with a value or an error: never a panic, and never a number that
//!   points outside of the volume.
//! * Every kind of damage has a number ([`format::Damage`]), whose meaning never changes.
//!
//! # Locks, references
//!
//! [`base::ranks`] lists the classes of locks, and the module pages say which code takes them.
//! Foundations such as [`mod@format`] take none: they are values, or calls on a device that their
//! caller owns. Functions that take a [`Device`](vfscale_block::Device) block for its I/O; at most
//! one function that writes runs at a time.

pub mod alloc;
pub mod base;
pub mod btree;
pub mod buffer;
pub mod data;
pub mod dir;
pub mod file_io;
pub mod format;
pub mod icache;
pub mod inode;
pub mod page_cache;
pub mod tools;
pub mod vfs_impl;
pub mod volume;

pub use alloc::space::Space;
pub use base::fault::Fault;
pub use base::open_error::OpenError;
pub use format::BlockRange;
pub use format::geometry::{self, Geometry};
pub use format::superblock::{Features, Label, LogPlace, Stopped, Superblock, Timestamp};
pub use format::uuid::Uuid;
pub use tools::{check, dump, identity, mkfs, rescue};
pub use volume::copies::{self, CopyState, FoundSuperblock, SuperblockCopy};
pub use volume::tx::TxReservation;
pub use volume::{Reader, Settings, TrimRange, Volume};
