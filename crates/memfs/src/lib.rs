//! The memory file system driver.
//!
//! # Purpose
//!
//! [`MemFs`] is a file system whose files are memory of the process, as tmpfs is of the kernel's.
//! The VFS keeps its names and inodes; the driver keeps file data, the targets of symbolic links,
//! and the account of what all of it takes.
//!
//! # Running out of space
//!
//! A `MemFs` has a size, by default half of the memory that the process may use. Everything is
//! charged against it before it is made: inodes, names, directories, symbolic links, extended
//! attributes, pages and the nodes above them (`space`). When it is used up, calls fail with
//! `ENOSPC` and leave everything as it was; a write of which a part found room returns that part.
//!
//! # Modules
//!
//! * `pages`: the data of a file, a radix tree of 4 KiB pages that is read without a lock.
//! * `page_turns`: who overwrites the same bytes takes turns.
//! * `space`: what is taken, and what is free but may still be read.
//! * `driver`: [`MemFs`] itself.
//! * `machine`: how much memory there is.
//!
//! # Locks, and who holds what
//!
//! The driver has no locks of its own but those of pages that are overwritten, and the leaf locks inside of
//! budgets. It relies on the VFS to serialise other changes of one file by the inode's lock (see
//! [`vfscale_vfs::driver`]), and to hold an RCU guard whenever it calls with a lock held, because freeing
//! memory defers work. An inode owns its pages; they are cut away when it is evicted.

mod driver;
mod machine;
mod page_turns;
mod pages;
mod space;

pub use driver::{MemFs, MemFsBuilder};
