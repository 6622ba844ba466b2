//! Things that are done in the background, each once, several at a time.
//!
//! # Not one by one
//!
//! To wake a thread costs more than most of what it is woken for, and then it and the one that woke it
//! want the same locks. So a thread that finds only a few things waits a moment for more
//! ([`LINGER`]), and does them all; whoever needs them done ([`Queue::flush`], [`Queue::throttle`])
//! cuts that short. XFS inactivates inodes likewise a moment later, or when there are many. And what does
//! them gets several at once, since they have one transaction in common then.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use vfscale_sync::{Condvar, Mutex, MutexGuard};

use crate::ranks::InactiveQueue;

/// How long a thread waits for more when there are only a few things to do.
pub(super) const LINGER: Duration = Duration::from_millis(1);
/// So many are not few.
const MANY: usize = 64;

/// A queue, and the threads that do what is in it. `Send` and `Sync`.
///
/// Dropped, it does not do what is still in it: its threads end after what they are doing.
pub struct Queue<T> {
    shared: Arc<Shared<T>>,
    limit: usize,
}

struct Shared<T> {
    /// From how many things on they are done at once; not more than make somebody wait.
    many: usize,
    /// The most that one call of the action gets.
    batch: usize,
    state: Mutex<State<T>, InactiveQueue>,
    /// There is something to do, or nothing any more.
    work: Condvar,
    /// Something was done.
    done: Condvar,
}

struct State<T> {
    /// In the order of tickets.
    waiting: VecDeque<(u64, T)>,
    /// What is being done: the ticket of the first, and how many.
    running: Vec<(u64, usize)>,
    next: u64,
    /// Somebody waits for what has a lower ticket.
    wanted: u64,
    is_stopped: bool,
    threads: Vec<JoinHandle<()>>,
}

impl<T> State<T> {
    /// Everything with a lower ticket is done.
    fn oldest(&self) -> u64 {
        let waiting = self.waiting.front().map(|(ticket, _)| *ticket);
        let running = self.running.iter().map(|(ticket, _)| *ticket);
        running.chain(waiting).min().unwrap_or(self.next)
    }
}

impl<T: Send + 'static> Queue<T> {
    /// A queue whose `threads` threads call `action`, with up to `batch` things that came one after the
    /// other. Who [asks](Self::throttle) waits while more than `limit` things are in it.
    pub fn new(
        threads: usize,
        limit: usize,
        batch: usize,
        action: impl Fn(Vec<T>) + Send + Sync + 'static,
    ) -> Self {
        let state = State {
            waiting: VecDeque::new(),
            running: Vec::new(),
            next: 0,
            wanted: 0,
            is_stopped: false,
            threads: Vec::new(),
        };
        let shared = Arc::new(Shared {
            many: limit.clamp(1, MANY),
            batch: batch.max(1),
            state: Mutex::new(state),
            work: Condvar::new(),
            done: Condvar::new(),
        });
        let action = Arc::new(action);
        let thread = |_| {
            let (shared, action) = (Arc::clone(&shared), Arc::clone(&action));
            thread::spawn(move || shared.run(&*action))
        };
        let threads = (0..threads.max(1)).map(thread).collect();
        shared.state.lock().threads = threads;
        Self { shared, limit }
    }
}

impl<T> Queue<T> {
    /// Puts something in. Never waits for anything slow.
    pub fn add(&self, thing: T) {
        let mut state = self.shared.state.lock();
        if state.is_stopped {
            return;
        }
        let ticket = state.next;
        state.next += 1;
        state.waiting.push_back((ticket, thing));
        let waiting = state.waiting.len();
        drop(state);
        // Others find a thread awake, or one that wakes soon.
        if waiting == 1 || waiting == self.shared.many {
            self.shared.work.notify_all();
        }
    }

    /// Waits until everything is done that was put in before the call. The caller holds no lock that the
    /// action takes.
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

    /// Waits while more is in the queue than its limit. For who puts things in, before he takes locks.
    pub fn throttle(&self) {
        let state = self.shared.state.lock();
        if state.waiting.len() > self.limit {
            let is_long = |state: &mut State<T>| state.waiting.len() > self.limit;
            drop(self.shared.done.wait_while(state, is_long));
        }
    }

    /// Ends the threads, after what they are doing; what is in the queue, or comes later, is dropped. May be
    /// called again.
    pub fn stop(&self) {
        let mut state = self.shared.state.lock();
        state.is_stopped = true;
        let threads = std::mem::take(&mut state.threads);
        drop(state);
        self.shared.work.notify_all();
        for thread in threads {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
        let left = std::mem::take(&mut self.shared.state.lock().waiting);
        drop(left);
        self.shared.done.notify_all();
    }

    /// How many things are not done yet.
    #[must_use]
    pub fn len(&self) -> usize {
        let state = self.shared.state.lock();
        state.waiting.len() + state.running.iter().map(|(_, things)| things).sum::<usize>()
    }

    /// Whether everything is done.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T> Shared<T> {
    fn run(&self, action: &(dyn Fn(Vec<T>) + Send + Sync)) {
        loop {
            let state = self.state.lock();
            let is_idle = |state: &mut State<T>| !state.is_stopped && state.waiting.is_empty();
            let state = self.linger(self.work.wait_while(state, is_idle));
            if state.is_stopped {
                return;
            }
            drop(state);
            while let Some((running, things)) = self.take() {
                // What panics has said so. The others still have to be done, or those who wait for them
                // would wait for ever.
                let _ = panic::catch_unwind(AssertUnwindSafe(|| action(things)));
                drop(running);
            }
        }
    }

    /// Waits until there is more to do than a few things, somebody waits for them, or a moment is over.
    fn linger<'s>(
        &self,
        mut state: MutexGuard<'s, State<T>, InactiveQueue>,
    ) -> MutexGuard<'s, State<T>, InactiveQueue> {
        let end = Instant::now() + LINGER;
        loop {
            let is_wanted = state.oldest() < state.wanted;
            let left = end.saturating_duration_since(Instant::now());
            if state.is_stopped || is_wanted || state.waiting.len() >= self.many {
                return state;
            }
            let is_over;
            (state, is_over) = self.work.wait_for(state, left);
            if is_over {
                return state;
            }
        }
    }

    /// What is to be done next, unless the queue is stopped.
    fn take(&self) -> Option<(Running<'_, T>, Vec<T>)> {
        let mut state = self.state.lock();
        if state.is_stopped {
            return None;
        }
        let ticket = state.waiting.front()?.0;
        let count = state.waiting.len().min(self.batch);
        let things = state.waiting.drain(..count).map(|(_, thing)| thing).collect();
        state.running.push((ticket, count));
        Some((Running { shared: self, ticket }, things))
    }
}

/// Things that are being done, by the ticket of the first. However that ends, nobody waits for them any
/// longer.
struct Running<'s, T> {
    shared: &'s Shared<T>,
    ticket: u64,
}

impl<T> Drop for Running<'_, T> {
    fn drop(&mut self) {
        self.shared.state.lock().running.retain(|(ticket, _)| *ticket != self.ticket);
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
