//! Open files: handles on them, descriptors, reading, writing, and directory streams.

pub(crate) mod copy;
pub(crate) mod failed;
pub(crate) mod fd_table;
pub mod file_list;
pub(crate) mod inode_locks;
pub(crate) mod io_traits;
pub(crate) mod open_file;
pub(crate) mod overwrite;
pub(crate) mod readdir;
pub(crate) mod seals;
pub(crate) mod seek;
pub(crate) mod seq_read;
pub(crate) mod stat;
pub(crate) mod stream;
pub(crate) mod sync;
pub(crate) mod synchronous;
pub(crate) mod truncate;
pub(crate) mod write;
