//! Sleeping until woken, by address.
//!
//! A thin layer over `parking_lot_core` (the futex idea of Franke, Russell and Kirkwood, done in
//! user space by WebKit's ParkingLot). A lock needs no memory of its own for sleepers: a global
//! table maps the lock's address to the queue. Callbacks run under that queue's lock, which makes
//! the check for sleepers and the change of the lock word one step. They must neither panic nor
//! park.
//!
//! In a model the queue is made of the checker's own primitives, so the protocol between a lock's
//! word and its sleepers is checked too.

/// A value that a sleeper passes to its waker, or the waker to the sleeper.
pub(crate) type Token = usize;

/// The waker only woke the sleeper, which must compete again.
pub(crate) const COMPETE: Token = 0;
/// The waker passed the lock on: the sleeper holds it.
pub(crate) const HANDOFF: Token = 1;

/// Flag in the token of a sleeper that was woken before and was too late each time. The lock is
/// passed on only to such sleepers: the common wakeup stays cheap, and no thread starves.
pub(crate) const IMPATIENT: Token = 2;

/// Number of wakeups that a sleeper loses before it becomes impatient.
const PATIENCE: u32 = if cfg!(any(loom, shuttle)) { 1 } else { 2 };

/// Returns the token of a sleeper of `kind` (below [`IMPATIENT`]) that has lost `lost` wakeups.
pub(crate) fn token(kind: Token, lost: u32) -> Token {
    if lost < PATIENCE { kind } else { kind | IMPATIENT }
}

/// The state of a queue at a wakeup, under the queue's lock.
pub(crate) struct Woken {
    /// Number of threads about to be woken.
    pub(crate) threads: usize,
    /// Whether other threads stay asleep on this address.
    pub(crate) more: bool,
    /// Whether the woken thread that waits longest is [`IMPATIENT`]: it must be passed the lock
    /// instead of competing for it.
    pub(crate) impatient: bool,
    /// The token of that thread.
    pub(crate) first: Token,
}

#[cfg(not(any(loom, shuttle)))]
mod imp {
    use super::{IMPATIENT, Token, Woken};
    use parking_lot_core::{FilterOp, ParkResult, ParkToken, UnparkResult, UnparkToken};
    use std::cell::Cell;
    use std::time::Instant;

    /// Sleeps on `key` if `validate` still holds under the queue's lock. Returns the waker's token,
    /// or `None` if `validate` returned false.
    pub(crate) fn park(key: usize, token: Token, validate: impl FnOnce() -> bool) -> Option<Token> {
        park_until(key, token, validate, None)
    }

    /// Sleeps like [`park`], until `deadline` at the latest; returns `None` then, too.
    pub(crate) fn park_until(
        key: usize,
        token: Token,
        validate: impl FnOnce() -> bool,
        deadline: Option<Instant>,
    ) -> Option<Token> {
        crate::fork::assert_no_child();
        // SAFETY: `key` is an address inside a lock that the caller borrows, so no other code uses
        // it as a key; the callbacks neither panic nor call back into this module.
        let result = unsafe {
            parking_lot_core::park(key, validate, || {}, |_, _| {}, ParkToken(token), deadline)
        };
        match result {
            ParkResult::Unparked(token) => Some(token.0),
            ParkResult::Invalid | ParkResult::TimedOut => None,
        }
    }

    /// Wakes the head of the queue: every sleeper for which `take` holds, up to the first for which
    /// it does not. `publish` changes the lock word and chooses the token that the woken get.
    pub(crate) fn unpark_while(
        key: usize,
        mut take: impl FnMut(Token) -> bool,
        publish: impl FnOnce(Woken) -> Token,
    ) {
        let first = Cell::new(0);
        let mut taken = 0_u32;
        let filter = |token: ParkToken| {
            if !take(token.0) {
                return FilterOp::Stop;
            }
            if taken == 0 {
                first.set(token.0);
            }
            taken += 1;
            FilterOp::Unpark
        };
        let publish = |result: UnparkResult| {
            UnparkToken(publish(Woken {
                threads: result.unparked_threads,
                more: result.have_more_threads,
                impatient: first.get() & IMPATIENT != 0,
                first: first.get(),
            }))
        };
        // SAFETY: `key` is an address inside a lock that the caller borrows, so no other code uses
        // it as a key; the callbacks neither panic nor call back into this module.
        unsafe {
            parking_lot_core::unpark_filter(key, filter, publish);
        }
    }
}

/// This layer over the model checker's own mutex and condition variables: the checker sees which
/// threads sleep, explores every wakeup, and reports a lost one as a deadlock.
#[cfg(any(loom, shuttle))]
mod imp {
    use super::{IMPATIENT, Token, Woken};
    use std::cell::Cell;
    use std::sync::Arc;

    #[cfg(loom)]
    use loom::{
        lazy_static,
        sync::{Condvar, Mutex, MutexGuard},
    };
    #[cfg(all(shuttle, not(loom)))]
    use shuttle::{
        lazy_static,
        sync::{Condvar, Mutex, MutexGuard},
    };

    struct Sleeper {
        key: usize,
        token: Token,
        /// The waker's token; read and written only under the queue's lock.
        told: Cell<Option<Token>>,
        wakeup: Condvar,
    }

    // SAFETY: `told`, the only part that is not `Sync`, is used only under the queue's lock.
    unsafe impl Sync for Sleeper {}
    // SAFETY: `told`, the only part that is not `Sync`, is used only under the queue's lock.
    unsafe impl Send for Sleeper {}

    lazy_static! {
        /// All sleepers of an execution, longest wait first.
        static ref SLEEPERS: Mutex<Vec<Arc<Sleeper>>> = Mutex::new(Vec::new());
    }

    fn queue() -> MutexGuard<'static, Vec<Arc<Sleeper>>> {
        SLEEPERS.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Sleeps like [`park`]: time does not pass in a model, and callers handle deadlines elsewhere.
    pub(crate) fn park_until(
        key: usize,
        token: Token,
        validate: impl FnOnce() -> bool,
        _deadline: Option<std::time::Instant>,
    ) -> Option<Token> {
        park(key, token, validate)
    }

    pub(crate) fn park(key: usize, token: Token, validate: impl FnOnce() -> bool) -> Option<Token> {
        let mut sleepers = queue();
        if !validate() {
            return None;
        }
        let told = Cell::new(None);
        let sleeper = Arc::new(Sleeper { key, token, told, wakeup: Condvar::new() });
        sleepers.push(Arc::clone(&sleeper));
        while sleeper.told.get().is_none() {
            let woken = sleeper.wakeup.wait(sleepers);
            sleepers = woken.unwrap_or_else(std::sync::PoisonError::into_inner);
        }
        sleeper.told.get()
    }

    pub(crate) fn unpark_while(
        key: usize,
        mut take: impl FnMut(Token) -> bool,
        publish: impl FnOnce(Woken) -> Token,
    ) {
        let mut sleepers = queue();
        let mut stopped = false;
        let woken: Vec<_> = sleepers
            .extract_if(.., |sleeper| {
                stopped |= sleeper.key == key && !stopped && !take(sleeper.token);
                sleeper.key == key && !stopped
            })
            .collect();
        let first = woken.first().map_or(0, |sleeper| sleeper.token);
        let token = publish(Woken {
            threads: woken.len(),
            more: sleepers.iter().any(|sleeper| sleeper.key == key),
            impatient: first & IMPATIENT != 0,
            first,
        });
        for sleeper in woken {
            sleeper.told.set(Some(token));
            sleeper.wakeup.notify_one();
        }
    }
}

pub(crate) use imp::{park, park_until, unpark_while};

/// Wakes the sleeper that waits longest.
pub(crate) fn unpark_one(key: usize, publish: impl FnOnce(Woken) -> Token) {
    let mut left = 1_u32;
    let take = |_| {
        let taken = left > 0;
        left = 0;
        taken
    };
    unpark_while(key, take, publish);
}
