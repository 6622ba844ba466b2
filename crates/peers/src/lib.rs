//! Benchmarks of vfscale against the kernel's tmpfs and against other libraries with a file system
//! in memory.
//!
//! A figure in nanoseconds means little on a machine that has other work. So everything here is a
//! *ratio* of two sides that alternate on the same CPUs, some milliseconds each, for many rounds;
//! each round gives one ratio, and a table shows their median and range. Rounds in which a thread
//! waited for its CPU are discarded and counted.
//!
//! Threads, the measured loop and the statistics are from `vfscale-bench`. This is a crate of its
//! own because of its dependencies: `vfscale-bench` is linked into the `vfscale` command and
//! published, and neither it nor its tests should need criterion and three other file systems.
//!
//! ```text
//! cargo bench -p vfscale-peers --bench ratios           # the table, with targets
//! cargo bench -p vfscale-peers --bench ratios -- stat   # only the rows whose name contains "stat"
//! cargo bench -p vfscale-peers --bench calls            # criterion, nanoseconds of each call
//! cargo bench -p vfscale-peers --bench memory           # resident bytes of an empty file
//! ```
//!
//! tmpfs is expected at `/dev/shm`, or at `VFSCALE_TMPFS`.
//!
//! # Modules
//!
//! | module | contents |
//! | --- | --- |
//! | [`measure`] | rounds and ratios, on the bench's teams of pinned threads |
//! | [`subject`] | the measured file systems, and their kinds of work |
//! | [`embedded`] | vfscale, in the process |
//! | [`tmpfs`] | the kernel's tmpfs, by system calls |
//! | [`libraries`] | `axfs_ramfs`, `rsfs`, `vfs` |
//! | [`report`] | the tables |

pub mod embedded;
pub mod libraries;
pub mod measure;
pub mod report;
pub mod subject;
pub mod tmpfs;
