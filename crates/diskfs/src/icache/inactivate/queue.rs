//! A queue of tasks that are executed once each in the background, several at a time.
//!
//! # Batches
//!
//! Waking a thread costs more than most tasks, and then it and the thread that woke it contend for
//! the same locks. Therefore a thread that finds only a few tasks waits a moment for more
//! ([`LINGER`], or [`LINGER_QUICK`] if all are quick), and executes them all; callers that need
//! the results ([`Queue::flush`], [`Queue::throttle`]) end that wait early. XFS, too, inactivates
//! inodes after a short delay, or when there are many. The action receives several tasks in one
//! call, because they share a transaction.
//!
//! # Execution by the caller
//!
//! A thread that adds tasks at a high rate executes quick ones itself, a batch at a time
//! ([`Queue::throttle`]). Their data are in the cache of its CPU; a thread on another CPU would
//! fetch them, and the first CPU would fetch them back. The threads in the background then find no
//! task that has waited for long, and continue to wait.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::time::{Duration, Instant};

use vfscale_sync::worker::{Priority, WorkItem};
use vfscale_sync::{Condvar, Mutex, MutexGuard};

use crate::base::ranks::InactiveQueue;

/// The time that a thread waits for more when there are only a few tasks.
pub(super) const LINGER: Duration = Duration::from_millis(1);
/// That time while all tasks are quick: a thread that adds many executes them itself meanwhile.
pub(super) const LINGER_QUICK: Duration = Duration::from_millis(10);
/// Number of tasks from which on a thread no longer waits for more.
const MANY: usize = 64;

/// A queue, and the work item that executes its tasks. `Send` and `Sync`.
///
/// A drop discards the tasks that are still queued: the runs end after their current batch.
pub struct Queue<T> {
    shared: Arc<QueueShared<T>>,
    limit: usize,
    item: WorkItem,
}

struct QueueShared<T> {
    /// Number of queued tasks that end a thread's wait for more; not above the limit, beyond which
    /// callers wait.
    many: usize,
    /// Maximum number of tasks for one call of the action.
    batch: usize,
    action: Box<dyn Fn(Vec<T>) + Send + Sync>,
    /// Maximum number of runs.
    threads: usize,
    state: Mutex<QueueState<T>, InactiveQueue>,
    /// Signals to runs that linger that there is much work, a flush, or a stop.
    work: Condvar,
    /// Signals that a batch is done.
    done: Condvar,
}

struct QueueState<T> {
    /// The queued tasks, in the order of tickets.
    waiting: VecDeque<Waiting<T>>,
    /// Number of runs that will look for tasks again.
    active: usize,
    running: Vec<Batch<T>>,
    next: u64,
    /// The ticket behind the last one that a flush waits for.
    wanted: u64,
    is_stopped: bool,
}

/// A batch that is being executed.
struct Batch<T> {
    /// The ticket of its first task.
    ticket: u64,
    tasks: Vec<T>,
}

struct Waiting<T> {
    ticket: u64,
    /// Whether a thread that adds tasks can execute it itself.
    is_quick: bool,
    task: T,
}

impl<T> QueueState<T> {
    /// Returns the ticket of the task that has waited for the longest.
    fn front(&self) -> Option<u64> {
        self.waiting.front().map(|waiting| waiting.ticket)
    }

    /// Returns the lowest ticket of an unfinished task.
    fn oldest(&self) -> u64 {
        let waiting = self.front();
        let running = self.running.iter().map(|batch| batch.ticket);
        running.chain(waiting).min().unwrap_or(self.next)
    }
}

impl<T: Clone + Send + 'static> Queue<T> {
    /// Creates a queue. Up to `threads` threads call `action`, each time with up to `batch`
    /// consecutive tasks. [`throttle`](Self::throttle) waits while more than `limit` tasks are
    /// queued.
    pub fn new(
        threads: usize,
        limit: usize,
        batch: usize,
        action: impl Fn(Vec<T>) + Send + Sync + 'static,
    ) -> Self {
        let state = QueueState {
            waiting: VecDeque::new(),
            active: 0,
            running: Vec::new(),
            next: 0,
            wanted: 0,
            is_stopped: false,
        };
        let shared = Arc::new(QueueShared {
            many: limit.clamp(1, MANY),
            batch: batch.max(1),
            action: Box::new(action),
            threads: threads.max(1),
            state: Mutex::new(state),
            work: Condvar::new(),
            done: Condvar::new(),
        });
        let of_item = Arc::clone(&shared);
        let item = WorkItem::new(Priority::Normal, shared.threads, move || of_item.run());
        Self { shared, limit, item }
    }
}

impl<T> Queue<T> {
    /// Adds a task. With `is_quick`, its execution is quick, and takes no lock that callers of
    /// [`throttle`](Self::throttle) hold. Never waits for slow operations.
    pub fn add(&self, task: T, is_quick: bool) {
        let mut state = self.shared.state.lock();
        if state.is_stopped {
            return;
        }
        let ticket = state.next;
        state.next += 1;
        state.waiting.push_back(Waiting { ticket, is_quick, task });
        let (waiting, active) = (state.waiting.len(), state.active);
        drop(state);
        // The first task that is not quick shortens the wait.
        if waiting == self.shared.many || !is_quick {
            self.shared.work.notify_all();
        }
        // Otherwise as many runs as may be will look, or one has been queued.
        if active < self.shared.threads && (waiting == 1 || waiting == self.shared.many) {
            self.item.queue();
        }
    }

    /// Waits until all tasks that were added before the call are done. The caller holds no lock
    /// that the action takes.
    pub fn flush(&self) {
        let mut state = self.shared.state.lock();
        let upto = state.next;
        if state.oldest() >= upto {
            return;
        }
        state.wanted = upto;
        self.shared.work.notify_all();
        drop(self.shared.done.wait_while(state, |state| state.oldest() < upto));
    }

    /// Stops the runs after their current batches; tasks that are queued, or added later, are
    /// dropped. May be called again.
    pub fn stop(&self) {
        let mut state = self.shared.state.lock();
        state.is_stopped = true;
        drop(state);
        self.shared.work.notify_all();
        self.item.cancel();
        let left = std::mem::take(&mut self.shared.state.lock().waiting);
        drop(left);
        self.shared.done.notify_all();
    }

    /// Returns the number of unfinished tasks.
    #[must_use]
    pub fn len(&self) -> usize {
        let state = self.shared.state.lock();
        state.waiting.len() + state.running.iter().map(|batch| batch.tasks.len()).sum::<usize>()
    }

    /// Returns whether all tasks are done.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T: Clone> Queue<T> {
    /// Executes the quick tasks at the front of the queue, up to one batch, if at least a batch is
    /// queued. Then waits while more tasks are queued than the limit. To be called before the
    /// caller takes locks.
    pub fn throttle(&self) {
        let mut state = self.shared.state.lock();
        if state.waiting.len() >= self.shared.batch.max(2) {
            let first = state.waiting.iter().take(self.shared.batch);
            let quick = first.take_while(|waiting| waiting.is_quick).count();
            let taken = self.shared.take(&mut state, quick);
            if let Some((running, tasks)) = taken {
                drop(state);
                (self.shared.action)(tasks);
                drop(running);
                state = self.shared.state.lock();
            }
        }
        if state.waiting.len() > self.limit {
            let is_long = |state: &mut QueueState<T>| state.waiting.len() > self.limit;
            drop(self.shared.done.wait_while(state, is_long));
        }
    }

    /// Returns the unfinished tasks.
    pub fn unfinished(&self) -> Vec<T> {
        let state = self.shared.state.lock();
        let waiting = state.waiting.iter().map(|waiting| &waiting.task);
        waiting.chain(state.running.iter().flat_map(|batch| &batch.tasks)).cloned().collect()
    }
}

impl<T: Clone> QueueShared<T> {
    /// Executes tasks until there are none.
    fn run(&self) {
        let mut state = self.state.lock();
        state.active += 1;
        while !state.is_stopped && !state.waiting.is_empty() {
            state = self.linger(state);
            while let Some((running, tasks)) = self.take(&mut state, usize::MAX) {
                drop(state);
                // The panic hook has reported a panic. The run continues, because callers that
                // wait for the other tasks would wait for ever otherwise.
                let _ = panic::catch_unwind(AssertUnwindSafe(|| (self.action)(tasks)));
                drop(running);
                state = self.state.lock();
            }
        }
        state.active -= 1;
    }

    /// Waits until there are more than a few tasks, a caller waits for them, or the time is over.
    fn linger<'s>(
        &self,
        mut state: MutexGuard<'s, QueueState<T>, InactiveQueue>,
    ) -> MutexGuard<'s, QueueState<T>, InactiveQueue> {
        let (mut since, mut front) = (Instant::now(), state.front());
        loop {
            let is_wanted = state.oldest() < state.wanted;
            let are_quick = state.waiting.iter().all(|waiting| waiting.is_quick);
            let linger = if are_quick { LINGER_QUICK } else { LINGER };
            let left = linger.saturating_sub(since.elapsed());
            let is_over = left.is_zero() && state.front() == front;
            if state.is_stopped || is_wanted || is_over || state.waiting.len() >= self.many {
                return state;
            }
            if left.is_zero() {
                // The queued tasks are newer: another thread has taken the earlier ones.
                (since, front) = (Instant::now(), state.front());
                continue;
            }
            (state, _) = self.work.wait_for(state, left);
        }
    }

    /// Takes the next batch, at most `most` tasks, unless the queue is stopped.
    fn take(&self, state: &mut QueueState<T>, most: usize) -> Option<(Running<'_, T>, Vec<T>)> {
        if state.is_stopped || most == 0 {
            return None;
        }
        let ticket = state.front()?;
        let count = state.waiting.len().min(self.batch).min(most);
        let tasks: Vec<T> = state.waiting.drain(..count).map(|waiting| waiting.task).collect();
        state.running.push(Batch { ticket, tasks: tasks.clone() });
        Some((Running { shared: self, ticket }, tasks))
    }
}

/// Guard of a batch that is being executed, by its first ticket. Its drop, after success or panic,
/// ends the wait of other threads.
struct Running<'s, T> {
    shared: &'s QueueShared<T>,
    ticket: u64,
}

impl<T> Drop for Running<'_, T> {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        let at = state.running.iter().position(|batch| batch.ticket == self.ticket);
        let done = at.map(|at| state.running.swap_remove(at));
        drop(state);
        // The tasks are dropped with nothing locked.
        drop(done);
        self.shared.done.notify_all();
    }
}

impl<T> Drop for Queue<T> {
    fn drop(&mut self) {
        self.stop();
    }
}

impl<T> fmt::Debug for Queue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("len", &self.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
