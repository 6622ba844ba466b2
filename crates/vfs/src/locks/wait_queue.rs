//! Wait queues: threads that sleep until they can read from a pipe or socket, write to it, or open
//! an end of it.
//!
//! A thread that has to wait enters a [`SleepList`] under the lock of the state that it waits for,
//! releases the lock, and parks. A thread that changes that state takes sleepers off the list under
//! the same lock, and wakes them after releasing it. So a sleeper is on the list before a change
//! can miss it. A bit of the sleeper's own ends its sleep, whatever else unparks the thread. A
//! [`WaitToken`](crate::WaitToken) sets another bit.
//!
//! A [`Monitor`] is such a lock with the state that it protects. The thread that releases it wakes
//! one sleeper of each kind that can proceed ([`Settle`]). A woken thread that leaves something for
//! others does this, too, and so does an interrupted thread, which may have been woken as well. So
//! no thread sleeps although it could proceed, and one byte wakes one thread, not all of them.
//!
//! No thread sleeps inside an RCU section or with a lock.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use rustix::io::Errno;
use smallvec::SmallVec;
use vfscale_sync::lock::{LockClass, Mutex, MutexGuard};

use super::sleeper::Sleeper;
use super::wait::WaitToken;

impl Sleeper {
    /// Parks the thread that made this sleeper until it is woken. The caller holds no lock and no
    /// RCU guard.
    ///
    /// # Errors
    /// `EINTR` if the token is cancelled, `ETIMEDOUT`. The sleeper may still be on its list, or may
    /// have been woken concurrently; the caller handles both.
    fn sleep(self: &Arc<Sleeper>, wait: Waiting<'_>) -> Result<(), Errno> {
        let Waiting { token, until, .. } = wait;
        if let Some(token) = token {
            token.watch_sleeper(self);
        }
        let woken = self.park(until);
        if let Some(token) = token {
            token.unwatch_sleeper(self);
        }
        woken
    }
}

/// Sleepers that wait for the same event, the longest first. Protected by the lock of the state
/// that they wait for.
#[derive(Default)]
pub(crate) struct SleepList(VecDeque<Arc<Sleeper>>);

impl SleepList {
    /// Enters the calling thread.
    pub(crate) fn enter(&mut self) -> Arc<Sleeper> {
        let sleeper = Arc::new(Sleeper::new());
        self.0.push_back(sleeper.clone());
        sleeper
    }

    /// Removes a sleeper that stops waiting, if it is on the list.
    pub(crate) fn leave(&mut self, sleeper: &Arc<Sleeper>) {
        self.0.retain(|other| !Arc::ptr_eq(other, sleeper));
    }

    /// Moves the first sleeper to `wake`.
    pub(crate) fn pop(&mut self, wake: &mut Wake) {
        wake.0.extend(self.0.pop_front());
    }

    /// Moves all sleepers to `wake`.
    pub(crate) fn pop_all(&mut self, wake: &mut Wake) {
        wake.0.extend(self.0.drain(..));
    }
}

/// Sleepers that were taken off their lists.
#[derive(Default)]
#[must_use = "they sleep on until they are woken"]
pub(crate) struct Wake(SmallVec<[Arc<Sleeper>; 2]>);

impl Wake {
    /// Wakes the sleepers. The caller has released the lock of the lists.
    pub(crate) fn wake(self) {
        self.0.iter().for_each(|sleeper| sleeper.wake());
    }
}

/// The waiting behaviour of a call.
#[derive(Clone, Copy)]
pub(crate) struct Waiting<'a> {
    /// Whether the call never waits (`O_NONBLOCK`).
    pub(crate) never: bool,
    /// The token that can interrupt it.
    pub(crate) token: Option<&'a WaitToken>,
    /// The time at which it gives up.
    pub(crate) until: Option<Instant>,
}

/// A state that threads wait for.
pub(crate) trait Settle {
    /// Returns the sleepers to wake when the lock is released.
    fn settle(&mut self) -> Wake;
}

/// A lock whose release wakes the threads that wait for the state it protects; see the
/// [module](self).
pub(crate) struct Monitor<S: Settle, C: LockClass>(Mutex<S, C>);

impl<S: Settle, C: LockClass> Monitor<S, C> {
    pub(crate) fn new(state: S) -> Monitor<S, C> {
        Monitor(Mutex::new(state))
    }

    /// Runs `action` under the lock, and then wakes the sleepers that can proceed.
    pub(crate) fn with<T>(&self, action: impl FnOnce(&mut S) -> T) -> T {
        let mut state = self.0.lock();
        let result = action(&mut state);
        let wake = state.settle();
        drop(state);
        wake.wake();
        result
    }

    /// Takes the lock to read the state; the caller changes nothing.
    pub(crate) fn look(&self) -> MutexGuard<'_, S, C> {
        self.0.lock()
    }

    /// Runs `step` under the lock, again after each sleep on `list`, until it returns true.
    ///
    /// # Errors
    /// The errors of `step`; `EAGAIN` instead of sleeping, `EINTR`, `ETIMEDOUT`.
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
            sleeper.sleep(wait).inspect_err(|_| {
                // If another thread has just woken it, `with` wakes another sleeper instead.
                self.with(|state| list(state).leave(&sleeper));
            })?;
        }
    }
}
