//! Log space: granted to CPUs in batches, waited for in the order of arrival.
//!
//! # Purpose
//!
//! Every transaction reserves log space before it changes anything, so that it can't run out of it
//! later. Linux counts the reserved space in one word (the grant head) that every transaction
//! writes twice. Here each CPU slot has an allowance (`vfscale_sync::percpu::Budget`), and a
//! transaction uses the common pool only if that is empty.
//!
//! # Which bytes are taken
//!
//! The budget's total is the size of the log less a few blocks. A byte of it is taken while a
//! transaction has it reserved, while the current context has it from a transaction, or while it is
//! *on the log*: between the tail that the latest durable record names and the head. Writing a
//! checkpoint converts bytes of its context to bytes on the log and returns the rest. Moving the
//! durable tail returns the bytes that it passed. So all bytes that are not taken are free to be
//! written, and the head can't reach the tail: the head moves by bytes that were taken, and the
//! bytes between it and the durable tail are taken.
//!
//! # Waiting
//!
//! * A transaction that finds too few bytes queues up. While the queue is not empty no transaction
//!   uses the fast path: later ones join the queue. So no transaction starves.
//! * A rolling transaction that reserves again is served before those that have not begun: it holds
//!   what they may be waiting for, and they hold nothing.
//! * A waiter requests a push of the tail, and each thread that returns space serves the queue from
//!   its front.
//! * A push that can't move the tail, because storage is short where items are written back,
//!   refuses those that have not begun. Later ones request a push again: by then there may be room.
//!
//! # Why a waiter gets the bytes in the allowances of other CPUs
//!
//! Serving the queue takes from the budget, which fails only if too little is left *anywhere*:
//! before it fails, it closes the allowance of every slot and adds it to the pool. Bytes that are
//! returned after that enter an allowance again, but the thread that returns them then checks for
//! waiters. The waiter has counted itself before it tried in vain, and both have a full fence in
//! between. So one of the two sees the other: either the waiter's attempt finds the bytes, or the
//! returning thread finds the waiter and serves it.

use std::collections::VecDeque;
use std::sync::Arc;

use vfscale_sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence, fence_after_rmw};
use vfscale_sync::percpu::Budget;
use vfscale_sync::{Condvar, Mutex, MutexGuard};

use crate::ranks::GrantQueue;

/// The free and reserved space of a log. Counterpart of `struct xlog_grant_head`.
pub(crate) struct Grant {
    budget: Budget,
    waiting: AtomicUsize,
    queue: Mutex<Queue, GrantQueue>,
    bytes: u64,
}

#[derive(Default)]
struct Queue {
    /// Rolling transactions that reserve again.
    regrant: VecDeque<Arc<Waiter>>,
    new: VecDeque<Arc<Waiter>>,
    is_shut: bool,
    /// The number of transactions that have queued up and slept.
    waits: u64,
}

struct Waiter {
    bytes: u64,
    is_served: AtomicBool,
    /// Whether it was taken from the queue because no space can be had.
    is_refused: AtomicBool,
    served: Condvar,
}

/// The kind of a reservation, which decides its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReserveKind {
    /// First reservation of a transaction that has not begun.
    New,
    /// Further reservation of a rolling transaction that has used its first one up.
    Regrant,
}

/// The reason why a transaction that waited got no space.
#[derive(Debug)]
pub(crate) enum Unserved {
    /// The journal was shut down.
    Shut,
    /// The tail can't move now.
    Refused,
}

impl Grant {
    /// Creates a grant of `bytes` bytes in `slots` slots, none of them taken.
    pub(crate) fn new(bytes: u64, slots: usize) -> Self {
        Self {
            budget: Budget::new(bytes, slots),
            waiting: AtomicUsize::new(0),
            queue: Mutex::new(Queue::default()),
            bytes,
        }
    }

    /// Returns the total number of bytes.
    pub(crate) fn total(&self) -> u64 {
        self.bytes
    }

    /// Returns the number of taken bytes at one moment during the call.
    pub(crate) fn used(&self) -> u64 {
        self.budget.used_exactly()
    }

    /// Returns the number of transactions that have waited.
    pub(crate) fn waits(&self) -> u64 {
        self.queue.lock().waits
    }

    /// Returns whether a transaction waits.
    pub(crate) fn has_waiters(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) != 0
    }

    /// Takes `bytes` on a CPU. If too few are left, or another transaction waits already, queues up
    /// and sleeps until it is served. Calls `push_tail` each time before it sleeps.
    pub(crate) fn take(
        &self,
        cpu: u32,
        bytes: u64,
        kind: ReserveKind,
        push_tail: impl Fn(),
    ) -> Result<(), Unserved> {
        // Relaxed: a waiter that is overlooked arrived at the same time.
        if self.waiting.load(Ordering::Relaxed) == 0 && self.budget.take_at(cpu, bytes) {
            return Ok(());
        }
        self.wait(bytes, kind, push_tail)
    }

    #[cold]
    fn wait(&self, bytes: u64, kind: ReserveKind, push_tail: impl Fn()) -> Result<(), Unserved> {
        let (is_served, is_refused) = (AtomicBool::new(false), AtomicBool::new(false));
        let waiter = Arc::new(Waiter { bytes, is_served, is_refused, served: Condvar::new() });
        let mut queue = self.queue.lock();
        queue.of(kind).push_back(waiter.clone());
        self.waiting.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let mut has_slept = false;
        loop {
            self.serve(&mut queue);
            if waiter.is_served.load(Ordering::Relaxed) {
                return Ok(());
            }
            if waiter.is_refused.load(Ordering::Relaxed) {
                return Err(Unserved::Refused);
            }
            if queue.is_shut {
                queue.of(kind).retain(|other| !Arc::ptr_eq(other, &waiter));
                self.waiting.fetch_sub(1, Ordering::SeqCst);
                return Err(Unserved::Shut);
            }
            if !has_slept {
                has_slept = true;
                queue.waits += 1;
            }
            push_tail();
            queue = waiter.served.wait(queue);
        }
    }

    /// Serves the queue from its front, as long as enough bytes are left.
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

    /// Returns bytes that were taken, on a CPU.
    pub(crate) fn give(&self, cpu: u32, bytes: u64) {
        if bytes == 0 {
            return;
        }
        self.budget.give_at(cpu, bytes);
        // `Budget::give` ends with an atomic exchange. Pairs with the fence of a waiter.
        fence_after_rmw();
        if self.waiting.load(Ordering::Relaxed) != 0 {
            self.serve(&mut self.queue.lock());
        }
    }

    /// Refuses all waiters that have not begun. Returns false if others are left, which can't be
    /// refused.
    pub(crate) fn refuse(&self) -> bool {
        let mut queue = self.queue.lock();
        let refused = std::mem::take(&mut queue.new);
        self.waiting.fetch_sub(refused.len(), Ordering::SeqCst);
        for waiter in &refused {
            waiter.is_refused.store(true, Ordering::Relaxed);
            waiter.served.notify_all();
        }
        queue.regrant.is_empty()
    }

    /// Wakes all waiters with an error. Later calls that would wait fail as well.
    pub(crate) fn shut(&self) {
        let mut queue = self.queue.lock();
        queue.is_shut = true;
        for waiter in queue.regrant.iter().chain(&queue.new) {
            waiter.served.notify_all();
        }
    }
}

impl Queue {
    fn of(&mut self, kind: ReserveKind) -> &mut VecDeque<Arc<Waiter>> {
        match kind {
            ReserveKind::Regrant => &mut self.regrant,
            ReserveKind::New => &mut self.new,
        }
    }

    fn first(&self) -> Option<&Arc<Waiter>> {
        self.regrant.front().or_else(|| self.new.front())
    }

    fn pop(&mut self) -> Option<Arc<Waiter>> {
        self.regrant.pop_front().or_else(|| self.new.pop_front())
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests;
