//! Copy-on-write branches of a device, in a pool on another device.
//!
//! # Purpose
//!
//! A [`Pool`] divides a device among *branches*. Each branch is a device of its own ([`Branch`]),
//! with all promises of [`Device`](vfscale_block::Device), so whatever runs on a device runs on a
//! branch: a volume, its journal, its checks.
//!
//! ```
//! use std::sync::Arc;
//!
//! use vfscale_block::{Device, MemoryDevice};
//! use vfscale_pool::Pool;
//!
//! let device = Arc::new(MemoryDevice::new(64 << 20)?);
//! let pool = Pool::create(device, *b"an id of 16 byte")?;
//! pool.create_branch("main", 1 << 30)?;
//! let main = pool.branch("main")?;
//! main.write_at(0, &[1; 4096])?;
//! pool.fork("main", "trial", false)?;
//! let trial = pool.branch("trial")?;
//! trial.write_at(0, &[2; 4096])?;
//!
//! let mut bytes = [0; 4096];
//! main.read_at(0, &mut bytes)?;
//! assert_eq!(bytes, [1; 4096]);
//!
//! trial.close()?;
//! pool.delete("trial")?;
//! while pool.reap(10_000)?.more {}
//! main.close()?;
//! pool.close()?;
//! # Ok::<(), vfscale_pool::Error>(())
//! ```
//!
//! # Words
//!
//! A *place* is a block of 4096 bytes of the pool's device; a branch numbers its own *blocks*. The
//! *map* of a branch tells the place of each block. A *node of the history* is a state of a branch
//! that others may be forked from; its *depth* is one more than that of the node it was forked
//! from. Each reference to a place has a *birth*: the depth of the node that wrote the place. So a
//! branch knows from the reference alone whether a place is its own.
//!
//! # Invariants
//!
//! * I1. A write goes only to places whose birth is above the depth of the node's parent: no frozen
//!   node refers to them.
//! * I2. A map entry is durable only after its content: the content was flushed before, or the
//!   record has its checksum.
//! * I3. A place is handed out again only after a commit without it is durable, and no reader is
//!   inside of it.
//! * I4. All that a superblock leads to was flushed before the superblock was written. Superblocks
//!   and bitmaps have two places, written in turn.
//! * I5. Contents are overwritten in place only while no record has their checksum, or after a
//!   later record or checkpoint has confirmed it. So later writes never undo a flush.
//! * I6. Whoever takes a place has taken it from a budget before. Commits have a reserve. A
//!   [`Credit`] or a reservation of a branch's user takes from the budget before anything is dirty.
//!
//! Why a power cut keeps the promises of a device: recovery reads the last commit, and then the
//! records of each branch that followed. By I4 the commit is whole. By I3 nothing that it refers to
//! was overwritten, except in place by its owner (I1), which `Device` allows for each block that
//! was written since the last flush. Each record but those of the last batch was confirmed by its
//! successor, so its contents are there (I2, I5). A content of the last record that is not there
//! was not flushed yet, and its block keeps its former place, which is intact (I3). So each block
//! has the content of the last flush, or one that was written later.
//!
//! `tests/spec.rs` has this argument as an executable specification: every state of two small
//! branches, after a cut at each of their steps. It finds each of the invariants I1 to I5 broken.
//!
//! # Locks
//!
//! The modules of branches, commits and space say which; ranks 64000 to 64080, below those of
//! devices and above those of volumes. Branches share no lock while they read, write, and flush
//! into their logs, if the pool has a zone of 124 MiB for each; they share checkpoints.

mod base;
mod branch;
mod calls;
mod disk;
mod space;
mod state;
#[cfg(test)]
mod tests;

pub use base::error::Error;
pub use calls::adoption::Adoption;
pub use calls::check::Report;
pub use calls::convert::Conversion;
pub use calls::credit::Credit;
pub use calls::fork::Kind;
pub use calls::handle::Branch;
pub use calls::limit::LIMIT_MIN;
pub use calls::log::{LogEntry, LogKind, LogMerge};
pub use calls::pool::{BranchInfo, Pool, Usage};
pub use calls::reap::Reaped;
pub use calls::repair::Repaired;
pub use calls::switch::Switched;
pub use calls::travel::receive::Received;
pub use calls::travel::send::{SendOptions, Sent};
