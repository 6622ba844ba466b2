//! The volume: what is on disk, and how it is found again.
//!
//! # Purpose
//!
//! A volume is an image file or a block device in blocks of 4 KiB, split into allocation groups.
//! Its foundations are blocks that say what they are ([`format::header`]), the superblock
//! ([`format::superblock`]) and the keeping of its copies ([`copies`]), how a volume of a given
//! size is divided ([`geometry`]), and the tree that everything in it is found by ([`btree`]).
//! On them stand the blocks of metadata in memory ([`cache`]) and the open volume ([`volume`]),
//! which is changed by transactions of the journal. `docs/FORMAT.md` gives every byte.
//!
//! # Invariants
//!
//! * Types that lie on disk are in [`mod@format`] and nowhere else; they are little-endian, without padding,
//!   and their sizes and offsets are asserted when they are compiled.
//! * Every block of metadata carries a magic, a checksum, its own address, its owner, the volume's
//!   id and the log position of its last change. Nothing in a block is believed before all of them
//!   are right.
//! * Whatever the bytes are, reading them ends with a value or an error: never a panic, and never a number
//!   that leads outside of the volume.
//! * What is wrong has a number ([`format::Damage`]), which never gets another meaning.
//!
//! # Locks, references
//!
//! [`ranks`] has the classes of locks, and the pages of the modules say who takes them. The foundations have
//! none: they are values, or calls on a device that their caller owns. Functions that take a
//! [`Device`](vfscale_block::Device) block for its I/O; of the writing ones, one runs at a time.

pub mod alloc;
pub mod base;
pub mod btree;
pub mod buffer;
pub mod data;
pub mod dir;
pub mod format;
pub mod icache;
pub mod inode;
pub mod page_cache;
pub mod tools;
pub mod vfs_impl;
pub mod volume;

pub use alloc::space::Space;
pub use base::fault::Fault;
pub use format::geometry::{self, Geometry};
pub use format::superblock::{Features, Label, LogPlace, Stopped, Superblock, Timestamp};
pub use format::uuid::Uuid;
pub use tools::{check, dump, identity, mkfs, rescue};
pub use volume::copies::{self, CopyState, Found, OpenError, SuperblockCopy};
pub use volume::tx::{Need, Run};
pub use volume::{Reader, Volume, VolumeOptions};
