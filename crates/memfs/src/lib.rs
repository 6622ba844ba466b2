//! The memory file system driver, a counterpart of Linux's tmpfs.
//!
//! # Purpose
//!
//! The files of a [`MemFs`] are stored in the process's memory. The VFS stores names and inodes;
//! the driver stores file data and the targets of symbolic links, and accounts for the memory of
//! all of them.
//!
//! # Running out of space
//!
//! A `MemFs` has a size, by default half of the memory that the process may use. Inodes, names,
//! directories, symbolic links, extended attributes, pages and the nodes above them are charged
//! before they are created (`space`). When the size is used up, calls fail with `ENOSPC` and change
//! nothing; a write for which there is partly space writes that part and returns its length.
//!
//! # Modules
//!
//! * `pages`: the data of a file, a radix tree of 4 KiB pages that is read without a lock.
//! * `page_locks`: exclusion between overwrites of the same pages.
//! * `space`: the used space, and freed memory that readers may still access.
//! * `driver`: [`MemFs`] itself.
//!
//! # Locks and ownership
//!
//! The driver has no locks of its own except the page locks and the leaf locks of budgets. It
//! relies on the VFS to serialise other changes of a file with the inode's lock (see
//! [`vfscale_vfs::driver`]). The VFS also holds an RCU guard whenever it calls the driver with a
//! lock held, because freeing memory defers work. An inode owns its pages; they are removed when it
//! is evicted.

mod driver;
mod page_locks;
mod pages;
mod space;

pub use driver::{MemFs, MemFsBuilder};
