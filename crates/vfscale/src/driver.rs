//! Drivers: the traits that a file system implements, and the objects that the VFS passes to it.
//!
//! A driver implements [`FileSystem`], and [`DirOps`] if it has directories of its own (without
//! them, names live in the dentries). [`MemFs`](crate::MemFs) and [`ProcFs`](crate::ProcFs) are
//! drivers; so is the one of volumes. A driver is mounted with
//! [`posix::Calls::mount`](crate::posix::Calls::mount), or as the root of a tree with
//! [`Vfs::new`](crate::Vfs::new).

pub use vfscale_vfs::driver::*;
pub use vfscale_vfs::{acl, inode, super_block, xattr};
