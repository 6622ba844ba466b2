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

/// The notes of a thread.
pub(crate) struct Section {
    /// The number of the latest grace period when the thread entered its section, or 0.
    entered: AtomicU64,
    /// The number of the latest grace period for which the thread has reported a quiescent state:
    /// it has left all sections that it entered before. 0 if it is *idle*: it must report before
    /// it reads anything in a section.
    reported: AtomicU64,
}

/// Whether a thread may be in a section that began before a grace period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quiescent {
    /// The thread is in none: it has reported, or is idle.
    Yes,
    /// The thread has not reported: it is in such a section, or enters none.
    Unknown,
}

impl Epoch {
    /// Creates an epoch in which no grace period has begun: both words contain 1.
    pub(crate) const fn new(begun: AtomicU64, over: AtomicU64) -> Self {
        Self { begun: Line(begun), over: Line(over) }
    }

    /// Enters a section, of a thread that is in none, and reports a quiescent state if a grace
    /// period has begun since the thread did so.
    #[inline]
    pub(crate) fn enter(&self, section: &Section) {
        // Acquire: what the section reads, it reads after the number.
        let latest = self.begun.0.load(Ordering::Acquire);
        // Release: the driver may read this note and not the zero before it, with which the thread
        // has left its former section.
        section.entered.store(latest, Ordering::Release);
        light_fence();
        if section.reported.load(Ordering::Relaxed) != latest {
            section.report(latest);
        }
    }

    /// Reports a quiescent state of a thread that is in no section.
    pub(crate) fn report(&self, section: &Section) {
        section.report(self.begun.0.load(Ordering::Acquire));
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

    /// Begins a grace period, and returns its number. One thread at a time does this, the calls of
    /// [`Section`] for grace periods and [`finish`](Self::finish), and not before the former grace
    /// period is over.
    pub(crate) fn begin(&self) -> u64 {
        let number = self.begun.0.load(Ordering::Relaxed) + 1;
        self.begun.0.store(number, Ordering::Release);
        // Before the reports are read: a thread whose report is not seen sees the number, or what
        // was unlinked before the number was stored.
        fence(Ordering::SeqCst);
        number
    }

    /// Makes the notes of all threads that were [suspected](Section::suspect) readable: those of
    /// their [sections](Section::delays), and theirs of the suspicion. Returns false if no fence
    /// can be relied upon yet; then the caller calls it again before anything else.
    pub(crate) fn expedite() -> bool {
        heavy_fence()
    }

    /// Ends a grace period. Since it began, all threads that were known after that have been seen
    /// [quiescent](Section::quiescent), or suspected and, after [`expedite`](Self::expedite), in no
    /// section that [delays](Section::delays) it.
    pub(crate) fn finish(&self, number: u64) {
        self.over.0.store(number, Ordering::Release);
    }
}

impl Section {
    /// Creates the notes of a thread that is in no section and idle: both words contain 0.
    pub(crate) const fn new(entered: AtomicU64, reported: AtomicU64) -> Self {
        Self { entered, reported }
    }

    #[cold]
    fn report(&self, latest: u64) {
        // Release: what former sections have read, they have read before.
        self.reported.store(latest, Ordering::Release);
        // If the driver has not seen the report, this section sees what was unlinked before the
        // driver's fence.
        fence(Ordering::SeqCst);
    }

    /// Leaves the section.
    #[inline]
    pub(crate) fn leave(&self) {
        self.entered.store(0, Ordering::Release);
    }

    /// Marks the thread as idle, for one that is in no section and enters none for long.
    pub(crate) fn rest(&self) {
        // Release: what sections have read, they have read before.
        self.reported.store(0, Ordering::Release);
    }

    /// Returns whether the thread is in a quiescent state for the grace period.
    pub(crate) fn quiescent(&self, number: u64) -> Quiescent {
        // Acquire: another thread may end the grace period, so what the thread has read is ordered
        // before the end by the driver's lock, not by a fence of the one that ends it.
        let reported = self.reported.load(Ordering::Acquire);
        if reported >= number || reported == 0 { Quiescent::Yes } else { Quiescent::Unknown }
    }

    /// Marks a thread that has not reported for the grace period as idle. That counts only once
    /// [`Epoch::expedite`] has returned true.
    pub(crate) fn suspect(&self, number: u64) {
        let reported = self.reported.load(Ordering::Relaxed);
        if reported < number {
            // A thread that reports at this moment isn't idle.
            let (set, failed) = (Ordering::Relaxed, Ordering::Relaxed);
            let _ = self.reported.compare_exchange(reported, 0, set, failed);
        }
    }

    /// Returns whether the thread is in a section that began before the grace period. Its notes
    /// have been made readable in this grace period.
    pub(crate) fn delays(&self, number: u64) -> bool {
        // Acquire: as in `quiescent`.
        let entered = self.entered.load(Ordering::Acquire);
        entered != 0 && entered < number
    }
}
