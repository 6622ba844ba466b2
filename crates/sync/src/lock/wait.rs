//! Spinning and backing off, before or instead of sleep.
//!
//! A holder that runs leaves its critical section within a microsecond, so a short spin saves two
//! system calls. A holder that lost its CPU does not return for milliseconds, so the spin is
//! bounded. In a model no thread spins: waiters park immediately, and retrying readers yield.

use crate::atomic;
#[cfg(not(any(loom, shuttle)))]
use crate::fork;

/// A bounded spin in front of parking.
#[derive(Default)]
pub(crate) struct Spin {
    rounds: u32,
}

impl Spin {
    /// Number of rounds of doubling pauses: 1 + 2 + ... + 64 pauses, about a microsecond.
    #[cfg(not(any(loom, shuttle)))]
    const ROUNDS: u32 = 7;

    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Waits a little. Returns `false` if the caller should park instead.
    #[cfg(not(any(loom, shuttle)))]
    pub(crate) fn spin(&mut self) -> bool {
        if self.rounds == Self::ROUNDS {
            return false;
        }
        for _ in 0..1_u32 << self.rounds {
            atomic::spin_loop();
        }
        self.rounds += 1;
        true
    }

    /// Returns `false`: a model gains nothing from spinning.
    #[cfg(any(loom, shuttle))]
    pub(crate) fn spin(&mut self) -> bool {
        self.rounds += 1;
        false
    }
}

/// A wait for an event that wakes no thread: spins, then yields, then sleeps for increasing times,
/// up to a millisecond. The sleep lets a low-priority holder run under a real-time scheduler.
#[derive(Default)]
pub(crate) struct Backoff {
    rounds: u32,
}

impl Backoff {
    #[cfg(not(any(loom, shuttle)))]
    const SPIN_ROUNDS: u32 = 7;
    #[cfg(not(any(loom, shuttle)))]
    const YIELD_ROUNDS: u32 = 32;

    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Waits one step, at most a millisecond. Panics in a fork child, where no thread would end the
    /// wait.
    #[cfg(not(any(loom, shuttle)))]
    pub(crate) fn wait(&mut self) {
        if self.rounds < Self::SPIN_ROUNDS {
            for _ in 0..1_u32 << self.rounds {
                atomic::spin_loop();
            }
        } else if self.rounds < Self::YIELD_ROUNDS {
            atomic::yield_now();
        } else {
            fork::assert_no_child();
            let doublings = (self.rounds - Self::YIELD_ROUNDS).min(5);
            std::thread::sleep(std::time::Duration::from_micros(31 << doublings));
        }
        self.rounds = self.rounds.saturating_add(1);
    }

    /// Waits one step: lets the checker run another thread.
    #[cfg(any(loom, shuttle))]
    pub(crate) fn wait(&mut self) {
        self.rounds = self.rounds.wrapping_add(1);
        atomic::yield_now();
    }
}
