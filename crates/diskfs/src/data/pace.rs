//! How fast a cut writes pages while the gate is shut.
//!
//! A cut can write what is dirty before it shuts the gate, so its writers wait for little behind
//! it. That is worth it if the device is slow. If it is as fast as memory, writers make pages dirty
//! faster than they are written, and the thread that cuts competes with them for the CPUs: beside
//! eight of them on two CPUs, a millisecond of write-back took 14, and up to 60 with all rounds,
//! after which as much was dirty as before. Writers also wait in that time, since there is a limit
//! for what they have dirty. Behind the shut gate they sleep, and the same pages take one or two
//! milliseconds.
//!
//! So each cut notes how long a page took behind the gate, and the next one writes nothing before
//! it if all that is dirty can be expected to take [`QUICK`]. Nothing that a cut promises depends
//! on this: it always writes all that is dirty when the gate is shut.
//!
//! A thread may lose its CPU behind the gate as well. Therefore the time of a page at most doubles
//! from one cut to the next: one that was held up does not make the next one slow, and a device
//! that has become slow is known as such after a few.
//!
//! A writer that is short of memory asks the same: to a quick device it writes a part of a file, so
//! it waits for less (`Files::write_part_back`).

use std::time::Duration;

use vfscale_sync::atomic::{AtomicU64, Ordering};

/// The time that a cut may write with the gate shut: about what eight threads on two CPUs wait for
/// their turn.
const QUICK: Duration = Duration::from_millis(8);
/// The time of fewer pages is that of so many: most of it is not for the pages.
const PAGES_MIN: u64 = 64;

/// The time of a page behind the gate. `Send` and `Sync`.
#[derive(Debug)]
pub(super) struct Pace {
    /// In nanoseconds; [`u64::MAX`] before the first cut.
    of_page: AtomicU64,
}

impl Pace {
    pub(super) fn new() -> Self {
        Self { of_page: AtomicU64::new(u64::MAX) }
    }

    /// Returns whether so many pages can be written in [`QUICK`]. No is the answer before the first
    /// cut.
    pub(super) fn is_quick(&self, pages: u64) -> bool {
        let nanos = self.of_page.load(Ordering::Relaxed).saturating_mul(pages);
        Duration::from_nanos(nanos) <= QUICK
    }

    #[cfg(test)]
    pub(super) fn is_known(&self) -> bool {
        self.of_page.load(Ordering::Relaxed) != u64::MAX
    }

    /// Notes how long `pages` pages took with the gate shut.
    pub(super) fn note(&self, pages: u64, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let of_page = (nanos / pages.max(PAGES_MIN)).max(1);
        let before = self.of_page.load(Ordering::Relaxed);
        self.of_page.store(of_page.min(before.saturating_mul(2)), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
