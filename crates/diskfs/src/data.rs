//! The data of a volume's files: between their pages in memory and their blocks on the device.
//!
//! [`Files`] makes the [`RegularFile`] of an inode for each call, and writes dirty files back.
//! Everything that the files share stands below it (`state.rs`): queues, counts, and the work items
//! of read-ahead, write-behind and write-back. [`FileBlocks`] is the [`Store`] of one file. It
//! reaches other files only through a trait, when a writer has to wait for memory.

mod bad_blocks;
mod discarder;
mod file_blocks;
mod files;
mod flusher;
mod gate;
mod read_ahead;
mod renewed;
mod requests;
mod state;
#[cfg(test)]
mod tests;
mod write_behind;
mod zeros;

pub use file_blocks::FileBlocks;
pub use files::Files;
pub use gate::Shut;

#[cfg(doc)]
use crate::file_io::{RegularFile, Store};
