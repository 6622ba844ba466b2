//! A reader-writer lock with a lock class.

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use crate::atomic::const_unless_model;
use crate::lock::LockClass;
use crate::lock::held;
use crate::lock::raw_rwlock::RawRwLock;

/// A value that many threads may read, or one may change. Four bytes in addition to the value.
///
/// A writer that waits stops new readers, so a thread must not take the read side twice. `Send`
/// if `T` is, `Sync` if `T` is `Send` and `Sync`. Not poisoned by panics.
pub struct RwLock<T: ?Sized, C: LockClass> {
    class: PhantomData<fn() -> C>,
    raw: RawRwLock,
    value: UnsafeCell<T>,
}

// SAFETY: the lock owns the value.
unsafe impl<T: ?Sized + Send, C: LockClass> Send for RwLock<T, C> {}
// SAFETY: readers share `&T`, which needs `Sync`; a writer has exclusive access to the value, on
// any thread, which needs `Send`.
unsafe impl<T: ?Sized + Send + Sync, C: LockClass> Sync for RwLock<T, C> {}

impl<T, C: LockClass> RwLock<T, C> {
    const_unless_model! {
        /// Creates an unlocked lock.
        pub fn new(value: T) -> Self {
            Self { class: PhantomData, raw: RawRwLock::new(), value: UnsafeCell::new(value) }
        }
    }

    /// Returns the value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized, C: LockClass> RwLock<T, C> {
    /// Enters as a reader. Blocks while a writer is inside or waits for readers to leave: spins
    /// for about a microsecond, then sleeps.
    ///
    /// # Panics
    ///
    /// In debug builds, if the thread holds a lock of the same or a higher rank.
    #[inline]
    pub fn read(&self) -> RwLockReadGuard<'_, T, C> {
        held::assert_no_section::<C>();
        held::acquire::<C>(false);
        self.raw.read(C::stat);
        RwLockReadGuard { lock: self, not_send: PhantomData }
    }

    /// Enters as a reader if that needs no waiting. Never blocks.
    #[inline]
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T, C>> {
        if !self.raw.try_read(C::stat) {
            return None;
        }
        held::note::<C>();
        Some(RwLockReadGuard { lock: self, not_send: PhantomData })
    }

    /// Enters as the writer. Blocks while a reader or writer is inside; no new reader enters during
    /// that time.
    ///
    /// # Panics
    ///
    /// In debug builds, if the thread holds a lock of the same or a higher rank.
    #[inline]
    pub fn write(&self) -> RwLockWriteGuard<'_, T, C> {
        held::assert_no_section::<C>();
        held::acquire::<C>(false);
        self.raw.write(C::stat);
        RwLockWriteGuard { lock: self, not_send: PhantomData }
    }

    /// Enters like [`write`](Self::write), but may be called while holding other locks of the same
    /// rank. The caller takes locks of this class in an order of its own.
    #[inline]
    pub fn write_nested(&self) -> RwLockWriteGuard<'_, T, C> {
        held::assert_no_section::<C>();
        held::acquire::<C>(true);
        self.raw.write(C::stat);
        RwLockWriteGuard { lock: self, not_send: PhantomData }
    }

    /// Enters as the writer if no thread is inside. Never blocks.
    #[inline]
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T, C>> {
        if !self.raw.try_write(C::stat) {
            return None;
        }
        held::note::<C>();
        Some(RwLockWriteGuard { lock: self, not_send: PhantomData })
    }

    /// Returns whether a thread is inside, or a writer waits. Everything done by threads that are
    /// thus seen to have left is ordered before what the caller does next.
    #[inline]
    pub fn is_taken(&self) -> bool {
        self.raw.is_taken()
    }

    /// Returns the value, without locking: `&mut self` proves that no other thread uses it.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

impl<T: Default, C: LockClass> Default for RwLock<T, C> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: ?Sized + fmt::Debug, C: LockClass> fmt::Debug for RwLock<T, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct(C::NAME);
        match self.try_read() {
            Some(guard) => out.field("value", &&*guard).finish(),
            None => out.field("value", &"<locked>").finish(),
        }
    }
}

/// The read side, held by this thread; dropping it leaves. Not `Send`.
#[must_use = "the lock is released when the guard is dropped"]
pub struct RwLockReadGuard<'a, T: ?Sized, C: LockClass> {
    lock: &'a RwLock<T, C>,
    not_send: PhantomData<*const ()>,
}

// SAFETY: a shared guard gives out only `&T`.
unsafe impl<T: ?Sized + Sync, C: LockClass> Sync for RwLockReadGuard<'_, T, C> {}

impl<T: ?Sized, C: LockClass> Deref for RwLockReadGuard<'_, T, C> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard excludes writers.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T: ?Sized, C: LockClass> Drop for RwLockReadGuard<'_, T, C> {
    #[inline]
    fn drop(&mut self) {
        self.lock.raw.unlock_read();
        held::release::<C>();
    }
}

/// The write side, held by this thread; dropping it leaves. Not `Send`.
#[must_use = "the lock is released when the guard is dropped"]
pub struct RwLockWriteGuard<'a, T: ?Sized, C: LockClass> {
    lock: &'a RwLock<T, C>,
    not_send: PhantomData<*const ()>,
}

// SAFETY: a shared guard gives out only `&T`.
unsafe impl<T: ?Sized + Sync, C: LockClass> Sync for RwLockWriteGuard<'_, T, C> {}

impl<T: ?Sized, C: LockClass> Deref for RwLockWriteGuard<'_, T, C> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard excludes all other threads.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T: ?Sized, C: LockClass> DerefMut for RwLockWriteGuard<'_, T, C> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard excludes all other threads, and is borrowed exclusively.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T: ?Sized, C: LockClass> Drop for RwLockWriteGuard<'_, T, C> {
    #[inline]
    fn drop(&mut self) {
        self.lock.raw.unlock_write();
        held::release::<C>();
    }
}
