//! Inodes in use: the table that finds them, and the freeing of inodes without names that have lost
//! their last user.
//!
//! Counterpart of XFS's `xfs_icache.c`.

pub mod inactivate;
pub mod table;
