//! Things that are done in the background, each once, several at a time.
//!
//! # Not one by one
//!
//! To wake a thread costs more than most of what it is woken for, and then it and the one that woke
//! it want the same locks. So a thread that finds only a few things waits a moment for more
//! ([`LINGER`]), and does them all; whoever needs them done ([`Queue::flush`], [`Queue::throttle`])
//! cuts that short. XFS inactivates inodes likewise a moment later, or when there are many. And
//! what does them gets several at once, since they have one transaction in common then.
//!
//! # By whom
//!
//! Who puts things in faster than in a moment a few does those that are quick himself, a batch at a
//! time ([`Queue::throttle`]): what they touch is in the cache of his CPU, and a thread on another
//! one would take it away, only for him to fetch it back. Then the threads find nothing that has
//! waited for long, and wait on.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::time::{Duration, Instant};

use vfscale_sync::atomic::thread::{self, JoinHandle};
use vfscale_sync::{Condvar, Mutex, MutexGuard};

use crate::base::ranks::InactiveQueue;

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
    action: Box<dyn Fn(Vec<T>) + Send + Sync>,
    state: Mutex<State<T>, InactiveQueue>,
    /// There is something to do, or nothing any more.
    work: Condvar,
    /// Something was done.
    done: Condvar,
}

struct State<T> {
    /// In the order of tickets.
    waiting: VecDeque<Waiting<T>>,
    /// Threads that sleep until there is something.
    idle: usize,
    running: Vec<Batch<T>>,
    next: u64,
    /// Somebody waits for what has a lower ticket.
    wanted: u64,
    is_stopped: bool,
    threads: Vec<JoinHandle<()>>,
}

/// Work under way.
struct Batch<T> {
    /// The ticket of the first.
    ticket: u64,
    things: usize,
    /// Those among them that are not quick.
    slow: Vec<T>,
}

struct Waiting<T> {
    ticket: u64,
    /// Who has put it in can do it himself.
    is_quick: bool,
    thing: T,
}

impl<T> State<T> {
    /// The ticket of what has waited for the longest.
    fn front(&self) -> Option<u64> {
        self.waiting.front().map(|waiting| waiting.ticket)
    }

    /// Everything with a lower ticket is done.
    fn oldest(&self) -> u64 {
        let waiting = self.front();
        let running = self.running.iter().map(|batch| batch.ticket);
        running.chain(waiting).min().unwrap_or(self.next)
    }
}

impl<T: Clone + Send + 'static> Queue<T> {
    /// A queue whose `threads` threads call `action`, with up to `batch` things that came one after
    /// the other. Who [asks](Self::throttle) waits while more than `limit` things are in it.
    pub fn new(
        threads: usize,
        limit: usize,
        batch: usize,
        action: impl Fn(Vec<T>) + Send + Sync + 'static,
    ) -> Self {
        let state = State {
            waiting: VecDeque::new(),
            idle: 0,
            running: Vec::new(),
            next: 0,
            wanted: 0,
            is_stopped: false,
            threads: Vec::new(),
        };
        let shared = Arc::new(Shared {
            many: limit.clamp(1, MANY),
            batch: batch.max(1),
            action: Box::new(action),
            state: Mutex::new(state),
            work: Condvar::new(),
            done: Condvar::new(),
        });
        let thread = |_| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.run())
        };
        let threads = (0..threads.max(1)).map(thread).collect();
        shared.state.lock().threads = threads;
        Self { shared, limit }
    }
}

impl<T> Queue<T> {
    /// Puts something in; says whether doing it is quick, and takes no lock that those hold who
    /// [ask](Self::throttle). Never waits for anything slow.
    pub fn add(&self, thing: T, is_quick: bool) {
        let mut state = self.shared.state.lock();
        if state.is_stopped {
            return;
        }
        let ticket = state.next;
        state.next += 1;
        state.waiting.push_back(Waiting { ticket, is_quick, thing });
        let waiting = state.waiting.len();
        let nobody_looks = waiting == 1 && state.idle > 0;
        drop(state);
        // Others find a thread awake, or one that wakes soon.
        if nobody_looks || waiting == self.shared.many {
            self.shared.work.notify_all();
        }
    }

    /// Waits until everything is done that was put in before the call. The caller holds no lock
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

    /// Ends the threads, after what they are doing; what is in the queue, or comes later, is
    /// dropped. May be called again.
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
        state.waiting.len() + state.running.iter().map(|batch| batch.things).sum::<usize>()
    }

    /// Whether everything is done.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T: Clone> Queue<T> {
    /// Does a batch of what is in the queue, if there is one of quick things. Then waits while more
    /// is in the queue than its limit. For who puts things in, before he takes locks.
    pub fn throttle(&self) {
        let mut state = self.shared.state.lock();
        if state.waiting.len() >= self.shared.batch.max(2) {
            let first = state.waiting.iter().take(self.shared.batch);
            let quick = first.take_while(|waiting| waiting.is_quick).count();
            let taken = self.shared.take(&mut state, quick);
            if let Some((running, things)) = taken {
                drop(state);
                (self.shared.action)(things);
                drop(running);
                state = self.shared.state.lock();
            }
        }
        if state.waiting.len() > self.limit {
            let is_long = |state: &mut State<T>| state.waiting.len() > self.limit;
            drop(self.shared.done.wait_while(state, is_long));
        }
    }

    /// Work that is not done yet and not quick.
    pub fn slow(&self) -> Vec<T> {
        let state = self.shared.state.lock();
        let waiting = state.waiting.iter().filter(|waiting| !waiting.is_quick);
        let running = state.running.iter().flat_map(|batch| &batch.slow);
        waiting.map(|waiting| &waiting.thing).chain(running).cloned().collect()
    }
}

impl<T: Clone> Shared<T> {
    fn run(&self) {
        let mut state = self.state.lock();
        loop {
            state.idle += 1;
            let is_idle = |state: &mut State<T>| !state.is_stopped && state.waiting.is_empty();
            state = self.work.wait_while(state, is_idle);
            state.idle -= 1;
            state = self.linger(state);
            if state.is_stopped {
                return;
            }
            while let Some((running, things)) = self.take(&mut state, usize::MAX) {
                drop(state);
                // What panics has said so. The others still have to be done, or those who wait for
                // them would wait for ever.
                let _ = panic::catch_unwind(AssertUnwindSafe(|| (self.action)(things)));
                drop(running);
                state = self.state.lock();
            }
        }
    }

    /// Waits until there is more to do than a few things, somebody waits for them, or a moment is
    /// over.
    fn linger<'s>(
        &self,
        mut state: MutexGuard<'s, State<T>, InactiveQueue>,
    ) -> MutexGuard<'s, State<T>, InactiveQueue> {
        let (mut end, mut front) = (Instant::now() + LINGER, state.front());
        loop {
            let is_wanted = state.oldest() < state.wanted;
            let left = end.saturating_duration_since(Instant::now());
            let is_over = left.is_zero() && state.front() == front;
            if state.is_stopped || is_wanted || is_over || state.waiting.len() >= self.many {
                return state;
            }
            if left.is_zero() {
                // What waits now came later, for somebody else did what was here.
                (end, front) = (Instant::now() + LINGER, state.front());
                continue;
            }
            (state, _) = self.work.wait_for(state, left);
        }
    }

    /// What is to be done next, `most` at most, unless the queue is stopped.
    fn take(&self, state: &mut State<T>, most: usize) -> Option<(Running<'_, T>, Vec<T>)> {
        if state.is_stopped || most == 0 {
            return None;
        }
        let ticket = state.front()?;
        let count = state.waiting.len().min(self.batch).min(most);
        let mut slow = Vec::new();
        let thing = |waiting: Waiting<T>| {
            if !waiting.is_quick {
                slow.push(waiting.thing.clone());
            }
            waiting.thing
        };
        let things: Vec<T> = state.waiting.drain(..count).map(thing).collect();
        state.running.push(Batch { ticket, things: count, slow });
        Some((Running { shared: self, ticket }, things))
    }
}

/// Things that are being done, by the ticket of the first. However that ends, nobody waits for them
/// any longer.
struct Running<'s, T> {
    shared: &'s Shared<T>,
    ticket: u64,
}

impl<T> Drop for Running<'_, T> {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        let at = state.running.iter().position(|batch| batch.ticket == self.ticket);
        let done = at.map(|at| state.running.swap_remove(at));
        drop(state);
        // What it holds is dropped with nothing locked.
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
