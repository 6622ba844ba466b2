//! The result of a check.

use super::finding::Finding;
use super::log::{Discarded, LogState};
#[cfg(doc)]
use super::options::Options;
use super::watch::Watch;
use crate::format::superblock::Stopped;
use crate::icache::inactivate::Orphans;
use crate::tools::stopped::stopped;
use crate::tools::value::Value;

/// Numbers of blocks and inodes of a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Size of the volume, in blocks.
    pub blocks: u64,
    /// Number of blocks that are not free.
    pub used_blocks: u64,
    /// Number of inodes in use.
    pub inodes: u64,
    /// Number of directories among them.
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
    /// The findings, at most [`Options::findings`].
    pub findings: Vec<Finding>,
    /// Number of all findings.
    pub count: u64,
    /// Number of findings that remain: after a repair, those of a second check.
    pub left: u64,
    /// State of the log.
    pub log: LogState,
    /// The error that stopped a mount since the last check that found the volume undamaged. A
    /// repair that leaves no finding clears it.
    pub stopped: Option<Stopped>,
    /// The log that was discarded, or would be, if [`Options::discard_log`] is set.
    pub discarded: Option<Discarded>,
    /// Work for the next mount, as the check found it.
    pub unfinished: Unfinished,
    /// Work for the next mount that a repair has done.
    pub finished: Orphans,
    /// Numbers of blocks and inodes of the volume.
    pub figures: Figures,
}

impl Report {
    /// Adds a finding that was repaired.
    pub(super) fn add(&mut self, finding: Finding, findings_max: usize, watch: &mut dyn Watch) {
        watch.finding(&finding);
        self.count += 1;
        if self.findings.len() < findings_max {
            self.findings.push(finding);
        }
    }

    /// Returns the report as names and values.
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
