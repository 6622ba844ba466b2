//! A mutex with a lock class.

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use crate::atomic::const_unless_model;
use crate::lock::LockClass;
use crate::lock::held;
use crate::lock::raw_mutex::RawMutex;

/// A value that one thread at a time may use. Four bytes in addition to the value.
///
/// `Send` and `Sync` if `T` is `Send`. Not poisoned by panics.
pub struct Mutex<T: ?Sized, C: LockClass> {
    class: PhantomData<fn() -> C>,
    raw: RawMutex,
    value: UnsafeCell<T>,
}

// SAFETY: the mutex owns the value.
unsafe impl<T: ?Sized + Send, C: LockClass> Send for Mutex<T, C> {}
// SAFETY: only the holder of the lock accesses the value, one thread at a time.
unsafe impl<T: ?Sized + Send, C: LockClass> Sync for Mutex<T, C> {}

impl<T, C: LockClass> Mutex<T, C> {
    const_unless_model! {
        /// Creates an unlocked mutex.
        pub fn new(value: T) -> Self {
            Self { class: PhantomData, raw: RawMutex::new(), value: UnsafeCell::new(value) }
        }
    }

    /// Returns the value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized, C: LockClass> Mutex<T, C> {
    /// Takes the lock. Blocks while another thread holds it: spins for about a microsecond, then
    /// sleeps.
    ///
    /// # Panics
    ///
    /// In debug builds, if the thread holds a lock of the same or a higher rank.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T, C> {
        held::assert_no_section::<C>();
        held::acquire::<C>(false);
        self.raw.lock(C::stat);
        MutexGuard { mutex: self, not_send: PhantomData }
    }

    /// Takes the lock like [`lock`](Self::lock), but may be called while holding locks of the same
    /// rank. The caller takes locks of this class in an order of its own (by address, parent before
    /// child).
    #[inline]
    pub fn lock_nested(&self) -> MutexGuard<'_, T, C> {
        held::assert_no_section::<C>();
        held::acquire::<C>(true);
        self.raw.lock(C::stat);
        MutexGuard { mutex: self, not_send: PhantomData }
    }

    /// Takes the lock if it is free. Never blocks.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T, C>> {
        if !self.raw.try_lock(C::stat) {
            return None;
        }
        held::note::<C>();
        Some(MutexGuard { mutex: self, not_send: PhantomData })
    }

    /// Returns whether a thread holds the lock. A hint, which may be wrong at once; synchronizes
    /// nothing.
    #[inline]
    pub fn is_locked(&self) -> bool {
        self.raw.is_locked()
    }

    /// Returns the value, without locking: `&mut self` proves that no other thread uses it.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

impl<T: Default, C: LockClass> Default for Mutex<T, C> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: ?Sized + fmt::Debug, C: LockClass> fmt::Debug for Mutex<T, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct(C::NAME);
        match self.try_lock() {
            Some(guard) => out.field("value", &&*guard).finish(),
            None => out.field("value", &"<locked>").finish(),
        }
    }
}

/// The lock, held by this thread; dropping it unlocks. Not `Send`.
#[must_use = "the lock is released when the guard is dropped"]
pub struct MutexGuard<'a, T: ?Sized, C: LockClass> {
    mutex: &'a Mutex<T, C>,
    not_send: PhantomData<*const ()>,
}

// SAFETY: a shared guard gives out only `&T`.
unsafe impl<T: ?Sized + Sync, C: LockClass> Sync for MutexGuard<'_, T, C> {}

impl<'a, T: ?Sized, C: LockClass> MutexGuard<'a, T, C> {
    /// Returns the mutex that this guard holds.
    pub(crate) fn mutex(&self) -> &'a Mutex<T, C> {
        self.mutex
    }
}

impl<T: ?Sized, C: LockClass> Deref for MutexGuard<'_, T, C> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard holds the lock.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T: ?Sized, C: LockClass> DerefMut for MutexGuard<'_, T, C> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard holds the lock, and is borrowed exclusively.
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<T: ?Sized, C: LockClass> Drop for MutexGuard<'_, T, C> {
    #[inline]
    fn drop(&mut self) {
        self.mutex.raw.unlock();
        held::release::<C>();
    }
}

impl<T: ?Sized + fmt::Debug, C: LockClass> fmt::Debug for MutexGuard<'_, T, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
