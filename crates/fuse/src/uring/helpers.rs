//! The threads that serve requests which may take long, so that no queue waits for them.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::inbox::{Inbox, Message};
use super::slot::{Serving, Slot};
use crate::session::{DeferredReply, Service};

/// A request for a helper.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) index: usize,
    pub(super) slot: Slot,
    /// Where the slot goes afterwards.
    pub(super) inbox: Arc<Inbox>,
}

#[derive(Debug, Default)]
struct State {
    jobs: VecDeque<Job>,
    is_closed: bool,
}

/// The requests that wait for a helper.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    state: Mutex<State>,
    changed: Condvar,
}

impl Jobs {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn put(&self, job: Job) {
        self.state().jobs.push_back(job);
        self.changed.notify_one();
    }

    /// Waits for a request; returns `None` when there will be none any more.
    fn take(&self) -> Option<Job> {
        let mut state = self.state();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                return Some(job);
            }
            if state.is_closed {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn close(&self) {
        self.state().is_closed = true;
        self.changed.notify_all();
    }
}

/// The queues' end of the requests for helpers. The helpers end when the last queue drops it.
#[derive(Debug)]
pub(super) struct Hand(pub(super) Arc<Jobs>);

impl Drop for Hand {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Serves requests until the queues have ended.
pub(super) fn help<S: Service>(jobs: &Jobs, mut serving: Serving<'_, S>) {
    while let Some(Job { index, mut slot, inbox }) = jobs.take() {
        let later = |unique| DeferredReply::new(Arc::clone(&inbox) as _, unique);
        // A service defers no request that it has called long; the queue ignores the late reply.
        slot.serve(&mut serving, &later);
        inbox.put(Message::Served(index, slot));
    }
}
