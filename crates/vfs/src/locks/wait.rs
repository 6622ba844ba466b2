//! Requests that wait, and how they are interrupted.
//!
//! A request gets its result under the lock of the file's state, and its owner is told after that
//! lock is released. The slot's lock makes the two meet: whoever comes second, result or listener,
//! sees the other, so that a thread never sleeps on a result that is there, and a function is
//! called once.

use std::sync::{Arc, Weak};

use rustix::io::Errno;
use vfscale_sync::atomic::thread::{self, Thread};
use vfscale_sync::lock::Mutex;

use super::classes::{LockResult, TokenState};
use super::file_locks::Shared;
use super::graph::{Blockers, LockGraph};
use super::{Owner, RecordLock};
use crate::base::error::check_fork;
use crate::locks::wait_queue::Sleeper;

type Outcome = Result<(), Errno>;

/// Which world a request belongs to.
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
    outcome: Option<Outcome>,
    listener: Listener,
}

/// Whom to tell.
#[derive(Default)]
enum Listener {
    #[default]
    Nobody,
    Thread(Thread),
    Call(Box<dyn FnOnce(Outcome) + Send>),
}

impl Waiter {
    pub(super) fn new(
        lock: RecordLock,
        style: Style,
        graph: Option<Arc<LockGraph>>,
    ) -> Arc<Waiter> {
        Arc::new(Waiter { lock, style, graph, slot: Mutex::new(Slot::default()) })
    }

    /// Enters into the graph whom this waits for.
    pub(super) fn wait_for(self: &Arc<Waiter>, blockers: impl Iterator<Item = Owner>) -> Outcome {
        let (Some(graph), Owner::Task(task)) = (&self.graph, self.lock.owner) else {
            return Ok(());
        };
        let tasks = blockers.filter_map(|owner| match owner {
            Owner::Task(task) => Some(task),
            Owner::File(_) => None,
        });
        graph.wait_for(task, Arc::as_ptr(self).addr(), tasks.collect::<Blockers>())
    }

    /// Sets the result. The caller holds the lock of the state, has taken the request out of the
    /// queue, and calls [`tell`](Self::tell) when it has released that lock.
    pub(super) fn finish(self: &Arc<Waiter>, outcome: Outcome) {
        if let (Some(graph), Owner::Task(task)) = (&self.graph, self.lock.owner) {
            graph.done(task, Arc::as_ptr(self).addr());
        }
        self.slot.lock().outcome = Some(outcome);
    }

    /// Tells whoever listens.
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

    pub(super) fn outcome(&self) -> Option<Outcome> {
        self.slot.lock().outcome
    }

    fn listen(&self, listener: Listener) {
        self.slot.lock().listener = listener;
    }
}

/// A request for a lock that waits until the locks in its way are gone.
///
/// Dropping it withdraws the request, unless the lock was granted already: that one stays.
#[must_use = "dropping it withdraws the request"]
pub struct PendingLock {
    shared: Arc<Shared>,
    waiter: Arc<Waiter>,
    withdraw: bool,
}

impl PendingLock {
    pub(super) fn new(shared: Arc<Shared>, waiter: Arc<Waiter>) -> PendingLock {
        PendingLock { shared, waiter, withdraw: true }
    }

    /// The result, if it is there; does not wait.
    pub fn outcome(&self) -> Option<Result<(), Errno>> {
        self.waiter.outcome()
    }

    /// Parks the thread until the lock is granted or `token` is cancelled. The caller holds no lock
    /// and no RCU guard.
    ///
    /// # Errors
    /// `EINTR` when the token is cancelled, `EDEADLK` when waiting on would be a deadlock, `ENOLCK`
    /// when there are too many records, `EBADF` when the open file that asks is closed.
    pub fn wait(self, token: &WaitToken) -> Result<(), Errno> {
        self.waiter.listen(Listener::Thread(thread::current()));
        token.watch(&self.shared, &self.waiter);
        let outcome = loop {
            match self.waiter.outcome() {
                Some(outcome) => break outcome,
                None => thread::park(),
            }
        };
        token.unwatch(&self.waiter);
        outcome
    }

    /// Has `done` called with the result, exactly once, instead of waiting for it: now if it is
    /// there, else by the thread that releases the lock in the way, or cancels `token`. It must not
    /// block, nor lock or unlock anything here. The errors are those of [`wait`](Self::wait).
    pub fn notify(
        mut self,
        token: &WaitToken,
        done: impl FnOnce(Result<(), Errno>) + Send + 'static,
    ) {
        self.withdraw = false;
        self.waiter.listen(Listener::Call(Box::new(done)));
        // The result may have come before the listener did.
        self.waiter.tell();
        token.watch(&self.shared, &self.waiter);
    }

    /// Withdraws the request. Returns whether that came too late, and the lock is held.
    pub fn cancel(mut self) -> bool {
        self.withdraw = false;
        self.shared.withdraw(&self.waiter, Errno::INTR);
        self.waiter.outcome() == Some(Ok(()))
    }
}

impl Drop for PendingLock {
    fn drop(&mut self) {
        if check_fork().is_ok() && self.withdraw && self.waiter.outcome().is_none() {
            self.shared.withdraw(&self.waiter, Errno::INTR);
        }
    }
}

/// Interrupts requests that wait, for locks and in pipes: like a signal that stays pending for
/// ever.
///
/// Clones are the same token. `Send + Sync`.
#[derive(Clone, Default)]
pub struct WaitToken(Arc<Mutex<Watched, TokenState>>);

#[derive(Default)]
struct Watched {
    cancelled: bool,
    requests: Vec<(Weak<Shared>, Weak<Waiter>)>,
    /// Threads that wait for something else than locks.
    sleepers: Vec<Arc<Sleeper>>,
}

impl WaitToken {
    /// A token that nobody has cancelled.
    pub fn new() -> WaitToken {
        WaitToken::default()
    }

    /// Ends every wait under this token, now and from now on, with `EINTR`. A request that was
    /// granted before keeps its lock. The caller holds no lock of the locks' module; functions
    /// passed to [`PendingLock::notify`] are called before this returns.
    pub fn cancel(&self) {
        let (requests, sleepers) = {
            let mut watched = self.0.lock();
            watched.cancelled = true;
            (std::mem::take(&mut watched.requests), std::mem::take(&mut watched.sleepers))
        };
        sleepers.iter().for_each(|sleeper| sleeper.interrupt());
        for (shared, waiter) in requests {
            if let (Some(shared), Some(waiter)) = (shared.upgrade(), waiter.upgrade()) {
                shared.withdraw(&waiter, Errno::INTR);
            }
        }
    }

    /// Whether [`cancel`](Self::cancel) was called.
    pub fn is_cancelled(&self) -> bool {
        self.0.lock().cancelled
    }

    /// From now on a cancellation withdraws the request; one that has been, does so at once.
    fn watch(&self, shared: &Arc<Shared>, waiter: &Arc<Waiter>) {
        let mut watched = self.0.lock();
        if watched.cancelled {
            drop(watched);
            shared.withdraw(waiter, Errno::INTR);
        } else {
            // Requests with a function to call leave no other way.
            watched.requests.retain(|(_, waiter)| waiter.strong_count() > 0);
            watched.requests.push((Arc::downgrade(shared), Arc::downgrade(waiter)));
        }
    }

    fn unwatch(&self, waiter: &Arc<Waiter>) {
        let mut watched = self.0.lock();
        watched.requests.retain(|(_, other)| !std::ptr::eq(other.as_ptr(), Arc::as_ptr(waiter)));
    }

    /// From now on a cancellation interrupts the sleeper; one that has been, does so at once.
    pub(crate) fn watch_sleeper(&self, sleeper: &Arc<Sleeper>) {
        let mut watched = self.0.lock();
        if watched.cancelled {
            drop(watched);
            sleeper.interrupt();
        } else {
            watched.sleepers.push(sleeper.clone());
        }
    }

    pub(crate) fn unwatch_sleeper(&self, sleeper: &Arc<Sleeper>) {
        self.0.lock().sleepers.retain(|other| !Arc::ptr_eq(other, sleeper));
    }
}
