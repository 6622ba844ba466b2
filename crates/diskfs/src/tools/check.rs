//! A check of a volume: it reads all of the volume, and reports each inconsistency.
//!
//! # Purpose
//!
//! A file system that trusts its disk loses data twice: once when a block is damaged, and again
//! when it acts on the contents of that block. [`check()`] trusts nothing. It reads the superblock
//! and its copies, the log, every group, every inode with its data, names and attributes, and
//! compares them with each other: each block has exactly one owner or is free, each name refers to
//! an inode, the link count of each inode equals its number of names, and every directory is
//! reachable from the root. Each inconsistency is a [`Finding`] with a number, which
//! `docs/FORMAT.md` explains.
//!
//! # A volume that was not closed
//!
//! The blocks on disk are then older than the log. A check that only reads puts a copy-on-write
//! layer in memory over the volume ([`CowDevice`](vfscale_block::CowDevice)), replays the log into
//! that layer, and checks the result. Such a check can run at any time, and sees the volume as the
//! next mount would.
//!
//! # Invariants
//!
//! * Without [`Options::repair`] nothing is written.
//! * For all contents of the device, a check ends, and neither panics nor reads outside of the
//!   volume. Each block of metadata is read a fixed number of times at most.
//! * A check needs one bit for each block of the volume in areas that are partly used, and some
//!   bytes for each inode in use and each directory. Only two lists grow with the damage: the
//!   findings, up to the limit of the caller, and the changes that a repair plans.
//! * A repair makes only changes that can't add damage, in transactions of the volume's own log:
//!   `tools/check/repair.rs` describes them, and why.
//!
//! # Files
//!
//! Each file imports only from those above it.
//!
//! | files | contents |
//! | --- | --- |
//! | `finding`, `watch`, `options`, `error`, `log`, `report` | the terms of a check and its log |
//! | `media`, `overlay`, `blocks`, `links`, `plan`, `state` | the knowledge of a check |
//! | `contents`, `chunks`, `names`, `inodes`, `groups`, `salvage`, `space` | its phases |
//! | `run`, `inspect`, `discard`, `repair` | a check, one that only reads, a new log, a repair |
//!
//! # Locks, references
//!
//! None. The caller has exclusive use of the device, or knows that no other program writes it.

mod blocks;
mod chunks;
mod contents;
mod discard;
mod error;
mod finding;
mod groups;
mod home;
mod inodes;
mod inspect;
mod links;
mod log;
mod media;
mod names;
mod options;
mod overlay;
mod plan;
mod repair;
mod report;
mod run;
mod salvage;
mod space;
mod state;
mod watch;

use std::sync::Arc;

use vfscale_block::Device;

pub use error::CheckError;
pub use finding::{Figure, Finding, Owner, Part, Problem, Remedy, Severity};
pub(crate) use log::CheckedLog;
pub use log::{Discarded, LogState};
pub(crate) use media::{Media, NoChange};
pub use options::Options;
pub use report::{Figures, Report, Unfinished};
pub use watch::{Phase, Watch};

use crate::volume::copies;

/// Checks the volume on `device`, and repairs it if `options` says so. Blocks for the I/O: it reads
/// all metadata.
///
/// # Errors
/// Returns [`CheckError`] if there is no volume to check, or if a repair failed. Damage of a volume
/// is no error.
pub fn check(
    device: Arc<dyn Device>,
    options: &Options,
    watch: &mut dyn Watch,
) -> Result<Report, CheckError> {
    let found = copies::read(&*device)?;
    if options.repair {
        return repair::repair(device, &found, options, watch);
    }
    inspect::inspect(device, &found, options, watch)
}

#[cfg(test)]
pub(crate) mod tests;
