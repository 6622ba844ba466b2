//! Waiting for memory that is about to come back.
//!
//! The kernel does not wait for `FORGET` and `RELEASE`. Who removes a file and writes another right
//! after may have the write served by one worker while another still gives the file's memory back,
//! or has only just been handed the message. On Linux's own file systems the memory would be there.
//! So when something was removed lately, lack of space is reported only after a while of trying.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// For how long a removal may still have work behind it.
const LATELY: Duration = Duration::from_millis(500);
/// For how long to try.
const PATIENCE: Duration = Duration::from_millis(100);
/// The time between two tries.
const STEP: Duration = Duration::from_millis(1);

/// Knows of requests that give memory back.
#[derive(Debug)]
pub(super) struct Reclaim {
    /// How many are being served.
    working: AtomicUsize,
    /// When something was removed last, in milliseconds after `start`, plus 1; 0 for never.
    removed: AtomicU64,
    start: Instant,
}

/// One such request.
pub(super) struct Working<'a>(&'a AtomicUsize);

impl Drop for Working<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

impl Reclaim {
    pub(super) fn new() -> Reclaim {
        Reclaim { working: AtomicUsize::new(0), removed: AtomicU64::new(0), start: Instant::now() }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).map_or(u64::MAX, |ms| ms + 1)
    }

    /// To be kept while a request that may give memory back is served.
    pub(super) fn work(&self) -> Working<'_> {
        self.working.fetch_add(1, Ordering::Relaxed);
        Working(&self.working)
    }

    /// Notes that a name was removed.
    pub(super) fn removed(&self) {
        let now = self.now();
        // Most removals come many to a millisecond, and then need not write what all share.
        if self.removed.load(Ordering::Relaxed) != now {
            self.removed.store(now, Ordering::Relaxed);
        }
    }

    /// Tries again what failed for want of space, while there is hope.
    pub(super) fn retry<T>(&self, mut attempt: impl FnMut() -> Option<T>) -> Option<T> {
        let removed = self.removed.load(Ordering::Relaxed);
        if removed == 0 || Duration::from_millis(self.now().saturating_sub(removed)) > LATELY {
            return None;
        }
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            std::thread::sleep(STEP);
            self.finish();
            if let Some(done) = attempt() {
                return Some(done);
            }
        }
        None
    }

    /// Waits for what is under way, for a while at most.
    ///
    /// The caller is not [working](Self::work) itself.
    pub(super) fn finish(&self) {
        if self.working.load(Ordering::Acquire) == 0 {
            return;
        }
        let end = Instant::now() + PATIENCE;
        while self.working.load(Ordering::Acquire) > 0 && Instant::now() < end {
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}
