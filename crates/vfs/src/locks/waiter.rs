//! A request that waits, and its result.
//!
//! A request gets its result under the lock of the file's state, and its waiter is notified after
//! that lock is released. The slot's lock orders the two: the second of them, result or listener,
//! sees the first. So a thread never sleeps although its result exists, and a function is called
//! once.

use std::sync::Arc;

use vfscale_sync::atomic::thread::Thread;
use vfscale_sync::lock::{Mutex, assert_held};

use super::classes::{FileLockState, LockResult};
use super::graph::{Blockers, LockGraph};
use super::{Owner, RecordLock};
use crate::base::error::Outcome;

/// The kind of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    Record,
    Flock,
}

/// A request that had to wait.
pub(super) struct Waiter {
    pub(super) lock: RecordLock,
    pub(super) style: Style,
    graph: Option<Arc<LockGraph>>,
    slot: Mutex<Slot, LockResult>,
}

#[derive(Default)]
struct Slot {
    outcome: Option<Outcome<()>>,
    listener: Listener,
}

/// The receiver of a result.
#[derive(Default)]
pub(super) enum Listener {
    #[default]
    Nobody,
    Thread(Thread),
    Call(Box<dyn FnOnce(Outcome<()>) + Send>),
}

impl Waiter {
    pub(super) fn new(
        lock: RecordLock,
        style: Style,
        graph: Option<Arc<LockGraph>>,
    ) -> Arc<Waiter> {
        Arc::new(Waiter { lock, style, graph, slot: Mutex::new(Slot::default()) })
    }

    /// Enters into the graph that this request waits for `blockers`.
    pub(super) fn wait_for(
        self: &Arc<Waiter>,
        blockers: impl Iterator<Item = Owner>,
    ) -> Outcome<()> {
        let (Some(graph), Owner::Task(task)) = (&self.graph, self.lock.owner) else {
            return Ok(());
        };
        let tasks = blockers.filter_map(|owner| match owner {
            Owner::Task(task) => Some(task),
            Owner::File(_) => None,
        });
        graph.wait_for(task, Arc::as_ptr(self).addr(), tasks.collect::<Blockers>())
    }

    /// Sets the result of a request that is in the queue no longer. The caller calls
    /// [`tell`](Self::tell) after releasing the lock of the state.
    pub(super) fn finish(self: &Arc<Waiter>, outcome: Outcome<()>) {
        assert_held::<FileLockState>();
        if let (Some(graph), Owner::Task(task)) = (&self.graph, self.lock.owner) {
            graph.done(task, Arc::as_ptr(self).addr());
        }
        self.slot.lock().outcome = Some(outcome);
    }

    /// Notifies the listener, if the result exists.
    pub(super) fn tell(&self) {
        let mut slot = self.slot.lock();
        let Some(outcome) = slot.outcome else { return };
        let listener = std::mem::take(&mut slot.listener);
        drop(slot);
        match listener {
            Listener::Nobody => {}
            Listener::Thread(thread) => thread.unpark(),
            Listener::Call(done) => done(outcome),
        }
    }

    pub(super) fn outcome(&self) -> Option<Outcome<()>> {
        self.slot.lock().outcome
    }

    pub(super) fn listen(&self, listener: Listener) {
        self.slot.lock().listener = listener;
    }
}
