//! The data of a volume's files: between their pages in memory and their blocks on the device.
//!
//! [`Files`] writes dirty files back and reads ahead; [`NodeStore`] is the [`Store`] of one inode.

mod ahead;
mod bad_blocks;
mod files;
mod node_store;
mod renewed;
#[cfg(test)]
mod tests;

pub use files::{FileOptions, Files};
pub use node_store::NodeStore;

#[cfg(doc)]
use crate::page_cache::Store;
