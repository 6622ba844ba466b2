//! A thread that sleeps until another one wakes it or a token interrupts it.

use std::time::{Duration, Instant};

use rustix::io::Errno;
use vfscale_sync::atomic::thread::{self, Thread};
use vfscale_sync::atomic::{AtomicU8, Ordering};

/// Another thread has taken the sleeper off the list.
const WOKEN: u8 = 1;
/// The sleeper's token was cancelled.
const INTERRUPTED: u8 = 2;

/// A thread that sleeps, or is about to.
pub(crate) struct Sleeper {
    thread: Thread,
    state: AtomicU8,
}

impl Sleeper {
    /// Creates the sleeper of the calling thread.
    pub(super) fn new() -> Sleeper {
        Sleeper { thread: thread::current(), state: AtomicU8::new(0) }
    }

    fn set(&self, bit: u8) {
        self.state.fetch_or(bit, Ordering::AcqRel);
        self.thread.unpark();
    }

    /// Ends the sleep.
    pub(super) fn wake(&self) {
        self.set(WOKEN);
    }

    /// Ends the sleep with `EINTR`.
    pub(super) fn interrupt(&self) {
        self.set(INTERRUPTED);
    }

    /// Parks the thread that made this sleeper until the sleep ends, or until a time. The caller
    /// holds no lock and no RCU guard.
    ///
    /// # Errors
    /// `EINTR` if the sleep was interrupted, even if another thread has woken it as well;
    /// `ETIMEDOUT` if neither happened before `until`.
    pub(super) fn park(&self, until: Option<Instant>) -> Result<(), Errno> {
        let state = loop {
            match self.state.load(Ordering::Acquire) {
                0 => park_until(until)?,
                state => break state,
            }
        };
        if state & INTERRUPTED != 0 { Err(Errno::INTR) } else { Ok(()) }
    }
}

/// Parks the calling thread. It may return before `until`, and without an event.
///
/// # Errors
/// `ETIMEDOUT` if the time has come.
fn park_until(until: Option<Instant>) -> Result<(), Errno> {
    let Some(until) = until else {
        thread::park();
        return Ok(());
    };
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(Errno::TIMEDOUT);
    }
    park_for(left);
    Ok(())
}

#[cfg(not(any(loom, shuttle)))]
fn park_for(time: Duration) {
    thread::park_timeout(time);
}

/// Yields instead: the models have no clock.
#[cfg(any(loom, shuttle))]
fn park_for(_time: Duration) {
    thread::yield_now();
}
