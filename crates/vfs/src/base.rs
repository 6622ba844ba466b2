//! The ground of the crate: errors, the types and flags of calls, clocks, limits and lock
//! classes. No file of this folder imports dentries or inodes.

pub mod cpu;
pub(crate) mod error;
pub(crate) mod escaped;
pub(crate) mod inode_flags;
pub mod limits;
pub mod lock_classes;
pub mod lockstat;
pub(crate) mod time;
pub mod types;
