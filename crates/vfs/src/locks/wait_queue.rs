//! Threads that sleep until something becomes possible: reading from a pipe or socket, writing to
//! it, opening one end of it.
//!
//! A thread that finds nothing to do enters a [`SleepList`] under the lock of what it waits for,
//! releases the lock, and parks. Whoever changes that state takes sleepers off the list under the
//! same lock, and wakes them when it has released it. So a thread is on the list before anybody can
//! miss it, and what wakes it is a bit of its own, whatever else unparks the thread. A
//! [`WaitToken`](crate::WaitToken) sets another bit.
//!
//! A [`Monitor`] is such a lock with what it protects. Whoever releases it wakes those that what is
//! there now is for ([`Settle`]), one of a kind; a thread that is woken and leaves something does
//! the same in turn, and so does one that was interrupted instead. So no thread sleeps on what it
//! could have, and one byte does not wake a crowd.
//!
//! Nobody sleeps inside an RCU section or with a lock.

use std::collections::VecDeque;
use std::sync::Arc;

use rustix::io::Errno;
use smallvec::SmallVec;
use vfscale_sync::atomic::thread::{self, Thread};
use vfscale_sync::atomic::{AtomicU8, Ordering};
use vfscale_sync::lock::{LockClass, Mutex, MutexGuard};

use crate::locks::WaitToken;

/// Somebody has taken it off the list, so that it looks again.
const WOKEN: u8 = 1;
/// Its token was cancelled.
const INTERRUPTED: u8 = 2;

/// A thread that sleeps, or is about to.
pub(crate) struct Sleeper {
    thread: Thread,
    state: AtomicU8,
}

impl Sleeper {
    fn set(&self, bit: u8) {
        self.state.fetch_or(bit, Ordering::AcqRel);
        self.thread.unpark();
    }

    /// Ends the sleep with `EINTR`.
    pub(crate) fn interrupt(&self) {
        self.set(INTERRUPTED);
    }

    /// Parks the thread that made it until it is woken. The caller holds no lock and no RCU guard.
    ///
    /// # Errors
    /// `EINTR` when `token` is cancelled. The sleeper may be on its list still, or may have been
    /// woken at the same time; the caller takes care of both.
    pub(crate) fn sleep(self: &Arc<Sleeper>, token: Option<&WaitToken>) -> Result<(), Errno> {
        if let Some(token) = token {
            token.watch_sleeper(self);
        }
        let state = loop {
            match self.state.load(Ordering::Acquire) {
                0 => thread::park(),
                state => break state,
            }
        };
        if let Some(token) = token {
            token.unwatch_sleeper(self);
        }
        if state & INTERRUPTED != 0 { Err(Errno::INTR) } else { Ok(()) }
    }
}

/// Those who wait for the same, the longest first. Guarded by the lock of what they wait for.
#[derive(Default)]
pub(crate) struct SleepList(VecDeque<Arc<Sleeper>>);

impl SleepList {
    /// Enters the calling thread.
    pub(crate) fn enter(&mut self) -> Arc<Sleeper> {
        let sleeper = Arc::new(Sleeper { thread: thread::current(), state: AtomicU8::new(0) });
        self.0.push_back(sleeper.clone());
        sleeper
    }

    /// Takes one out that does not want to wait any longer, if it is there.
    pub(crate) fn leave(&mut self, sleeper: &Arc<Sleeper>) {
        self.0.retain(|other| !Arc::ptr_eq(other, sleeper));
    }

    /// Takes the first out, to be woken.
    pub(crate) fn pop(&mut self, wake: &mut Wake) {
        wake.0.extend(self.0.pop_front());
    }

    /// Takes all out, to be woken.
    pub(crate) fn pop_all(&mut self, wake: &mut Wake) {
        wake.0.extend(self.0.drain(..));
    }
}

/// Sleepers that were taken off their lists.
#[derive(Default)]
#[must_use = "they sleep on until they are woken"]
pub(crate) struct Wake(SmallVec<[Arc<Sleeper>; 2]>);

impl Wake {
    /// Wakes them. The caller has released the lock of the lists.
    pub(crate) fn wake(self) {
        self.0.iter().for_each(|sleeper| sleeper.set(WOKEN));
    }
}

/// How a call waits.
#[derive(Clone, Copy)]
pub(crate) struct Waiting<'a> {
    /// It doesn't (`O_NONBLOCK`).
    pub(crate) never: bool,
    /// What interrupts it.
    pub(crate) token: Option<&'a WaitToken>,
}

/// What threads wait for.
pub(crate) trait Settle {
    /// Who is to be woken when the lock is released.
    fn settle(&mut self) -> Wake;
}

/// A lock whose release wakes those who wait for what it protects; see the [module](self).
pub(crate) struct Monitor<S: Settle, C: LockClass>(Mutex<S, C>);

impl<S: Settle, C: LockClass> Monitor<S, C> {
    pub(crate) fn new(state: S) -> Monitor<S, C> {
        Monitor(Mutex::new(state))
    }

    /// Does something under the lock, and wakes those who have been waiting for it afterwards.
    pub(crate) fn with<T>(&self, action: impl FnOnce(&mut S) -> T) -> T {
        let mut state = self.0.lock();
        let result = action(&mut state);
        let wake = state.settle();
        drop(state);
        wake.wake();
        result
    }

    /// The lock, for a look that changes nothing.
    pub(crate) fn look(&self) -> MutexGuard<'_, S, C> {
        self.0.lock()
    }

    /// Makes a step under the lock, again after each sleep on `list`, until one says that it was
    /// the last.
    ///
    /// # Errors
    /// Those of the steps; `EAGAIN` instead of sleeping, `EINTR`.
    pub(crate) fn repeat(
        &self,
        wait: Waiting<'_>,
        list: impl Fn(&mut S) -> &mut SleepList,
        mut step: impl FnMut(&mut S) -> Result<bool, Errno>,
    ) -> Result<(), Errno> {
        loop {
            let sleeper = self.with(|state| match step(state)? {
                true => Ok(None),
                false if wait.never => Err(Errno::AGAIN),
                false => Ok(Some(list(state).enter())),
            })?;
            let Some(sleeper) = sleeper else { return Ok(()) };
            sleeper.sleep(wait.token).inspect_err(|_| {
                // If somebody has just woken it, `with` wakes another one in its place.
                self.with(|state| list(state).leave(&sleeper));
            })?;
        }
    }
}
