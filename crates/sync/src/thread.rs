//! Threads of the library.
//!
//! Their process belongs to a host, and so do its signals: a host that blocks a signal in its own
//! threads, to wait for it, must not be ended because another thread lets it through, and a handler
//! of the host must not run on a thread that the host does not know. So these threads block all
//! signals but those by which the processor reports a fault of the thread itself.

use std::io;
use std::thread::{Builder, JoinHandle};

#[cfg(not(any(loom, shuttle, miri)))]
pub(crate) use std::thread::{Thread, current, park, park_timeout};
pub(crate) use std::time::Instant;

/// Starts a thread that blocks the signals of the process. Programs that it starts inherit that.
/// Does not block.
///
/// # Errors
/// The system's error if it can't create a thread.
pub fn spawn<T: Send + 'static>(
    name: impl Into<String>,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let _blocked = signals::Blocked::new();
    Builder::new().name(name.into()).spawn(body)
}

#[cfg(not(miri))]
mod signals {
    use std::mem::MaybeUninit;
    use std::ptr;

    /// Signals that a fault of the thread itself raises. If they are blocked, it ends the process
    /// without a handler's report.
    const FAULTS: [libc::c_int; 4] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL];

    /// The signals are blocked in this thread until this is dropped. Threads inherit that.
    pub(super) struct Blocked {
        before: libc::sigset_t,
    }

    impl Blocked {
        pub(super) fn new() -> Self {
            let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
            // SAFETY: the first call fills in the set, which the others only change and read, and
            // the last one fills in the mask before. They fail only for arguments that are none.
            let before = unsafe {
                libc::sigfillset(all.as_mut_ptr());
                for fault in FAULTS {
                    libc::sigdelset(all.as_mut_ptr(), fault);
                }
                libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr());
                before.assume_init()
            };
            Self { before }
        }
    }

    impl Drop for Blocked {
        fn drop(&mut self) {
            // SAFETY: reads a mask that is filled in.
            unsafe {
                libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, ptr::null_mut())
            };
        }
    }
}

#[cfg(miri)]
mod signals {
    /// Nothing: Miri has no signals.
    pub(super) struct Blocked;

    impl Blocked {
        pub(super) fn new() -> Self {
            Self
        }
    }
}
