//! Requests that wait for a file lock, and their interruption.
//!
//! Another worker may read an `INTERRUPT` before the request that it refers to has been registered.
//! The numbers of such requests are stored for a while. They are never reused.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use vfscale::posix::{PendingLock, WaitToken};

use crate::session::{DeferredReply, Late};

/// Maximum number of stored interrupts without a request.
const EARLY_MAX: usize = 1024;

#[derive(Default)]
struct WaitState {
    /// Wait tokens, by number of the request.
    waiting: HashMap<u64, WaitToken>,
    early: VecDeque<u64>,
    ended: bool,
}

/// Requests that wait for a lock.
#[derive(Clone, Default)]
pub(crate) struct Waiting(Arc<Mutex<WaitState>>);

impl Waiting {
    fn state(&self) -> MutexGuard<'_, WaitState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of waiting requests.
    pub(crate) fn count(&self) -> usize {
        self.state().waiting.len()
    }

    /// Registers a request that may have to wait.
    pub(super) fn enter(&self, unique: u64) -> WaitToken {
        let token = WaitToken::new();
        let mut state = self.state();
        let early = state.early.iter().position(|&n| n == unique);
        if let Some(index) = early {
            state.early.remove(index);
        }
        if early.is_some() || state.ended {
            drop(state);
            token.cancel();
        } else {
            state.waiting.insert(unique, token.clone());
        }
        token
    }

    pub(super) fn leave(&self, unique: u64) {
        self.state().waiting.remove(&unique);
    }

    /// Cancels the wait of a request, because its process got a signal.
    pub(super) fn interrupt(&self, unique: u64) {
        let mut state = self.state();
        let token = state.waiting.get(&unique).cloned();
        if token.is_none() {
            if state.early.len() == EARLY_MAX {
                state.early.pop_front();
            }
            state.early.push_back(unique);
        }
        drop(state);
        // The cancellation calls back, which takes the lock of the state.
        if let Some(token) = token {
            token.cancel();
        }
    }

    /// Cancels all waits.
    pub(super) fn end(&self) {
        let mut state = self.state();
        state.ended = true;
        let tokens: Vec<_> = state.waiting.values().cloned().collect();
        drop(state);
        tokens.iter().for_each(WaitToken::cancel);
    }

    /// Sends the reply when the lock is granted or its wait cancelled.
    pub(super) fn answer_later(
        &self,
        pending: PendingLock,
        token: &WaitToken,
        later: DeferredReply,
    ) {
        let waiting = self.clone();
        pending.notify(token, move |outcome| {
            waiting.leave(later.unique());
            later.answer(outcome.map(|()| Late::Nothing));
        });
    }
}
