//! The alarm: one thread that ends the waits of others after a while, to look for signals.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use vfscale::posix::WaitToken;
use vfscale::{Errno, Error, Result};

struct Alarm {
    state: Mutex<State>,
    /// Tells the thread of a wait that ends before all others.
    earlier: Condvar,
}

struct State {
    has_thread: bool,
    serial: u64,
    /// The waits, by the time at which they end.
    waits: BTreeMap<(Instant, u64), WaitToken>,
}

static ALARM: Alarm = Alarm {
    state: Mutex::new(State { has_thread: false, serial: 0, waits: BTreeMap::new() }),
    earlier: Condvar::new(),
};

/// Runs a call under a token that is cancelled after a while.
///
/// # Errors
/// `EAGAIN` if the thread of the alarm can't be started; any error of the call.
pub(crate) fn within<T>(time: Duration, f: impl FnOnce(&WaitToken) -> Result<T>) -> Result<T> {
    let token = WaitToken::new();
    let wait = ALARM.set(Instant::now() + time, &token)?;
    let done = f(&token);
    ALARM.state().waits.remove(&wait);
    done
}

impl Alarm {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&'static self, end: Instant, token: &WaitToken) -> Result<(Instant, u64)> {
        let mut state = self.state();
        if !state.has_thread {
            let thread = thread::Builder::new().name("vfscale-alarm".into());
            let started = thread.spawn(move || self.ring());
            started.map_err(|_| Error::new("pthread_create", Errno::AGAIN))?;
            state.has_thread = true;
        }
        state.serial += 1;
        let wait = (end, state.serial);
        state.waits.insert(wait, token.clone());
        if state.waits.first_key_value().is_some_and(|(first, _)| *first == wait) {
            self.earlier.notify_one();
        }
        Ok(wait)
    }

    fn ring(&self) {
        let mut state = self.state();
        loop {
            let Some(first) = state.waits.first_entry() else {
                state = self.earlier.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let end = first.key().0;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let token = first.remove();
                // Not under the lock, which the thread that it wakes takes.
                drop(state);
                token.cancel();
                state = self.state();
            } else {
                let woken = self.earlier.wait_timeout(state, left);
                state = woken.unwrap_or_else(PoisonError::into_inner).0;
            }
        }
    }
}
