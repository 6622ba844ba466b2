//! Log space: handed out in batches to CPUs, waited for in the order of coming.
//!
//! # Purpose
//!
//! Every transaction reserves log before it changes anything, so that it can't run out later. The
//! kernel keeps the reserved space in one word that every transaction writes twice. Here each CPU
//! slot has an allowance (`vfscale_sync::percpu::Budget`), and only an empty one goes to the common
//! pool.
//!
//! # What the units are
//!
//! The budget's total is the log less a few blocks. A byte of it is taken while it is reserved by a
//! transaction, given by one to the current context, or *on the log*: between the tail that the
//! latest durable record names and the head. Writing a checkpoint turns what its context has into
//! bytes on the log and gives the rest back; moving the durable tail gives back what it passed. So
//! all that is not taken is free to be written, and head and tail can't meet: the head moves by
//! bytes that were taken, and what lies between it and the durable tail is taken.
//!
//! # Waiting
//!
//! * Whoever finds too little queues up. While somebody waits, nobody takes from the fast path: who comes
//!   later queues up behind. So nobody starves.
//! * A rolling transaction that asks again goes before those that have not begun: it holds what they may wait
//!   for, and they hold nothing.
//! * A waiter asks for the tail to be pushed, and whoever gives space serves the queue from its head.
//!
//! # Why a waiter gets what lies in other CPUs' batches
//!
//! Serving the queue takes from the budget, which fails only if less is left *anywhere*: before it
//! does, it closes the allowance of every slot and adds it to the pool. What is given back after
//! that goes to a slot again; but its giver looks for waiters afterwards. The waiter has counted
//! itself before it took in vain, both with a full fence between, so one of the two sees the other:
//! either the waiter's attempt finds the space, or the giver finds the waiter and serves it.

use std::collections::VecDeque;
use std::sync::Arc;

use vfscale_sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence, fence_after_rmw};
use vfscale_sync::percpu::Budget;
use vfscale_sync::{Condvar, Mutex, MutexGuard};

use crate::ranks::GrantQueue;

/// The space of a log.
pub(crate) struct Grant {
    budget: Budget,
    waiting: AtomicUsize,
    queue: Mutex<Queue, GrantQueue>,
    bytes: u64,
}

#[derive(Default)]
struct Queue {
    /// Rolling transactions that ask again.
    again: VecDeque<Arc<Waiter>>,
    fresh: VecDeque<Arc<Waiter>>,
    is_shut: bool,
}

struct Waiter {
    bytes: u64,
    is_served: AtomicBool,
    served: Condvar,
}

/// Who asks for space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asker {
    /// A transaction that has not begun.
    Fresh,
    /// A rolling one that has used up what it had.
    Again,
}

/// The journal was shut down while somebody waited.
#[derive(Debug)]
pub(crate) struct Shut;

impl Grant {
    /// Of `bytes` in all, none of them taken, in `slots` slots.
    pub(crate) fn new(bytes: u64, slots: usize) -> Self {
        Self {
            budget: Budget::new(bytes, slots),
            waiting: AtomicUsize::new(0),
            queue: Mutex::new(Queue::default()),
            bytes,
        }
    }

    /// The whole.
    pub(crate) fn total(&self) -> u64 {
        self.bytes
    }

    /// What is taken, at one moment during the call.
    pub(crate) fn used(&self) -> u64 {
        self.budget.used_exactly()
    }

    /// Whether somebody waits.
    pub(crate) fn has_waiters(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) != 0
    }

    /// Takes `bytes`. If there are too few, or somebody else waits already, queues up and sleeps
    /// until it is served; `push_tail` is called each time before it sleeps.
    pub(crate) fn take(&self, bytes: u64, asker: Asker, push_tail: impl Fn()) -> Result<(), Shut> {
        // Relaxed: a waiter that is overlooked came at the same time.
        if self.waiting.load(Ordering::Relaxed) == 0 && self.budget.take(bytes) {
            return Ok(());
        }
        self.wait(bytes, asker, push_tail)
    }

    #[cold]
    fn wait(&self, bytes: u64, asker: Asker, push_tail: impl Fn()) -> Result<(), Shut> {
        let waiter =
            Arc::new(Waiter { bytes, is_served: AtomicBool::new(false), served: Condvar::new() });
        let mut queue = self.queue.lock();
        queue.of(asker).push_back(waiter.clone());
        self.waiting.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        loop {
            self.serve(&mut queue);
            if waiter.is_served.load(Ordering::Relaxed) {
                return Ok(());
            }
            if queue.is_shut {
                queue.of(asker).retain(|other| !Arc::ptr_eq(other, &waiter));
                self.waiting.fetch_sub(1, Ordering::SeqCst);
                return Err(Shut);
            }
            push_tail();
            queue = waiter.served.wait(queue);
        }
    }

    /// Gives whoever is first what it waits for, as long as there is enough.
    fn serve(&self, queue: &mut MutexGuard<'_, Queue, GrantQueue>) {
        while let Some(first) = queue.first() {
            if !self.budget.take(first.bytes) {
                return;
            }
            let first = queue.pop();
            self.waiting.fetch_sub(1, Ordering::SeqCst);
            if let Some(first) = first {
                first.is_served.store(true, Ordering::Relaxed);
                first.served.notify_all();
            }
        }
    }

    /// Gives back what was taken.
    pub(crate) fn give(&self, bytes: u64) {
        if bytes == 0 {
            return;
        }
        self.budget.give(bytes);
        // Giving ends with an atomic exchange. Pairs with the fence of a waiter.
        fence_after_rmw();
        if self.waiting.load(Ordering::Relaxed) != 0 {
            self.serve(&mut self.queue.lock());
        }
    }

    /// Wakes all who wait, with an error; who comes later and would wait gets it, too.
    pub(crate) fn shut(&self) {
        let mut queue = self.queue.lock();
        queue.is_shut = true;
        for waiter in queue.again.iter().chain(&queue.fresh) {
            waiter.served.notify_all();
        }
    }
}

impl Queue {
    fn of(&mut self, asker: Asker) -> &mut VecDeque<Arc<Waiter>> {
        match asker {
            Asker::Again => &mut self.again,
            Asker::Fresh => &mut self.fresh,
        }
    }

    fn first(&self) -> Option<&Arc<Waiter>> {
        self.again.front().or_else(|| self.fresh.front())
    }

    fn pop(&mut self) -> Option<Arc<Waiter>> {
        self.again.pop_front().or_else(|| self.fresh.pop_front())
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests;
