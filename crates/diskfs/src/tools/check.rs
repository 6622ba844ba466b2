//! Checks a volume: reads all of it, and reports each inconsistency.
//!
//! # Purpose
//!
//! A file system that trusts its disk loses data twice: once when a block goes wrong, and again
//! when it acts on the contents of that block. [`check()`] trusts nothing. It reads the superblock
//! and its copies, the log, every group, every inode with its data, names and attributes, and
//! compares them with each other: each block has exactly one owner or is free, each name refers to
//! an inode, the link count of each inode equals its number of names, and every directory is
//! reachable from the root. Each inconsistency is a [`Finding`] with a number, which
//! `docs/FORMAT.md` explains.
//!
//! # A volume that was not closed
//!
//! The blocks at home are then older than the log. A check that only reads puts a copy-on-write
//! layer in memory over the volume ([`CowDevice`](vfscale_block::CowDevice)), replays the log into
//! that layer, and checks the result. Such a check can run at any time, and finds what the next
//! mount would find.
//!
//! # Invariants
//!
//! * Without [`Options::repair`] nothing is written.
//! * For all contents of the device, a check ends, and neither panics nor reads outside of the
//!   volume. Each block of metadata is read a fixed number of times at most.
//! * A check needs a bit for each block of the volume in areas that are partly used, and some bytes
//!   for each inode in use and each directory. Only two things grow with the damage: the list of
//!   findings, up to the limit of the caller, and the changes that a repair plans.
//! * A repair makes only changes that can't add damage, in transactions of the volume's own log:
//!   `tools/check/repair.rs` describes them, and why.
//!
//! # Locks, references
//!
//! None. The caller has exclusive use of the device, or knows that no other program writes it.

mod blocks;
mod chunks;
mod contents;
mod discard;
mod draft;
mod error;
mod finding;
mod groups;
mod home;
mod inodes;
mod links;
mod log;
mod media;
mod names;
mod options;
mod plan;
mod repair;
mod report;
mod salvage;
mod space;
mod watch;

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use vfscale_block::Device;

pub use error::CheckError;
pub use finding::{Figure, Finding, Owner, Part, Problem, Remedy, Severity};
pub use log::{Discarded, LogState};
pub use options::Options;
pub use report::{Figures, Report, Unfinished};
pub use watch::{Phase, Watch};

use crate::LogPlace;
use crate::format::superblock::Stopped;
use crate::icache::inactivate::Orphans;
use crate::volume::copies::{self, CopyState, FoundSuperblock};
use blocks::BlockSet;
use chunks::Candidate;
use groups::GroupState;
use links::Links;
pub(crate) use log::CheckedLog;
pub(crate) use media::{Media, NoChange};
use plan::{InodeFix, Plan};
use salvage::Strays;
use watch::Findings;

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
    let logged = CheckedLog::new(device, options.log.as_ref(), &found.superblock)?;
    let mut tell = Findings::new(watch, options.findings);
    let (device, log) = look_at_log(&logged, &found, &mut tell);
    let checked = Check::run(&*device, &found, tell, None);
    let mut report = checked.into_report(log);
    if options.discard_log {
        let replayed = logged.copied().replay_home(&found.superblock);
        let why = replayed.err().map(|error| error.to_string());
        report.discarded = Some(Discarded::of(&logged, why));
    }
    Ok(report)
}

/// Returns the device in its state after a replay of the log: a copy, if there are changes to
/// replay.
fn look_at_log(
    logged: &CheckedLog,
    found: &FoundSuperblock,
    tell: &mut Findings<'_>,
) -> (Arc<dyn Device>, LogState) {
    tell.progress(Phase::Log, 0, 1);
    let home = logged.device.clone();
    // Even after a clean close, the blocks at home may be older than the log.
    let looked = logged.is_clean().and_then(|is_clean| match is_clean {
        true => logged.copied().replay_only(&found.superblock).map(|_| true),
        false => Ok(false),
    });
    match looked {
        Ok(true) => (home, LogState::Clean),
        Ok(false) => {
            let copy = logged.copied();
            match copy.replay(&found.superblock) {
                Ok((journal, state)) => {
                    drop(journal);
                    (copy.device, state)
                }
                Err(error) => {
                    tell.add(error);
                    (home, LogState::Unusable)
                }
            }
        }
        Err(error) => {
            tell.add(error);
            (home, LogState::Unusable)
        }
    }
}

/// Parts of inodes that can't be rebuilt.
pub(crate) type GivenUp = BTreeSet<(u64, Part)>;

/// A check under way.
pub(crate) struct Check<'d, 'w> {
    pub(crate) media: Media<'d>,
    pub(crate) tell: Findings<'w>,
    /// Blocks that have an owner.
    pub(crate) used: BlockSet,
    /// Number of blocks that were given an owner; a block with two owners counts twice.
    pub(crate) own_count: u64,
    pub(crate) groups: Vec<GroupState>,
    pub(crate) links: Links,
    pub(crate) figures: Figures,
    pub(crate) unfinished: Unfinished,
    stopped: Option<Stopped>,
    /// Changes that a repair is to make; `None` in a check without repair.
    pub(crate) plan: Option<Plan>,
    /// For a repair: the parts of inodes that it can't rebuild.
    given_up: Option<&'d GivenUp>,
    /// Possible chunks of inodes, where trees of chunks are damaged.
    candidates: Vec<Candidate>,
    /// Parts of inodes that can't be read completely, and are to be rebuilt.
    broken: Vec<(u64, Part)>,
    /// Unreferenced blocks of trees; searched only when needed.
    strays: OnceCell<Strays>,
    /// Whether all metadata in use could be read: then a block without an owner is not in use.
    pub(crate) is_complete: bool,
    /// Whether some blocks have two owners.
    pub(crate) has_shared: bool,
    /// Whether all names could be read.
    pub(crate) is_named: bool,
    /// Whether all chunks of inodes are known.
    pub(crate) has_all_chunks: bool,
}

impl<'d, 'w> Check<'d, 'w> {
    /// Checks the volume on a device that no other program writes during the check. For a repair,
    /// collects the changes to make; `given_up` lists the parts that can't be rebuilt.
    fn run(
        device: &'d dyn Device,
        found: &FoundSuperblock,
        tell: Findings<'w>,
        given_up: Option<&'d GivenUp>,
    ) -> Self {
        let blocks = found.superblock.geometry().blocks();
        let mut check = Self {
            media: Media::new(device, &found.superblock),
            tell,
            used: BlockSet::new(blocks),
            own_count: 0,
            groups: Vec::new(),
            links: Links::default(),
            figures: Figures { blocks, ..Figures::default() },
            unfinished: Unfinished::default(),
            stopped: found.superblock.stopped.clone(),
            plan: given_up.map(|_| Plan::default()),
            given_up,
            candidates: Vec::new(),
            broken: Vec::new(),
            strays: OnceCell::new(),
            is_complete: true,
            has_shared: false,
            is_named: true,
            has_all_chunks: true,
        };
        check.superblocks(found);
        check.groups();
        check.records();
        check.contents();
        check.salvage();
        check.names();
        check.free_space();
        check
    }

    fn superblocks(&mut self, found: &FoundSuperblock) {
        // The superblock is written before its copies: a crash in between leaves the copies old.
        let is_first_current =
            found.copies.first().map(|copy| &copy.state) == Some(&CopyState::Current);
        for copy in &found.copies {
            let state = match &copy.state {
                CopyState::Current => continue,
                CopyState::Old { .. } if is_first_current => {
                    self.unfinished.copies += 1;
                    continue;
                }
                CopyState::Old { generation } => {
                    let newest = found.superblock.generation();
                    format!("generation {generation}, where the newest is {newest}")
                }
                CopyState::Damaged(error) => error.to_string(),
                CopyState::Unreadable(error) => error.to_string(),
            };
            self.tell.add(Problem::Copy { address: copy.address, state });
        }
        if found.superblock.features.needs_repair() {
            self.tell.add(Problem::Interrupted);
        }
        if let LogPlace::Inside { start, blocks } = found.superblock.log() {
            self.used.insert(start..start + blocks, |_| {});
        }
    }

    /// Reports metadata that can't be read: the blocks that belong to it are then unknown.
    pub(crate) fn lost(&mut self, damage: impl Into<Problem>) {
        self.tell.add(damage);
        self.is_complete = false;
    }

    /// Records the owner of blocks of metadata.
    pub(crate) fn own(&mut self, blocks: Range<u64>, owner: Owner) {
        self.own_as(blocks, owner, |plan, blocks| plan.tree_blocks.push(blocks));
    }

    /// Records the owner of blocks of file data.
    pub(crate) fn own_data(&mut self, blocks: Range<u64>, ino: u64) {
        self.own_as(blocks, Owner::Inode(ino), |plan, blocks| {
            plan.moves.entry(ino).or_default().push(blocks);
        });
    }

    fn own_as(&mut self, blocks: Range<u64>, owner: Owner, shared: impl Fn(&mut Plan, Range<u64>)) {
        if !self.media.is_common(&blocks) {
            return self.lost(Problem::Outside { blocks, owner });
        }
        self.own_count += blocks.end - blocks.start;
        let Self { used, tell, has_shared, plan, .. } = self;
        used.insert(blocks, |blocks| {
            *has_shared = true;
            if let Some(plan) = plan {
                shared(plan, blocks.clone());
            }
            tell.add(Problem::Shared { blocks, owner });
        });
    }

    /// Returns whether, as far as the check knows, each block has one owner or is not in use.
    pub(crate) fn is_settled(&self) -> bool {
        self.is_complete && !self.has_shared
    }

    /// Records a change for the repair.
    pub(crate) fn plan(&mut self, add: impl FnOnce(&mut Plan)) {
        if let Some(plan) = &mut self.plan {
            add(plan);
        }
    }

    /// Records a change of an inode for the repair.
    pub(crate) fn fix(&mut self, ino: u64, fix: impl FnOnce(&mut InodeFix)) {
        self.plan(|plan| fix(plan.inode(ino)));
    }

    fn into_report(self, log: LogState) -> Report {
        let Findings { findings, count, .. } = self.tell;
        let (unfinished, finished) = (self.unfinished, Orphans::default());
        let (left, discarded, stopped, figures) = (count, None, self.stopped, self.figures);
        Report { findings, count, left, log, stopped, discarded, unfinished, finished, figures }
    }
}

#[cfg(test)]
pub(crate) mod tests;
