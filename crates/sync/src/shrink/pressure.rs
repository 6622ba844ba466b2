//! Whether the system is short of memory.
//!
//! # Purpose
//!
//! Free memory that the process retains is of no use to others. If tasks wait for memory, it should
//! go back at once. Linux says so in two files: `memory.pressure` has the time for which tasks
//! stalled (pressure stall information), and `memory.events` counts how often a control group (v2)
//! was at its limit. A process without such a group sees the pressure of the whole machine.

use std::fs;
use std::path::{Path, PathBuf};

/// The time for which some task must have stalled since the last look, in microseconds.
const STALL: u64 = 10_000;

/// The files, and their figures at the last look.
pub(crate) struct Pressure {
    pressure: PathBuf,
    events: Option<PathBuf>,
    stalled: Option<u64>,
    at_limit: Option<u64>,
}

impl Pressure {
    /// Finds the files of the control group of this process, or of the machine.
    pub(crate) fn new() -> Self {
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let group = groups.lines().find_map(|line| line.strip_prefix("0::/"));
        let group = group.map(|group| Path::new("/sys/fs/cgroup").join(group));
        Self::of(group.as_deref(), Path::new("/proc/pressure/memory"))
    }

    fn of(group: Option<&Path>, machine: &Path) -> Self {
        let file =
            |name| group.map(|group| group.join(name)).filter(|file: &PathBuf| file.exists());
        Self {
            pressure: file("memory.pressure").unwrap_or_else(|| machine.to_path_buf()),
            events: file("memory.events"),
            stalled: None,
            at_limit: None,
        }
    }

    /// Returns whether tasks have waited for memory since the last look, or the group was at its
    /// limit. False at the first look, and where the system doesn't say. Reads at most two files.
    pub(crate) fn is_short(&mut self) -> bool {
        let stalled = fs::read_to_string(&self.pressure).ok().and_then(|text| stalled(&text));
        let events = self.events.as_ref().and_then(|file| fs::read_to_string(file).ok());
        let at_limit = events.map(|text| at_limit(&text));
        let more = |now: Option<u64>, before: Option<u64>| {
            now.zip(before).map_or(0, |(now, before)| now.saturating_sub(before))
        };
        let is_short = more(stalled, self.stalled) >= STALL || more(at_limit, self.at_limit) > 0;
        (self.stalled, self.at_limit) = (stalled, at_limit);
        is_short
    }
}

/// Returns the time for which some task has stalled, in microseconds.
fn stalled(pressure: &str) -> Option<u64> {
    let some = pressure.lines().find(|line| line.starts_with("some "))?;
    some.split(' ').find_map(|field| field.strip_prefix("total="))?.parse().ok()
}

/// Returns how often a group was at one of its limits.
fn at_limit(events: &str) -> u64 {
    let count = |line: &str| match line.split_once(' ') {
        Some(("high" | "max" | "oom", count)) => count.trim().parse().unwrap_or(0),
        _ => 0,
    };
    events.lines().map(count).sum()
}

#[cfg(test)]
mod tests;
