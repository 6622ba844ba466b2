//! Adaptive spinning for short pushes, and the time limit of group commit.
//!
//! Two threads that force the log alternately wait for each other's pushes. On a disk a push takes
//! milliseconds, and sleeping costs little in comparison. On a fast device (memory, a file in the
//! page cache) a push takes less time than falling asleep and being woken, and the writer is idle
//! while a thread wakes up: two threads would be slower than one. So a thread may spin for as long
//! as recent pushes took, if that was not long.
//!
//! Only one thread spins at a time. Other waiting threads have nothing to do first, since they are
//! served together, and would only take the CPU from the pushing thread.
//!
//! For pushes that are not short it pays to wait for more callers: [`GroupDeadline`] limits how
//! long.

use std::time::{Duration, Instant};

use vfscale_sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Approximate cost of falling asleep and being woken. No thread spins for longer pushes.
const SPIN_MAX: Duration = Duration::from_micros(50);
/// Longest time that a caller waits for others, however long pushes take.
const GROUP_WAIT_MAX: Duration = Duration::from_millis(15);
/// Largest duration of a push that counts, as a multiple of the usual duration.
const GROWTH_MAX: u64 = 2;
/// Number of pauses between two reads of the clock.
const PAUSES_PER_LOOK: u32 = 16;

/// The usual duration of a push, and the number of pushes, for threads that spin.
pub(crate) struct SpinWait {
    /// Moving average, in nanoseconds.
    push_nanos: AtomicU64,
    /// Duration of the last push, in nanoseconds.
    last_nanos: AtomicU64,
    /// Number of pushes that have ended.
    ended: AtomicU64,
    is_spinning: AtomicBool,
}

impl SpinWait {
    pub(crate) fn new() -> Self {
        Self {
            push_nanos: AtomicU64::new(0),
            last_nanos: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            is_spinning: AtomicBool::new(false),
        }
    }

    /// Notes the duration of a push. The caller holds the writer.
    ///
    /// Counts the shorter one of this push and the last, and at most [`GROWTH_MAX`] times the usual
    /// duration: now and then a flush of a disk takes fifty times as long as usual, and a thread
    /// loses its CPU in a push that takes microseconds. After that, callers would wait far too long
    /// for others, or sleep where the next push ends before they could be woken.
    pub(crate) fn note_push(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let nanos = nanos.min(self.last_nanos.swap(nanos, Ordering::Relaxed));
        let before = self.push_nanos.load(Ordering::Relaxed);
        let most = GROWTH_MAX * before.max(SPIN_MAX.as_nanos() as u64);
        let nanos = nanos.min(most);
        self.push_nanos.store(before - before / 4 + nanos / 4, Ordering::Relaxed);
    }

    /// Notes that the writer is free again. Called with the log's state locked.
    pub(crate) fn note_end(&self) {
        self.ended.fetch_add(1, Ordering::Release);
    }

    /// Returns how many times the writer has become free. While the log's state is locked and the
    /// writer is taken, the next time is the end of the current push.
    pub(crate) fn ended(&self) -> u64 {
        self.ended.load(Ordering::Acquire)
    }

    /// Returns the usual duration of a push.
    fn usual_push(&self) -> Duration {
        Duration::from_nanos(self.push_nanos.load(Ordering::Relaxed))
    }

    /// Spins until [`note_end`](Self::end) has been called since [`ended`](Self::ended) returned
    /// `before`, if that is soon. The caller holds no lock, and checks the log's state again.
    pub(crate) fn spin(&self, before: u64) {
        // In a model, time does not pass.
        if cfg!(shuttle)
            || self.usual_push() > SPIN_MAX
            || self.is_spinning.swap(true, Ordering::Relaxed)
        {
            return;
        }
        let begun = Instant::now();
        while self.ended() == before && begun.elapsed() < SPIN_MAX {
            for _ in 0..PAUSES_PER_LOOK {
                std::hint::spin_loop();
            }
        }
        self.is_spinning.store(false, Ordering::Relaxed);
    }
}

/// A caller's time limit for waiting for others: the duration of a push, from the caller's first
/// check on, and zero if pushes end before a thread could be woken.
#[derive(Default)]
pub(crate) struct GroupDeadline {
    until: Option<Instant>,
    /// Whether the time is up.
    pub(crate) has_passed: bool,
}

impl GroupDeadline {
    pub(crate) fn remaining(&mut self, spin_wait: &SpinWait) -> Option<Duration> {
        // In a model every timed wait ends immediately, but the caller must make it.
        let usual_push = if cfg!(shuttle) { GROUP_WAIT_MAX } else { spin_wait.usual_push() };
        if self.has_passed || usual_push <= SPIN_MAX {
            return None;
        }
        let now = Instant::now();
        let until = *self.until.get_or_insert_with(|| now + usual_push.min(GROUP_WAIT_MAX));
        Some(until.saturating_duration_since(now)).filter(|remaining| !remaining.is_zero())
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests;
