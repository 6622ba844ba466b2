//! A mutex that is almost never contended: the mutex of a CPU's slot.
//!
//! A [`Mutex`](super::Mutex) has to check for sleepers when it is released, which takes a second
//! atomic operation. No thread sleeps on this lock: releasing it is a store, and a thread that
//! finds it taken spins, yields, and then sleeps for increasing times, up to a millisecond. That is
//! right only if contention needs two threads of one CPU slot (one was moved, or lost its CPU
//! inside) and sections are short.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use crate::atomic::{AtomicU32, Ordering};
use crate::lock::LockClass;
use crate::lock::held;
use crate::lock::stat::{self, Waiting};
use crate::lock::wait::Backoff;

const LOCKED: u32 = 1;
/// Flag: lockstat records the release. Set only while locked.
const RECORDED: u32 = 2;

/// A value that one thread at a time may use, in the slot of a CPU. [`stat`] defines the word that
/// a fast path expects of a free lock.
///
/// `Send` and `Sync` if `T` is `Send`. Not poisoned by panics.
pub(crate) struct SlotLock<T, C: LockClass> {
    class: PhantomData<fn() -> C>,
    word: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the lock owns the value.
unsafe impl<T: Send, C: LockClass> Send for SlotLock<T, C> {}
// SAFETY: only the holder of the lock accesses the value, one thread at a time.
unsafe impl<T: Send, C: LockClass> Sync for SlotLock<T, C> {}

impl<T, C: LockClass> SlotLock<T, C> {
    /// Creates an unlocked lock.
    pub(crate) fn new(value: T) -> Self {
        Self { class: PhantomData, word: AtomicU32::new(0), value: UnsafeCell::new(value) }
    }

    /// Takes the lock. While another thread holds it: spins, then yields, then sleeps up to a
    /// millisecond at a time.
    ///
    /// # Panics
    ///
    /// In debug builds, if the thread holds a lock of the same or a higher rank.
    #[inline]
    pub(crate) fn lock(&self) -> SlotGuard<'_, T, C> {
        held::acquire::<C>(false);
        if !self.take(stat::free_word()) {
            self.lock_slow();
        }
        SlotGuard { lock: self, not_send: PhantomData }
    }

    #[inline]
    fn take(&self, free: u32) -> bool {
        self.word.compare_exchange(free, LOCKED, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[cold]
    fn lock_slow(&self) {
        let key = std::ptr::from_ref(self).addr();
        if !self.take(0) {
            let _waiting = Waiting::start(C::stat(), key);
            let mut backoff = Backoff::new();
            while self.word.load(Ordering::Relaxed) != 0 || !self.take(0) {
                backoff.wait();
            }
        }
        if C::stat().acquired(key) {
            self.word.store(LOCKED | RECORDED, Ordering::Relaxed);
        }
    }

    #[cold]
    fn record_release(&self) {
        stat::released(std::ptr::from_ref(self).addr());
    }
}

/// The lock, held by this thread; dropping it unlocks. Not `Send`.
#[must_use = "the lock is released when the guard is dropped"]
pub(crate) struct SlotGuard<'a, T, C: LockClass> {
    lock: &'a SlotLock<T, C>,
    not_send: PhantomData<*const ()>,
}

impl<T, C: LockClass> Deref for SlotGuard<'_, T, C> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard holds the lock.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T, C: LockClass> DerefMut for SlotGuard<'_, T, C> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard holds the lock, and is borrowed exclusively.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T, C: LockClass> Drop for SlotGuard<'_, T, C> {
    #[inline]
    fn drop(&mut self) {
        if self.lock.word.load(Ordering::Relaxed) != LOCKED {
            self.lock.record_release();
        }
        self.lock.word.store(0, Ordering::Release);
        held::release::<C>();
    }
}
