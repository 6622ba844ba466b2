//! Waiting awake for a short push.
//!
//! Two threads that force the log in turn wait for each other's pushes. On a disk a push takes
//! milliseconds, and to sleep costs nothing beside it. On a device that is quick (memory, a file in the page
//! cache) it takes less than to fall asleep and to be woken, and whoever sleeps lets the writer's
//! place stay empty meanwhile, so that two threads would be slower than one. So a thread may wait awake for
//! as long as pushes took lately, if that was not long.
//!
//! One thread at a time does so: others that wait have nothing to do first, since they are served together,
//! and would only keep the one that pushes from its CPU.

use std::time::{Duration, Instant};

use vfscale_sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What falling asleep and being woken costs, about. For longer pushes nobody stays awake.
const AWAKE_MAX: Duration = Duration::from_micros(50);
/// Looks at the state between two looks at the clock.
const LOOKS: u32 = 16;

/// How long pushes take, and whether one is under way.
pub(crate) struct Pace {
    /// A moving average, in nanoseconds.
    push_nanos: AtomicU64,
    /// Pushes that have ended.
    ended: AtomicU64,
    is_watched: AtomicBool,
}

impl Pace {
    pub(crate) fn new() -> Self {
        Self {
            push_nanos: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            is_watched: AtomicBool::new(false),
        }
    }

    /// A push has taken so long. Called by who has the writer.
    pub(crate) fn took(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let before = self.push_nanos.load(Ordering::Relaxed);
        self.push_nanos.store(before - before / 4 + nanos / 4, Ordering::Relaxed);
    }

    /// The writer is free again. Called with the log's state locked.
    pub(crate) fn end(&self) {
        self.ended.fetch_add(1, Ordering::Release);
    }

    /// How many times it has become free. With the log's state locked, and the writer taken, the
    /// next time is that of the push under way.
    pub(crate) fn ended(&self) -> u64 {
        self.ended.load(Ordering::Acquire)
    }

    /// Waits until [`end`](Self::end) has been called since [`ended`](Self::ended) gave `before`, if that is
    /// soon. The caller holds nothing, and looks at the log's state again.
    pub(crate) fn stay_awake(&self, before: u64) {
        let expected = Duration::from_nanos(self.push_nanos.load(Ordering::Relaxed));
        // In a model time does not pass.
        if cfg!(shuttle) || expected > AWAKE_MAX || self.is_watched.swap(true, Ordering::Relaxed) {
            return;
        }
        let begun = Instant::now();
        while self.ended() == before && begun.elapsed() < AWAKE_MAX {
            for _ in 0..LOOKS {
                std::hint::spin_loop();
            }
        }
        self.is_watched.store(false, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests;
