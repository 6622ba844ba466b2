//! Mutual exclusion for what hardly anybody else wants: the slot of a CPU.
//!
//! A [`Mutex`](super::Mutex) has to look for sleepers when it is given back, which takes a second
//! atomic operation. Here nobody sleeps on the lock: giving it back is a store, and who
//! finds it taken spins, yields, and then sleeps for ever longer, up to a millisecond. That is right
//! only where a meeting needs two threads of one CPU slot (one was moved, or lost its CPU inside) and
//! sections are short.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use crate::atomic::{AtomicBool, Ordering};
use crate::lock::LockClass;
use crate::lock::held;
use crate::lock::stat::Waiting;
use crate::wait::Backoff;

/// A value that one thread at a time may use, in the slot of a CPU.
///
/// `Send` and `Sync` if `T` is `Send`. Not poisoned by panics.
pub(crate) struct SlotLock<T, C: LockClass> {
    class: PhantomData<fn() -> C>,
    locked: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the lock owns the value.
unsafe impl<T: Send, C: LockClass> Send for SlotLock<T, C> {}
// SAFETY: only the holder of the lock gets at the value, one thread at a time.
unsafe impl<T: Send, C: LockClass> Sync for SlotLock<T, C> {}

impl<T, C: LockClass> SlotLock<T, C> {
    /// Unlocked.
    pub(crate) fn new(value: T) -> Self {
        Self { class: PhantomData, locked: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Takes the lock. While another thread holds it: spins, then yields, then sleeps up to a
    /// millisecond at a time.
    ///
    /// # Panics
    ///
    /// In debug builds, if the thread holds a lock of the same or a higher rank.
    #[inline]
    pub(crate) fn lock(&self) -> SlotGuard<'_, T, C> {
        held::acquire(C::RANK, C::NAME, false);
        if self.locked.swap(true, Ordering::Acquire) {
            self.lock_slow();
        }
        SlotGuard { lock: self, not_send: PhantomData }
    }

    #[cold]
    fn lock_slow(&self) {
        let _waiting = Waiting::start(C::stat());
        let mut backoff = Backoff::new();
        loop {
            backoff.wait();
            if !self.locked.load(Ordering::Relaxed) && !self.locked.swap(true, Ordering::Acquire) {
                return;
            }
        }
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
        self.lock.locked.store(false, Ordering::Release);
        held::release(C::RANK, C::NAME);
    }
}
