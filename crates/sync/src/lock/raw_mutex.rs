//! The word of a mutex, without data, class or order checking.

use crate::atomic::{AtomicU32, Ordering, const_unless_model};
use crate::lock::contend::{PARKED, contend};
use crate::lock::park;
use crate::lock::stat::{self, LockStat, Waiting};

const LOCKED: u32 = 1;
/// Flag: lockstat records the release. Set only while locked.
const TRACED: u32 = 4;

/// The word of a mutex, in four bytes: free, locked, or locked with sleepers. [`stat`] defines the
/// word that a fast path expects of a free lock.
pub(crate) struct RawMutex {
    word: AtomicU32,
}

impl RawMutex {
    const_unless_model! {
        /// Creates a free lock.
        pub(crate) fn new() -> Self {
            Self { word: AtomicU32::new(0) }
        }
    }

    /// Takes the lock if it is free.
    #[inline]
    pub(crate) fn try_lock(&self, stat: fn() -> &'static LockStat) -> bool {
        self.take_free() || self.try_lock_slow(stat)
    }

    #[inline]
    fn take_free(&self) -> bool {
        let free = stat::free_word();
        self.word.compare_exchange(free, LOCKED, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[cold]
    fn try_lock_slow(&self, stat: fn() -> &'static LockStat) -> bool {
        let claimed = self.claim();
        if claimed {
            self.record(stat());
        }
        claimed
    }

    /// Returns whether a thread holds the lock.
    #[inline]
    pub(crate) fn is_locked(&self) -> bool {
        self.word.load(Ordering::Relaxed) & LOCKED != 0
    }

    /// Sets `LOCKED` if it is not set; returns whether it did.
    fn claim(&self) -> bool {
        // Earlier sleepers may remain (PARKED without LOCKED): the flag is preserved.
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

    /// Records in lockstat that this thread took the lock.
    fn record(&self, stat: &'static LockStat) {
        if stat.acquired(self.key()) {
            self.word.fetch_or(TRACED, Ordering::Relaxed);
        }
    }

    /// Takes the lock, waiting for as long as it is held.
    #[inline]
    pub(crate) fn lock(&self, stat: fn() -> &'static LockStat) {
        if !self.take_free() {
            self.lock_slow(stat());
        }
    }

    #[cold]
    fn lock_slow(&self, stat: &'static LockStat) {
        if !self.claim() {
            let mut waiting = Waiting::start(stat, self.key());
            let queue = (self.key(), 0);
            contend(&self.word, LOCKED, queue, &mut waiting, || self.claim());
        }
        self.record(stat);
    }

    /// Releases the lock. The word is not accessed after another thread can hold it.
    #[inline]
    pub(crate) fn unlock(&self) {
        let alone = self.word.compare_exchange(LOCKED, 0, Ordering::Release, Ordering::Relaxed);
        if alone.is_err() {
            self.unlock_slow();
        }
    }

    #[cold]
    fn unlock_slow(&self) {
        if self.word.load(Ordering::Relaxed) & TRACED != 0 {
            stat::released(self.key());
            let traced = LOCKED | TRACED;
            let alone = self.word.compare_exchange(traced, 0, Ordering::Release, Ordering::Relaxed);
            if alone.is_ok() {
                return;
            }
        }
        park::unpark_one(self.key(), |woken| {
            // Under the queue's lock, and the mutex is still ours: no other thread changes the
            // word, for PARKED is already set. A thread about to sleep validates after this.
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
