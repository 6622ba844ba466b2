//! How much free memory the pool keeps.
//!
//! # Purpose
//!
//! Memory that the process has just freed is likely to be needed again, and taking it from the
//! system anew costs two microseconds for each page. Memory that is not needed should go back. So
//! the pool keeps what was in use at the high-water mark of the last second, and half of the rest.
//!
//! Time is divided into windows of a second. The least number of free pages in a window is the
//! number that the process could have done without: that many lay idle all the time (the *working
//! set* of a depot in Bonwick and Adams, USENIX 2001). At the end of each window half of these
//! are surplus, which the reclaim thread gives back. [`FLOOR`] pages are never surplus, so a
//! program that works now and then finds some memory; and a window that never saw more needs no
//! thread. If the system is short of memory at the end of a window, all free pages of the depot are
//! surplus.
//!
//! # Bounds
//!
//! The owner sets the most that may be free ([`set_idle_max`](crate::page::set_idle_max)). What
//! exceeds that is given back at once, however much it was used.

use super::magazine::MAGAZINE;
use super::region::PAGES;
use crate::machine;
use crate::mem::page::size::PAGE_SIZE;

/// Free pages that are kept without a limit in time, on all nodes together: 16 MiB.
pub(super) const FLOOR: usize = (16 << 20) / PAGE_SIZE;
/// The share of each CPU in the maximum by default, in pages: a file of 16 MiB that its thread
/// truncates and writes again, while the former pages still wait for a grace period.
const EACH_CPU: usize = (32 << 20) / PAGE_SIZE;
/// The maximum by default is at most the memory that the process may use divided by this.
const MEMORY_SHARE: u64 = 16;

/// The free memory that stays when the pool gives memory back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kept {
    /// As much as the owner allows, without the surplus.
    ByUse,
    /// As much as the owner allows.
    Max,
    /// The share of the node in [`FLOOR`].
    Floor,
    /// None.
    Nothing,
}

/// The state of the current window, in pages. Used under the lock of the depot.
pub(super) struct Keep {
    max: usize,
    /// Pages that are never surplus, unless the system is short of memory.
    floor: usize,
    /// The least number of free pages in this window so far.
    least: usize,
    /// Pages that lay idle in former windows and have not been given back yet.
    surplus: usize,
    /// Whether the system was short of memory at the end of the last window.
    is_short: bool,
}

impl Keep {
    /// Begins with the default maximum of one of `nodes` nodes, for a node with `slots` slots.
    pub(super) fn new(nodes: usize, slots: usize) -> Self {
        let memory = machine::memory_bytes() / MEMORY_SHARE / PAGE_SIZE as u64 / nodes as u64;
        let by_cpus = slots * EACH_CPU;
        let max = usize::try_from(memory).map_or(by_cpus, |memory| memory.min(by_cpus));
        let floor = FLOOR / nodes;
        Self { max: max.max(floor), floor, least: 0, surplus: 0, is_short: false }
    }

    /// Returns the maximum number of free pages.
    pub(super) fn max(&self) -> usize {
        self.max
    }

    /// Sets the maximum number of free pages.
    pub(super) fn set_max(&mut self, max: usize) {
        self.max = max;
    }

    /// Returns whether a full magazine may be added to `idle` free pages.
    pub(super) fn has_room(&self, idle: usize) -> bool {
        idle + MAGAZINE <= self.max
    }

    /// Returns whether `idle` free pages become fewer in time.
    pub(super) fn decays(&self, idle: usize) -> bool {
        idle > self.floor()
    }

    fn floor(&self) -> usize {
        if self.is_short { 0 } else { self.floor.min(self.max) }
    }

    /// Notes that the number of free pages has fallen to `idle`.
    pub(super) fn note_fewer(&mut self, idle: usize) {
        self.least = self.least.min(idle);
        // Pages that are needed after all are not surplus.
        self.surplus = self.surplus.min(idle.saturating_sub(self.floor()));
    }

    /// Notes that `pages` of the free pages have been given back, which leaves `idle`.
    pub(super) fn note_returned(&mut self, pages: usize, idle: usize) {
        self.surplus = self.surplus.saturating_sub(pages);
        self.note_fewer(idle);
    }

    /// Ends a window, and begins the next one with `idle` free pages. All of them are surplus if
    /// the system is short of memory.
    pub(super) fn end_window(&mut self, idle: usize, is_short: bool) {
        self.is_short = is_short;
        let unused = self.least.saturating_sub(self.floor());
        // The last region at once, or the halves would never come to an end.
        self.surplus = if is_short { idle } else { (unused / 2).max(unused.min(PAGES)) };
        self.least = idle;
    }

    /// Returns how many of `idle` free pages are to be given back.
    pub(super) fn excess(&self, idle: usize, kept: Kept) -> usize {
        match kept {
            Kept::ByUse => self.surplus.max(idle.saturating_sub(self.max)),
            Kept::Max => idle.saturating_sub(self.max),
            Kept::Floor => idle.saturating_sub(self.floor()),
            Kept::Nothing => idle,
        }
    }
}

#[cfg(test)]
mod tests;
