//! Work in the background, on threads that all volumes of the process share.
//!
//! # Purpose
//!
//! A volume has jobs that nobody waits for: to push its log, to write back, to free removed files.
//! With threads of its own for each of them, a hundred open volumes are hundreds of threads, which
//! sleep nearly all the time. Here a job is a [`WorkItem`] (counterpart of `struct work_struct`).
//! An owner [queues](WorkItem::queue) it when there is something to do, and a worker thread calls
//! its function. The threads belong to the process (`worker/pool.rs`).
//!
//! # Invariants
//!
//! * A run begins after each call of [`queue`](WorkItem::queue), unless the item is cancelled. So a
//!   function that takes all that there is to do, and returns when it finds nothing, misses nothing
//!   that was there before the call.
//! * At most `max_active` runs of an item execute at a time.
//! * When [`cancel`](WorkItem::cancel) returns, no run executes, except for that of the caller, and
//!   none begins. The item has dropped its function. It waits for no other item.
//! * A panic ends a run, and nothing else.
//!
//! # Why no thread waits for ever
//!
//! A run may wait for a device, for a lock, or for what another item frees: every item that begins
//! transactions may wait for log space, which only the item of the same journal frees that writes
//! back. If that one waited for a thread, and all threads waited for it, none would ever run.
//!
//! So **a queued item never depends on the end of another run**:
//!
//! * An item of [`Priority::High`] gets a thread at once: an idle one, or a new one. The items of
//!   the log are of this kind. They wait for devices, and for threads that run, but for no queued
//!   item. A volume has two of them, with one run each, so they are few.
//! * An item of [`Priority::Normal`] gets an idle thread, or a new one as long as a certain number
//!   of these items run. Beyond that it waits for its turn. If no run ends for 10 ms, the first
//!   that waits is treated like one of the first kind.
//!
//! By this rule the threads wait for each other as if each item had its own. A device that does not
//! answer takes the threads of the runs that wait for it. That delays the items of other volumes by
//! at most 10 ms for each that waits before them, and their logs not at all.
//!
//! If the system refuses a thread, the next run that ends takes the item, and the timer thread
//! tries again every 10 ms.
//!
//! # Models
//!
//! In a model each run is a thread of its own, a harder test than a pool, and time does not pass:
//! [`queue_at`](WorkItem::queue_at) does nothing. `tests/shuttle/pool.rs` compiles this module with
//! the pool, and with threads and a clock of the model.

#[path = "worker/item.rs"]
mod item;
#[cfg(any(loom, miri, all(shuttle, not(test))))]
#[path = "worker/model.rs"]
mod pool;
#[cfg(not(any(loom, miri, all(shuttle, not(test)))))]
#[path = "worker/pool.rs"]
mod pool;

use std::fmt;
use std::sync::Arc;

use crate::atomic::thread::{self, ThreadId};
use crate::caught::survives;
use crate::lock::{Condvar, Mutex, ThreadOwner};
use crate::thread::Instant;
use crate::{fork, lock_class};

use item::Item;
pub use item::Priority;
use pool::Runs;

lock_class! {
    /// The state of a work item.
    pub WorkLock = ("work_struct", 64700);
}

type WorkFn = dyn Fn() + Send + Sync;

/// A function that worker threads call when the item is queued. `Send` and `Sync`.
///
/// Dropping it [cancels](Self::cancel) it.
///
/// ```
/// use std::sync::mpsc;
/// use vfscale_sync::worker::{Priority, WorkItem};
///
/// let (sender, receiver) = mpsc::channel();
/// let item = WorkItem::new(Priority::Normal, 1, move || sender.send("done").unwrap());
/// item.queue();
/// assert_eq!(receiver.recv(), Ok("done"));
/// ```
pub struct WorkItem {
    shared: Arc<WorkShared>,
}

/// The part of an item that queues and threads refer to.
struct WorkShared {
    priority: Priority,
    max_active: usize,
    /// The owner of the threads during a run.
    owner: ThreadOwner,
    state: Mutex<WorkState, WorkLock>,
    /// Notified when a run ends.
    ended: Condvar,
    runs: Runs,
}

struct WorkState {
    /// `None` once the item is cancelled.
    work: Option<Arc<WorkFn>>,
    /// Number of runs that wait for a thread.
    queued: usize,
    /// The threads that execute a run.
    running: Vec<ThreadId>,
    /// Whether the item was queued while all of its runs had begun.
    again: bool,
}

impl WorkItem {
    /// Creates an item that up to `max_active` threads, at least one, do at a time by calling
    /// `work`. They have the owner of the calling thread ([`ThreadOwner`]).
    pub fn new(
        priority: Priority,
        max_active: usize,
        work: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        let state =
            WorkState { work: Some(Arc::new(work)), queued: 0, running: Vec::new(), again: false };
        let shared = Arc::new(WorkShared {
            priority,
            max_active: max_active.max(1),
            owner: ThreadOwner::current(),
            state: Mutex::new(state),
            ended: Condvar::new(),
            runs: Runs::new(),
        });
        pool::add();
        Self { shared }
    }

    /// Has a worker thread execute a run. If other runs execute, one more does, unless there are
    /// `max_active`: then a run follows them. Does not wait for I/O, and may start a thread.
    pub fn queue(&self) {
        if !fork::is_child() {
            Arc::clone(&self.shared).queue();
        }
    }

    /// Queues the item at a time, instead of at the time of the last call if that has not come yet.
    pub fn queue_at(&self, at: Instant) {
        self.queue_between(at, at);
    }

    /// Queues the item between two times, like [`queue_at`](Self::queue_at). Items whose times
    /// overlap are queued together, so that the process wakes once for all of them.
    pub fn queue_between(&self, earliest: Instant, latest: Instant) {
        if !fork::is_child() {
            self.shared.runs.set_timer(self.shared.clone(), earliest, latest);
        }
    }

    /// Cancels the item, and waits for the runs that execute. A run may do that itself; then it
    /// does not wait for itself. May be called again.
    pub fn cancel(&self) {
        // A child has no thread that would end a run.
        if fork::is_child() {
            return;
        }
        let mut state = self.shared.state.lock();
        let work = state.work.take();
        let me = thread::current().id();
        let others = |state: &mut WorkState| state.running.iter().any(|thread| *thread != me);
        drop(self.shared.ended.wait_while(state, others));
        let runs = &self.shared.runs;
        runs.clear_timer(&*self.shared);
        runs.join_others();
        if work.is_some() {
            pool::remove();
        }
        drop(work);
    }
}

impl Item for WorkShared {
    fn queue(self: Arc<Self>) {
        let mut state = self.state.lock();
        if state.work.is_none() {
            return;
        }
        if state.queued + state.running.len() >= self.max_active {
            // A run that is queued begins later than this call.
            state.again |= state.queued == 0;
            return;
        }
        state.queued += 1;
        drop(state);
        self.runs.start(self.clone(), self.priority);
    }

    fn execute(self: Arc<Self>) {
        let me = thread::current().id();
        let mut state = self.state.lock();
        state.queued -= 1;
        let Some(work) = state.work.clone() else { return };
        state.running.push(me);
        drop(state);
        self.call(&*work);
        drop(work);
        let mut state = self.state.lock();
        let at = state.running.iter().position(|thread| *thread == me);
        at.map(|at| state.running.swap_remove(at));
        let again = std::mem::take(&mut state.again) && state.work.is_some();
        state.queued += usize::from(again);
        self.ended.notify_all();
        drop(state);
        if again {
            self.runs.start(self.clone(), self.priority);
        }
    }
}

impl WorkShared {
    fn call(&self, work: &WorkFn) {
        let _owned = (!cfg!(any(loom, shuttle))).then(|| self.owner.enter());
        survives(work);
    }
}

impl Drop for WorkItem {
    fn drop(&mut self) {
        self.cancel();
    }
}

impl fmt::Debug for WorkItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WorkShared { priority, max_active, .. } = &*self.shared;
        f.debug_struct("WorkItem")
            .field("priority", priority)
            .field("max_active", max_active)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(any(loom, shuttle, miri))))]
#[path = "worker/tests.rs"]
mod tests;
