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
//!
//! Pushes that are not short are worth waiting for company: [`Patience`] says for how long.

use std::time::{Duration, Instant};

use vfscale_sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What falling asleep and being woken costs, about. For longer pushes nobody stays awake.
const AWAKE_MAX: Duration = Duration::from_micros(50);
/// Nobody waits longer for others to come, however long pushes take.
const PATIENCE_MAX: Duration = Duration::from_millis(15);
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

    /// How long a push takes.
    fn usual(&self) -> Duration {
        Duration::from_nanos(self.push_nanos.load(Ordering::Relaxed))
    }

    /// Waits until [`end`](Self::end) has been called since [`ended`](Self::ended) gave `before`, if that is
    /// soon. The caller holds nothing, and looks at the log's state again.
    pub(crate) fn stay_awake(&self, before: u64) {
        // In a model time does not pass.
        if cfg!(shuttle)
            || self.usual() > AWAKE_MAX
            || self.is_watched.swap(true, Ordering::Relaxed)
        {
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

/// How long a caller still waits for others to come: a push's time from when it first asks, and not at all
/// where pushes are over before somebody is woken.
#[derive(Default)]
pub(crate) struct Patience {
    until: Option<Instant>,
    /// The time is up.
    pub(crate) is_over: bool,
}

impl Patience {
    pub(crate) fn rest(&mut self, pace: &Pace) -> Option<Duration> {
        // In a model every wait for a time is over at once; it is to be made, though.
        let usual = if cfg!(shuttle) { PATIENCE_MAX } else { pace.usual() };
        if self.is_over || usual <= AWAKE_MAX {
            return None;
        }
        let now = Instant::now();
        let until = *self.until.get_or_insert_with(|| now + usual.min(PATIENCE_MAX));
        Some(until.saturating_duration_since(now)).filter(|rest| !rest.is_zero())
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests;
