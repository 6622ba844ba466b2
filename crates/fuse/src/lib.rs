//! Mounts a vfscale file system on Linux, through FUSE, for any program to use.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use vfscale_fuse::{Builder, Sharing};
//!
//! let vfs = vfscale::memory().size(1 << 30).build()?;
//! let mounted = Builder::new(&vfs).sharing(Sharing::Exclusive).mount("/mnt/memory")?;
//! println!("{} is mounted", mounted.dir().display());
//! mounted.wait();
//! # Ok(())
//! # }
//! ```
//!
//! # Layers
//!
//! | module | contents |
//! | --- | --- |
//! | `mount` | the public face: [`Builder`], [`Mounted`], [`Unmounter`]; a thread that notices a remount to read-only |
//! | `server` | each operation, by calls on a [`Vfs`](vfscale::Vfs); node and file tables |
//! | `uring` | the other transport: a queue and a thread for each CPU |
//! | [`control`] | requests of other programs to a mount, on a socket |
//! | `attach` | mounting by `mount(2)` or `fusermount3`, and unmounting |
//! | `session` | the workers, the first exchange |
//! | `statistics` | counts of requests and their service times, by worker |
//! | `wire` | bytes to requests, replies to bytes |
//! | `base` | the device and its clones, the [mount table](mount_table), the [changes](recording) of a mount, the rights of processes, errors, the settings of a mount |
//!
//! The trait `session::Service` is the boundary between transport (`session`, `uring`, `wire`) and
//! file system (`server`). Either side can be replaced; both transports serve the same core.
//!
//! # Why no FUSE crate is used
//!
//! This crate reads and writes the device directly. `fuser`, the most complete of the FUSE crates
//! (0.18, 2026), has threads, `O_TMPFILE`, birth times and the flags that request clearing set-id
//! bits. It still lacks what a full file system needs: requests that can be interrupted (otherwise
//! a process that waits for a file lock could not even be killed), supplementary groups, exact
//! counts of lookups, and locks that are answered later, without a worker.
//!
//! Each worker reads and writes data through one buffer. Splicing pages from the device would save
//! no copy, because the bytes must be copied to (or from) the file system's own memory, and would
//! cost two more system calls per request.
//!
//! # Invariants
//!
//! * A node is in the node table exactly as long as the kernel holds a lookup of it. A reply that
//!   names a node adds a lookup; a reply that is not delivered subtracts it again; `FORGET`
//!   subtracts lookups. (Over io_uring only the end of the connection prevents the delivery, and
//!   the table ends with it.)
//! * A worker never waits for another request. A request for a file lock that is not free waits
//!   without a worker.
//! * Every request is answered exactly once, even if serving it panics.
//! * The kernel checks permissions against cached attributes, and the VFS checks them again with
//!   the caller's credentials.
//!
//! # Lock order
//!
//! The locks of the tables, and those between the threads of `uring`, are leaves, except the lock
//! over the numbers of foreign mounts, which is taken before the lock of a node shard. None is held
//! while the VFS is called or a handle is dropped. Where changes are [recorded](recording), the
//! turn of a request is taken before all of them.
//!
//! # Limits that FUSE sets
//!
//! * Reads that the kernel serves from its page cache do not update access times.
//! * Data in the page cache takes memory in addition to the file system's own; the kernel frees it
//!   when memory is short.
//! * File handles (`open_by_handle_at`) are valid as long as the kernel remembers the inode.

mod attach;
mod base;
pub mod control;
mod mount;
mod server;
mod session;
mod statistics;
mod uring;
mod wire;

pub use attach::Attachment;
pub use base::error::MountError;
pub use base::mount_table;
pub use base::polling::{Polling, PollingChoice};
pub use base::recording;
pub use base::sharing::Sharing;
pub use base::syncing::Syncing;
pub use base::transport::Transport;
pub use base::uring_switches::{UringObstacle, enable_uring};
pub use mount::unserved::Unserved;
pub use mount::xattrs::Xattrs;
pub use mount::{Builder, Mounted, Unmounter};
pub use statistics::{OperationStats, Statistics, Stats};

/// Compiles the recipes for the library.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guides/cookbook.md")]
mod cookbook {}

/// Compiles the program of README.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
mod readme {}
