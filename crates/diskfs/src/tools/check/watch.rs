//! The phases of a check, its observer, and the findings that it reports.

use super::finding::{Finding, Problem};

/// Phase of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The log, without a count of parts.
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

/// The findings so far.
pub(crate) struct Findings<'w> {
    watch: &'w mut dyn Watch,
    pub(super) findings: Vec<Finding>,
    max: usize,
    pub(super) count: u64,
}

impl<'w> Findings<'w> {
    pub(super) fn new(watch: &'w mut dyn Watch, max: usize) -> Self {
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
