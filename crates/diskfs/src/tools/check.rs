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
mod finding;
mod groups;
mod home;
mod inodes;
mod log;
mod media;
mod names;
mod plan;
mod repair;
mod salvage;
mod space;

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use vfscale_block::Device;

pub use discard::Discarded;
pub use finding::{Figure, Finding, Owner, Part, Problem, Remedy, Severity};
pub use log::LogState;

use crate::LogPlace;
use crate::base::fault::Fault;
use crate::format::superblock::Stopped;
use crate::icache::inactivate::Orphans;
use crate::tools::stopped::stopped;
use crate::tools::value::Value;
use crate::volume::copies::{self, CopyState, FoundSuperblock, OpenError};
use blocks::BlockSet;
use chunks::Candidate;
use groups::GroupState;
pub(crate) use log::CheckedLog;
pub(crate) use media::{Media, NoChange};
use names::Links;
use plan::{InodeFix, Plan};
use salvage::Strays;

/// Options of a check.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whether to repair what can be repaired.
    pub repair: bool,
    /// Whether a repair gives the volume a new, empty log, and discards the contents of the former
    /// one, if that can't be replayed. Without a repair: whether to report what would be lost.
    pub discard_log: bool,
    /// The device of the log, if it is not in the volume. A new log may be on another one than
    /// before.
    pub log: Option<Arc<dyn Device>>,
    /// Maximum number of findings in the report; all are counted, and passed to the [`Watch`].
    pub findings: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { repair: false, discard_log: false, log: None, findings: 1000 }
    }
}

/// Phase of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The log; counted in nothing.
    Log,
    /// Groups, and the inodes in each.
    Groups,
    /// Inodes, by chunk.
    Inodes,
    /// Contents of the inodes, by chunk.
    Contents,
    /// Paths from the root to all directories, and link counts.
    Names,
    /// Free space, by group.
    FreeSpace,
    /// Repair.
    Repair,
}

impl Phase {
    /// Returns the name of the phase, in a word or two.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Groups => "groups",
            Self::Inodes => "inodes",
            Self::Contents => "contents",
            Self::Names => "names",
            Self::FreeSpace => "free space",
            Self::Repair => "repair",
        }
    }
}

/// Observer of the findings and the progress of a check.
pub trait Watch {
    /// Reports a finding.
    fn finding(&mut self, finding: &Finding) {
        let _ = finding;
    }

    /// Reports that `done` of `of` parts of the phase are done.
    fn progress(&mut self, phase: Phase, done: u64, of: u64) {
        let _ = (phase, done, of);
    }
}

/// An observer that ignores all reports.
impl Watch for () {}

/// Numbers of blocks and inodes of a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Size of the volume, in blocks.
    pub blocks: u64,
    /// Blocks that are not free space.
    pub used_blocks: u64,
    /// Inodes in use.
    pub inodes: u64,
    /// Directories among them.
    pub directories: u64,
}

/// Work that an interrupted mount left to the next one: no damage, and nothing is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unfinished {
    /// Number of inodes without a name that are to be removed.
    pub removals: u64,
    /// Number of files that are still to be truncated.
    pub cuts: u64,
    /// Number of copies of the superblock that are older than its last write.
    pub copies: u64,
}

/// Result of a check.
#[derive(Clone, Debug)]
pub struct Report {
    /// The findings, at most [`Options::findings`] of them.
    pub findings: Vec<Finding>,
    /// Number of all findings.
    pub count: u64,
    /// Number of findings that remain: after a repair, those of a second check.
    pub left: u64,
    /// State of the log.
    pub log: LogState,
    /// The error that stopped a mount since the last check that found the volume whole. A repair
    /// that leaves no finding clears it.
    pub stopped: Option<Stopped>,
    /// The log that was discarded, or would be, if [`Options::discard_log`] is set.
    pub discarded: Option<Discarded>,
    /// Work that the next mount would finish, as it was found.
    pub unfinished: Unfinished,
    /// Work of that kind that a repair has finished.
    pub finished: Orphans,
    /// Numbers of blocks and inodes of the volume.
    pub figures: Figures,
}

/// Error of a check or a repair that could not be completed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckError {
    /// There is no volume, or none that this program knows.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The log is on another device than the one that was named.
    #[error("{why}")]
    LogDevice {
        /// Description of the mismatch.
        why: String,
    },
    /// The volume has a feature that this program does not know, and may only be read.
    #[error(
        "the volume has features that this program does not know: it can be checked, not repaired"
    )]
    ReadOnly,
    /// A repair could not be written. What was done so far is whole.
    #[error("the repair could not be written: {0}")]
    Repair(#[from] vfscale_journal::Error),
    /// The superblock could not be written.
    #[error(transparent)]
    Device(#[from] vfscale_block::Error),
    /// The volume is repaired, but what a mount had begun could not be finished.
    #[error("the volume is repaired, but inodes without a name could not be removed: {0}")]
    Finish(Arc<Fault>),
}

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

/// The findings so far.
pub(crate) struct Findings<'w> {
    watch: &'w mut dyn Watch,
    findings: Vec<Finding>,
    max: usize,
    count: u64,
}

impl<'w> Findings<'w> {
    fn new(watch: &'w mut dyn Watch, max: usize) -> Self {
        Self { watch, findings: Vec::new(), max, count: 0 }
    }

    pub(crate) fn add(&mut self, problem: impl Into<Problem>) {
        let finding = Finding::from(problem.into());
        self.watch.finding(&finding);
        self.count += 1;
        if self.findings.len() < self.max {
            self.findings.push(finding);
        }
    }

    pub(crate) fn progress(&mut self, phase: Phase, done: u64, of: u64) {
        self.watch.progress(phase, done, of);
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

impl Report {
    /// Returns the report as names and values.
    #[must_use]
    pub fn to_value(&self) -> Value {
        let finding = |finding: &Finding| {
            Value::fields()
                .with("number", finding.number())
                .with("severity", finding.severity.name())
                .with("text", finding.to_string())
                .with("repair", finding.remedy.words())
        };
        let log = match self.log {
            LogState::Clean => Value::fields().with("state", "clean"),
            LogState::Replayed { checkpoints, items } => Value::fields()
                .with("state", "replayed")
                .with("checkpoints", checkpoints)
                .with("items", items),
            LogState::Unusable => Value::fields().with("state", "unusable"),
        };
        let log = match &self.discarded {
            None => log,
            Some(Discarded { why, checkpoints, records }) => log
                .with("discarded", why.is_some())
                .with("lost checkpoints", *checkpoints)
                .with("lost records", *records),
        };
        let Unfinished { removals, cuts, copies } = self.unfinished;
        let unfinished = Value::fields()
            .with("removals", removals)
            .with("cuts", cuts)
            .with("superblock copies", copies);
        Value::fields()
            .with("found", self.count)
            .with("left", self.left)
            .with("log", log)
            .with("stopped", self.stopped.as_ref().map(stopped))
            .with("unfinished", unfinished)
            .with("blocks", self.figures.blocks)
            .with("used blocks", self.figures.used_blocks)
            .with("inodes", self.figures.inodes)
            .with("directories", self.figures.directories)
            .with("findings", self.findings.iter().map(finding).collect::<Value>())
    }
}

#[cfg(test)]
pub(crate) mod tests;
