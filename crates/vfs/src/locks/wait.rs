//! Pending requests, and tokens that interrupt waits.

use std::sync::{Arc, Weak};

use rustix::io::Errno;
use vfscale_sync::atomic::thread;
use vfscale_sync::lock::Mutex;

use super::classes::TokenState;
use super::sleeper::Sleeper;
use super::state::Shared;
use super::waiter::{Listener, Waiter};
use crate::base::error::check_fork;

/// A request for a lock that waits for the release of conflicting locks.
///
/// A drop withdraws the request, unless the lock was granted already; a granted lock stays.
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

    /// Returns the result, if it exists; does not wait.
    pub fn outcome(&self) -> Option<Result<(), Errno>> {
        self.waiter.outcome()
    }

    /// Parks the thread until the lock is granted or `token` is cancelled. The caller holds no lock
    /// and no RCU guard.
    ///
    /// # Errors
    /// `EINTR` if the token is cancelled, `EDEADLK` if waiting on would be a deadlock, `ENOLCK` if
    /// there are too many records, `EBADF` if the requesting open file is closed.
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

    /// Registers `done` to be called with the result, exactly once, instead of waiting for it:
    /// immediately if the result exists, otherwise by the thread that releases the conflicting lock
    /// or cancels `token`. `done` must not block, nor lock or unlock anything here. It gets the
    /// errors of [`wait`](Self::wait).
    pub fn notify(
        mut self,
        token: &WaitToken,
        done: impl FnOnce(Result<(), Errno>) + Send + 'static,
    ) {
        self.withdraw = false;
        self.waiter.listen(Listener::Call(Box::new(done)));
        // The result may precede the listener.
        self.waiter.tell();
        token.watch(&self.shared, &self.waiter);
    }

    /// Withdraws the request. Returns true if that was too late, and the lock is held.
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

/// A handle that interrupts waits, for locks and in pipes: like a signal that stays pending for
/// ever.
///
/// Clones are the same token. `Send + Sync`.
///
/// ```
/// # use vfscale_vfs::{LockKind, WaitToken};
/// # fn example(task: &vfscale_vfs::Task) -> vfscale_vfs::Result<()> {
/// let token = WaitToken::new();
/// let file = task.open("/f")?;
/// std::thread::scope(|scope| {
///     scope.spawn(|| token.cancel());
///     // Returns with the lock, or with `EINTR`.
///     drop(file.flock(Some(LockKind::Exclusive), Some(&token)));
/// });
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct WaitToken(Arc<Mutex<Watched, TokenState>>);

#[derive(Default)]
struct Watched {
    cancelled: bool,
    requests: Vec<(Weak<Shared>, Weak<Waiter>)>,
    /// Threads that wait for something other than locks.
    sleepers: Vec<Arc<Sleeper>>,
}

impl WaitToken {
    /// Creates a token that is not cancelled.
    pub fn new() -> WaitToken {
        WaitToken::default()
    }

    /// Ends every wait under this token, now and from now on, with `EINTR`. A request that was
    /// granted before retains its lock. The caller holds no lock of the locks' module; functions
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

    /// Returns whether [`cancel`](Self::cancel) was called.
    pub fn is_cancelled(&self) -> bool {
        self.0.lock().cancelled
    }

    /// Lets a cancellation withdraw the request; withdraws it now if the token is cancelled.
    fn watch(&self, shared: &Arc<Shared>, waiter: &Arc<Waiter>) {
        let mut watched = self.0.lock();
        if watched.cancelled {
            drop(watched);
            shared.withdraw(waiter, Errno::INTR);
        } else {
            // Nothing else removes requests with a function.
            watched.requests.retain(|(_, waiter)| waiter.strong_count() > 0);
            watched.requests.push((Arc::downgrade(shared), Arc::downgrade(waiter)));
        }
    }

    fn unwatch(&self, waiter: &Arc<Waiter>) {
        let mut watched = self.0.lock();
        watched.requests.retain(|(_, other)| !std::ptr::eq(other.as_ptr(), Arc::as_ptr(waiter)));
    }

    /// Lets a cancellation interrupt the sleeper; interrupts it now if the token is cancelled.
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
