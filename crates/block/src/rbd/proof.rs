//! When a flush needs not ask for the lock, because a write has asked.
//!
//! A volume that syncs writes once, flushes, and writes once again. A question after each write
//! would be a second wait for the cluster. So once a flush has followed a single write, the next
//! single write asks too, while it is under way. The flush after it takes that answer if no other
//! write has begun since, and asks itself otherwise. An answer serves one flush.
//!
//! That is as good as a question of the flush's own. A take-over that comes after the answer, while
//! the write is still under way, puts this client on the blocklist first. An OSD then refuses the
//! write if it has served the new holder, so a write that succeeds was applied before the new
//! holder read anything of that OSD; it finds the write there. (Who removes the lock by hand and
//! without the blocklist can miss a write that is under way at that moment. But then nothing stops
//! the writes that no flush has covered either.)

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The writes of an image, and which of them are covered by a question for the lock.
#[derive(Debug, Default)]
pub(super) struct Proof {
    /// Number of writes that were begun.
    begun: AtomicU64,
    /// That number when the last question that got a good answer was asked, until a flush takes it.
    asked: AtomicU64,
    /// That number at the last flush.
    flushed: AtomicU64,
    /// Whether the last flush came after a single write.
    is_single: AtomicBool,
}

impl Proof {
    /// Counts a write that was sent. Returns its number if a flush is likely to be next: the caller
    /// asks for the lock then, and calls [`asked`](Self::asked).
    pub(super) fn write_begun(&self) -> Option<u64> {
        let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let is_first = number == self.flushed.load(Ordering::Relaxed) + 1;
        (is_first && self.is_single.load(Ordering::Relaxed)).then_some(number)
    }

    /// Notes that this client had the lock, as a question after the write of that number said.
    pub(super) fn asked(&self, number: u64) {
        self.asked.fetch_max(number, Ordering::SeqCst);
    }

    /// Begins a flush. Returns whether it has to ask for the lock.
    pub(super) fn flush_begun(&self) -> bool {
        let begun = self.begun.load(Ordering::SeqCst);
        let before = self.flushed.swap(begun, Ordering::Relaxed);
        self.is_single.store(begun == before + 1, Ordering::Relaxed);
        let asked = self.asked.swap(0, Ordering::SeqCst);
        asked == 0 || asked != begun
    }
}

#[cfg(test)]
mod tests;
