//! Things that are done in the background, each once.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use vfscale_sync::{Condvar, Mutex};

use crate::ranks::InactiveQueue;

/// A queue, and the threads that do what is in it. `Send` and `Sync`.
///
/// Dropped, it does not do what is still in it: its threads end after what they are doing.
pub struct Queue<T> {
    shared: Arc<Shared<T>>,
    limit: usize,
}

struct Shared<T> {
    state: Mutex<State<T>, InactiveQueue>,
    /// There is something to do, or nothing any more.
    work: Condvar,
    /// Something was done.
    done: Condvar,
}

struct State<T> {
    /// In the order of tickets.
    waiting: VecDeque<(u64, T)>,
    /// The tickets of what is being done.
    running: Vec<u64>,
    next: u64,
    is_stopped: bool,
    threads: Vec<JoinHandle<()>>,
}

impl<T> State<T> {
    /// Everything with a lower ticket is done.
    fn oldest(&self) -> u64 {
        let waiting = self.waiting.front().map(|(ticket, _)| *ticket);
        self.running.iter().copied().chain(waiting).min().unwrap_or(self.next)
    }
}

impl<T: Send + 'static> Queue<T> {
    /// A queue whose `threads` threads call `action`. Who [asks](Self::throttle) waits while more than
    /// `limit` things are in it.
    pub fn new(threads: usize, limit: usize, action: impl Fn(T) + Send + Sync + 'static) -> Self {
        let state = State {
            waiting: VecDeque::new(),
            running: Vec::new(),
            next: 0,
            is_stopped: false,
            threads: Vec::new(),
        };
        let shared = Arc::new(Shared {
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
        drop(state);
        self.shared.work.notify_all();
    }

    /// Waits until everything is done that was put in before the call. The caller holds no lock that the
    /// action takes.
    pub fn flush(&self) {
        let state = self.shared.state.lock();
        let upto = state.next;
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
        state.waiting.len() + state.running.len()
    }

    /// Whether everything is done.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T> Shared<T> {
    fn run(&self, action: &(dyn Fn(T) + Send + Sync)) {
        loop {
            let state = self.state.lock();
            let is_idle = |state: &mut State<T>| !state.is_stopped && state.waiting.is_empty();
            let mut state = self.work.wait_while(state, is_idle);
            if state.is_stopped {
                return;
            }
            let Some((ticket, thing)) = state.waiting.pop_front() else { continue };
            state.running.push(ticket);
            drop(state);
            let running = Running { shared: self, ticket };
            // What panics has said so. The others still have to be done, or those who wait for them
            // would wait for ever.
            let _ = panic::catch_unwind(AssertUnwindSafe(|| action(thing)));
            drop(running);
        }
    }
}

/// Something that is being done. However that ends, nobody waits for it any longer.
struct Running<'s, T> {
    shared: &'s Shared<T>,
    ticket: u64,
}

impl<T> Drop for Running<'_, T> {
    fn drop(&mut self) {
        self.shared.state.lock().running.retain(|ticket| *ticket != self.ticket);
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
