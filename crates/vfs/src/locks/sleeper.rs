//! A thread that sleeps until another one wakes it or a token interrupts it.

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

    /// Parks the thread that made this sleeper until the sleep ends. The caller holds no lock and
    /// no RCU guard.
    ///
    /// # Errors
    /// `EINTR` if the sleep was interrupted, even if another thread has woken it as well.
    pub(super) fn park(&self) -> Result<(), Errno> {
        let state = loop {
            match self.state.load(Ordering::Acquire) {
                0 => thread::park(),
                state => break state,
            }
        };
        if state & INTERRUPTED != 0 { Err(Errno::INTR) } else { Ok(()) }
    }
}
