//! A POSIX file system in user space: in memory, or in a volume that survives crashes. Every layer
//! scales with cores.
//!
//! # Embed a tree
//!
//! ```
//! # fn main() -> vfscale::Result<()> {
//! let vfs = vfscale::memory().size(64 << 20).build()?;
//! let task = vfs.task();
//! task.create_dir_all("/etc/init.d")?;
//! task.write("/etc/hostname", "vfscale\n")?;
//! task.symlink("hostname", "/etc/name")?;
//! assert_eq!(task.read_to_string("/etc/name")?, "vfscale\n");
//! # Ok(())
//! # }
//! ```
//!
//! A [`Vfs`] is a tree of mounted file systems. A [`Task`] is a process, in POSIX terms: it has a
//! root and working directory, umask, credentials and descriptors. Any number of threads may share
//! a task, and each may create its own. Its methods have the names of [`std::fs`]. A guest that may
//! see a part of the tree is one call: [`Vfs::task_in`]. A [`File`] is an open file. It can be used
//! without a task, and implements `Read`, `Write` and `Seek`. A directory of the host comes in with
//! [`Transfer::import`], and goes out with [`Transfer::export`]. A [`Watcher`] reports changes of
//! files, directories and whole trees.
//!
//! # Keep a volume
//!
//! ```
//! # fn main() -> vfscale::Result<()> {
//! # let dir = tempfile::tempdir().unwrap();
//! # let path = dir.path().join("disk.vfs");
//! let volume = vfscale::volume(&path).create(64 << 20).open()?;
//! let task = volume.task();
//! task.replace_file("/state", "1", vfscale::Durability::Durable)?;
//! drop(task);
//! volume.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! [`volume()`] opens a volume in an image file or on a device; [`mod@volume`] says what survives
//! what.
//!
//! # Mount it
//!
//! `vfscale run disk.vfs -- COMMAND` mounts a volume for one command, `vfscale mount disk.vfs DIR`
//! until it is unmounted. A program mounts its own tree with `Builder::mount` of the crate
//! `vfscale-fuse`, which has an example.
//!
//! # More
//!
//! * [`posix`] has Linux's calls with Linux's errors, as methods of [`Task::posix`]: descriptors,
//!   `openat2`, record locks, mounts, namespaces, pipes. No call enters the kernel, except to read
//!   the clock.
//! * [`driver`] is for writers of file systems; `examples/driver.rs` is one in 60 lines.
//! * [`idle_memory`] bounds the memory that the process keeps for files to come.
//! * [`options`] has the options of memory file systems and volumes by their names.
//! * [`block`] has the devices of volumes: files, memory, and copies of others.
//!
//! Everything is `Send` and `Sync`. Calls block only for short critical sections, with two
//! exceptions. Calls on a volume wait for its device. Calls that wait for an advisory lock or for
//! the other end of a pipe or fifo, and `umount`, are documented as waiting.
//!
//! Fork: if a process with a tree forks, the tree can be used only in the parent. In the child,
//! calls fail with [`Errno::NOTRECOVERABLE`] and drops do nothing, until it executes another
//! program. The threads that held locks at the fork do not exist in the child, and only the
//! parent's threads write a volume.
//!
//! Sandboxes: a filter of system calls (seccomp) that answers `membarrier`, `io_uring_*`,
//! `fallocate`, `copy_file_range` or `memfd_create` with an error, from the start or from now on,
//! costs time and no more, except that holes are not punched. One that kills or traps at
//! `membarrier` ends the process: return an error for it.

mod apply;
mod diff;
pub mod driver;
mod error;
pub mod idle_memory;
mod ingest;
mod memory;
mod merge;
pub mod options;
mod place;
pub mod pool;
pub mod posix;
mod tar;
mod transfer;
mod view;
pub mod volume;

pub use vfscale_block as block;

pub use apply::{Applied, ApplyOptions};
pub use ingest::{Ingested, Overlay};
pub use memory::{MemoryBuilder, memory};
pub use merge::{Conflict, ConflictKind, MergeOptions, Merged, Strategy};
pub use pool::{
    BranchInfo, DiffOptions, ForkOptions, Pool, PoolBuilder, PoolError, Received, SendOptions,
    Sent, pool, pool_on,
};
pub use transfer::{Links, Owners, Transfer, Transferred};
pub use vfscale_memfs::{MemFs, MemFsBuilder};
pub use vfscale_procfs::ProcFs;
pub use vfscale_vfs::{
    Capabilities, Counts, Credentials, DirBuilder, DirEntry, Durability, Errno, Error, Escaped,
    File, FileChange, FileType, Limits, Metadata, Mode, OpenOptions, PATCHES, Patch, ReadDir,
    Result, Scaling, ScalingError, Space, Task, TempFile, Timestamp, TryLockError, Usage, Users,
    Vfs, WalkDir, WalkEntry, WatchEvent, WatchId, Watcher, WeakVfs,
};
pub use volume::{CloseError, Volume, VolumeBuilder, VolumeError, volume, volume_on};
