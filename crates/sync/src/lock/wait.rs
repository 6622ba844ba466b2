//! How a thread waits before it sleeps.
//!
//! A holder that runs leaves its critical section within a microsecond, so a short spin saves two
//! system calls. A holder that lost its CPU does not come back for milliseconds, so the spin is
//! bounded. In a model nobody spins: waiters park at once, and retrying readers yield.

use crate::atomic;
#[cfg(not(any(loom, shuttle)))]
use crate::fork;

/// A bounded spin in front of parking.
#[derive(Default)]
pub(crate) struct Spin {
    rounds: u32,
}

impl Spin {
    /// Rounds of doubling pauses: 1 + 2 + ... + 64 pauses, about a microsecond.
    #[cfg(not(any(loom, shuttle)))]
    const ROUNDS: u32 = 7;

    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Waits a little. `false` when the caller should park instead.
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

    /// Spinning is nothing to a model: park at once.
    #[cfg(any(loom, shuttle))]
    pub(crate) fn spin(&mut self) -> bool {
        self.rounds += 1;
        false
    }
}

/// A wait for something that wakes nobody: spins, then yields, then sleeps for ever longer, up to
/// a millisecond. The sleep is what lets a low-priority holder run under a real-time scheduler.
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

    /// Waits one step, at most a millisecond. Panics in the child of a fork, where nobody ends the
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

    /// Waits one step: lets the checker run somebody else.
    #[cfg(any(loom, shuttle))]
    pub(crate) fn wait(&mut self) {
        self.rounds = self.rounds.wrapping_add(1);
        atomic::yield_now();
    }
}
