//! Benchmarks of vfscale against the kernel's tmpfs and against other libraries that keep a file
//! system in memory.
//!
//! A figure in nanoseconds says little on a machine that does other things at the same time. So
//! everything here is a *ratio* of two things that run in turn on the same CPUs, some milliseconds
//! each, for many rounds; each round gives one ratio, and a table shows their median and spread.
//! Rounds in which a thread waited for its CPU are thrown away and counted.
//!
//! ```text
//! cargo bench -p vfscale-peers --bench ratios           # the table, with targets
//! cargo bench -p vfscale-peers --bench ratios -- stat   # only the rows whose name contains "stat"
//! cargo bench -p vfscale-peers --bench calls            # criterion, nanoseconds of each call
//! cargo bench -p vfscale-peers --bench memory           # resident bytes of an empty file
//! ```
//!
//! tmpfs is looked for at `/dev/shm`, or at `VFSCALE_TMPFS`.
//!
//! # The parts
//!
//! | module | what |
//! | --- | --- |
//! | [`measure`] | pinned threads, rounds, ratios |
//! | [`subject`] | what is measured: file systems and the kinds of work they do |
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
