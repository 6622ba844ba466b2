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
//! | module | does |
//! | --- | --- |
//! | `mount` | the public face: [`Builder`], [`Mounted`], [`Unmounter`] |
//! | [`control`] | what other programs can ask of a mount |
//! | `watch` | notices a remount to read-only, which the kernel does not tell |
//! | `attach` | `mount(2)` or `fusermount3`, and back |
//! | `device`, `session` | the device, its clones, the workers, the first exchange |
//! | `wire` | bytes to requests, replies to bytes |
//! | `server` | each operation, by calls on a [`Vfs`](vfscale::Vfs); node and file tables |
//!
//! The boundary between transport (`device`, `session`, `wire`) and file system (`server`) is the
//! trait `session::Service`, so that either can be replaced: another transport serves the same
//! core.
//!
//! # Why the protocol is spoken here
//!
//! The device is spoken to directly and no FUSE crate stands between, because what crates offer
//! today leaves out what a full file system needs: requests that can be interrupted (a process
//! waiting for a file lock could otherwise not even be killed), `flock` told from POSIX locks,
//! `O_TMPFILE`, birth times, supplementary groups, 64-bit copies, the flags that say when set-id
//! bits go. Data is read into and written from one buffer per worker. Splicing pages from the device
//! would save no copy, for the bytes must end in (or come from) the file system's own memory, and
//! would cost two more system calls a request; so it is not used.
//!
//! # Invariants
//!
//! * A node is in the node table exactly as long as the kernel knows it: lookups are counted when a
//!   reply names a node, taken back when the reply is not delivered, and taken off by `FORGET`.
//! * A worker never waits for another request. What waits for a file lock waits elsewhere.
//! * Every request is answered exactly once, also when serving it panics.
//! * Permissions are checked by the kernel against cached attributes and again by the VFS with the
//!   caller's credentials.
//!
//! # Lock order
//!
//! The tables' locks are leaves, but for the one over numbers of foreign mounts, which comes before
//! a node shard's. None is held while the VFS is called or a handle is dropped.
//!
//! # Limits that FUSE sets
//!
//! * What the kernel reads from its page cache does not update access times.
//! * Data in the page cache is beside the file system's own memory; the kernel gives it back when
//!   memory is short.
//! * File handles (`open_by_handle_at`) live as long as the kernel remembers the inode.

mod attach;
pub mod control;
mod device;
mod error;
mod mount;
mod server;
mod session;
mod watch;
mod wire;

pub use error::MountError;
pub use mount::{Builder, Mounted, Sharing, Stats, Unmounter};
