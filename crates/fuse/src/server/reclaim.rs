//! Waiting for memory that is about to be freed.
//!
//! The kernel does not wait for `FORGET` and `RELEASE`. If a program removes a file and writes
//! another right afterwards, one worker may serve the write while another still frees the memory of
//! the removed file, or has only just read the message. On Linux's own file systems the memory
//! would be free. So after a recent removal, a lack of space is reported only after retrying for a
//! while.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Time after a removal in which memory may still have to be freed.
const LATELY: Duration = Duration::from_millis(500);
/// Time for which to retry.
const PATIENCE: Duration = Duration::from_millis(100);
/// Time between two attempts.
const STEP: Duration = Duration::from_millis(1);

/// A record of requests that free memory.
#[derive(Debug)]
pub(super) struct Reclaim {
    /// Number of such requests being served.
    working: AtomicUsize,
    /// Time of the last removal, in milliseconds after `start`, plus 1; 0 for never.
    removed: AtomicU64,
    start: Instant,
}

/// A request that frees memory, while it is served.
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

    /// Counts a request that may free memory, until the guard is dropped.
    pub(super) fn work(&self) -> Working<'_> {
        self.working.fetch_add(1, Ordering::Relaxed);
        Working(&self.working)
    }

    /// Records that a name was removed.
    pub(super) fn removed(&self) {
        let now = self.now();
        // There are usually many removals per millisecond; all but the first need not write the
        // shared word.
        if self.removed.load(Ordering::Relaxed) != now {
            self.removed.store(now, Ordering::Relaxed);
        }
    }

    /// Repeats `attempt`, which failed for lack of space, while memory may still be freed.
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

    /// Waits until no request that frees memory is being served, for a limited time.
    ///
    /// The caller must not hold the guard of [`work`](Self::work) itself.
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
