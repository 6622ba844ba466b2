//! The protocol of the epochs, without threads and bags. `tests/loom/epoch.rs` checks it.

use super::fences::{AtomicU64, Ordering, fence, heavy_fence, light_fence};

/// The number of the latest grace period that has begun, and of the latest that is over.
pub(crate) struct Epoch {
    begun: Line,
    over: Line,
}

/// A word on a line of its own.
#[repr(align(128))]
struct Line(AtomicU64);

/// The note of a thread: the number of the latest grace period when it entered its section, or 0.
pub(crate) struct Section(AtomicU64);

impl Epoch {
    /// Creates an epoch in which no grace period has begun: both words contain 1.
    pub(crate) const fn new(begun: AtomicU64, over: AtomicU64) -> Self {
        Self { begun: Line(begun), over: Line(over) }
    }

    /// Enters a section, of a thread that is in none.
    #[inline]
    pub(crate) fn enter(&self, section: &Section) {
        // Acquire: what the section reads, it reads after the number.
        let latest = self.begun.0.load(Ordering::Acquire);
        // Release: the driver may read this note and not the zero before it, with which the thread
        // has left its former section.
        section.0.store(latest, Ordering::Release);
        light_fence();
    }

    /// Returns the tag of a bag whose calls have been deferred: the number of the first grace
    /// period that begins later.
    pub(crate) fn tag(&self) -> u64 {
        fence(Ordering::SeqCst);
        self.begun.0.load(Ordering::Relaxed) + 1
    }

    /// Returns whether a bag with this tag may run.
    #[inline]
    pub(crate) fn is_over(&self, tag: u64) -> bool {
        self.over.0.load(Ordering::Acquire) >= tag
    }

    /// Begins a grace period, and returns its number; `None` if no fence can be relied upon yet.
    /// One thread at a time does this and [`finish`](Self::finish), and not before the former grace
    /// period is over.
    pub(crate) fn begin(&self) -> Option<u64> {
        let number = self.begun.0.load(Ordering::Relaxed) + 1;
        self.begun.0.store(number, Ordering::Release);
        heavy_fence().then_some(number)
    }

    /// Ends a grace period, for which no section [delays](Section::delays) any more. The sections
    /// are those of all threads that were known after it had begun.
    pub(crate) fn finish(&self, number: u64) {
        fence(Ordering::Acquire);
        self.over.0.store(number, Ordering::Release);
    }
}

impl Section {
    /// Creates the note of a thread that is in no section: `outside` contains 0.
    pub(crate) const fn new(outside: AtomicU64) -> Self {
        Self(outside)
    }

    /// Leaves the section.
    #[inline]
    pub(crate) fn leave(&self) {
        self.0.store(0, Ordering::Release);
    }

    /// Returns whether the thread is in a section that began before the grace period.
    pub(crate) fn delays(&self, number: u64) -> bool {
        let note = self.0.load(Ordering::Relaxed);
        note != 0 && note < number
    }
}
