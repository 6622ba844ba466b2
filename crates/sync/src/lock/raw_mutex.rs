//! The word of a mutex, without data, class or order checking.

use crate::atomic::{AtomicU32, Ordering, const_unless_loom};
use crate::lock::stat::{LockStat, Waiting};
use crate::park;
use crate::wait::Spin;

const LOCKED: u32 = 1;
/// Somebody sleeps, or is about to. Set only while locked.
const PARKED: u32 = 2;

/// Four bytes: free, locked, or locked with sleepers.
pub(crate) struct RawMutex {
    word: AtomicU32,
}

impl RawMutex {
    const_unless_loom! {
        /// A free lock.
        pub(crate) fn new() -> Self {
            Self { word: AtomicU32::new(0) }
        }
    }

    /// Takes the lock if it is free.
    #[inline]
    pub(crate) fn try_lock(&self) -> bool {
        // Sleepers may remain from before (PARKED without LOCKED): they are kept.
        let mut word = self.word.load(Ordering::Relaxed);
        while word & LOCKED == 0 {
            match self.word.compare_exchange_weak(
                word,
                word | LOCKED,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// Takes the lock, waiting for as long as it is held.
    #[inline]
    pub(crate) fn lock(&self, stat: fn() -> &'static LockStat) {
        let free = self.word.compare_exchange_weak(0, LOCKED, Ordering::Acquire, Ordering::Relaxed);
        if free.is_err() {
            self.lock_slow(stat());
        }
    }

    #[cold]
    fn lock_slow(&self, stat: &'static LockStat) {
        if self.try_lock() {
            return;
        }
        let mut waiting = Waiting::start(stat);
        let mut spin = Spin::new();
        let mut lost = 0_u32;
        while !self.try_lock() {
            if spin.spin() {
                continue;
            }
            let word = self.word.load(Ordering::Relaxed);
            if word & LOCKED == 0 || !self.mark_parked(word) {
                continue;
            }
            waiting.park();
            let still_held = || self.word.load(Ordering::Relaxed) == LOCKED | PARKED;
            match park::park(self.key(), park::token(0, lost), still_held) {
                Some(park::HANDOFF) => return,
                Some(_) => lost += 1,
                None => {}
            }
            spin = Spin::new();
        }
    }

    /// Announces a sleeper on a held lock. `false` if the word changed.
    fn mark_parked(&self, word: u32) -> bool {
        word & PARKED != 0
            || self
                .word
                .compare_exchange_weak(word, word | PARKED, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    /// Gives the lock back. The word is not touched after another thread can have it.
    #[inline]
    pub(crate) fn unlock(&self) {
        let alone = self.word.compare_exchange(LOCKED, 0, Ordering::Release, Ordering::Relaxed);
        if alone.is_err() {
            self.unlock_slow();
        }
    }

    #[cold]
    fn unlock_slow(&self) {
        park::unpark_one(self.key(), |woken| {
            // Under the queue's lock, and the mutex is still ours: nobody else changes the word,
            // for PARKED is already set. Whoever is on the way to sleep validates after this.
            let parked = if woken.more { PARKED } else { 0 };
            if woken.threads != 0 && woken.impatient {
                // The sleeper acquires through the queue's lock, which we hold.
                self.word.store(LOCKED | parked, Ordering::Relaxed);
                return park::HANDOFF;
            }
            self.word.store(parked, Ordering::Release);
            park::COMPETE
        });
    }

    fn key(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}
