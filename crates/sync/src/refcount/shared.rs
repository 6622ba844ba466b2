//! A counted owner without weak references, a slot that holds one, and lists of what is owned.
//!
//! # Purpose
//!
//! `Arc` pays for its weak references when the last owner goes: two atomic operations, where an
//! open file that was never shared needs none. [`Shared`] has one count, and an owner that finds
//! itself alone frees without writing it.
//!
//! Where the memory comes from, and what else happens to a value when it begins and ends, is a
//! parameter: [`Boxed`] values are boxes, [`Listed`] values are on a [`SharedList`].
//!
//! # Invariants
//!
//! * The count is the number of handles. Only a handle makes another, so a handle that reads one is
//!   the only one, and stays it.
//! * Giving a handle back releases, and the last one acquires: all uses happen before the end.

mod bound;
mod list;

pub use bound::Bound;
pub use list::{Listable, Listed, SharedList};

use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;

use crate::atomic::{AtomicPtr, AtomicUsize, Ordering};
use crate::fork;
use crate::lock::wait::Backoff;

/// More handles than this are a leak in a loop: going on would free the value under its users.
const HANDLES_MAX: usize = isize::MAX as usize;

/// Where values are kept, and what is kept beside them.
pub trait Keep<T>: Sized + 'static {
    /// What is kept beside a value.
    #[doc(hidden)]
    type Beside;

    /// Ends a value and frees its memory.
    ///
    /// # Safety
    /// The caller was the last owner.
    #[doc(hidden)]
    unsafe fn free(counted: NonNull<Counted<T, Self>>);
}

/// A value, its count, and what is kept beside it, from the beginning of a cache line on.
#[doc(hidden)]
#[repr(C, align(64))]
pub struct Counted<T, K: Keep<T>> {
    count: AtomicUsize,
    beside: K::Beside,
    value: T,
}

/// Values in boxes of their own.
pub enum Boxed {}

impl<T> Keep<T> for Boxed {
    type Beside = ();

    #[cold]
    unsafe fn free(counted: NonNull<Counted<T, Boxed>>) {
        // SAFETY: it came from a box, and the caller was the last owner.
        drop(unsafe { Box::from_raw(counted.as_ptr()) });
    }
}

/// One of the owners of a value, which is dropped with the last of them. One pointer in size.
///
/// `Send` and `Sync` if `T` is both. Cloning and dropping never block (but for what the value's own
/// destructor does, and the short lock of its list if it is on one).
pub struct Shared<T, K: Keep<T> = Boxed> {
    counted: NonNull<Counted<T, K>>,
    owns: PhantomData<Counted<T, K>>,
}

// SAFETY: handles give out `&T` on any thread, and the last may drop the value on any. What is kept
// beside it is used under a lock, or by the last owner.
unsafe impl<T: Send + Sync, K: Keep<T>> Send for Shared<T, K> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync, K: Keep<T>> Sync for Shared<T, K> {}

impl<T> Shared<T> {
    /// Owns `value`.
    #[inline]
    #[must_use]
    pub fn new(value: T) -> Self {
        let counted = Box::new(Counted { count: AtomicUsize::new(1), beside: (), value });
        // SAFETY: the one count is this handle's.
        unsafe { Self::from_counted(NonNull::from(Box::leak(counted))) }
    }
}

impl<T, K: Keep<T>> Shared<T, K> {
    /// # Safety
    /// The count holds one for this handle.
    #[inline]
    unsafe fn from_counted(counted: NonNull<Counted<T, K>>) -> Self {
        Self { counted, owns: PhantomData }
    }

    /// The address of the value, the same for all its owners.
    #[inline]
    #[must_use]
    pub fn as_ptr(&self) -> *const T {
        &raw const **self
    }

    #[inline]
    fn counted(&self) -> &Counted<T, K> {
        // SAFETY: a handle keeps it.
        unsafe { self.counted.as_ref() }
    }
}

impl<T, K: Keep<T>> Deref for Shared<T, K> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.counted().value
    }
}

impl<T, K: Keep<T>> Clone for Shared<T, K> {
    #[inline]
    fn clone(&self) -> Self {
        // Relaxed: we have a handle, so it can't go away meanwhile.
        if self.counted().count.fetch_add(1, Ordering::Relaxed) > HANDLES_MAX {
            std::process::abort();
        }
        Self { counted: self.counted, owns: PhantomData }
    }
}

impl<T, K: Keep<T>> Drop for Shared<T, K> {
    #[inline]
    fn drop(&mut self) {
        let count = &self.counted().count;
        // Acquire: what the others did before they gave their handles back happens before the end.
        let is_last =
            count.load(Ordering::Acquire) == 1 || count.fetch_sub(1, Ordering::AcqRel) == 1;
        // The child of a fork leaks it.
        if is_last && !fork::is_child() {
            // SAFETY: this was the last owner.
            unsafe { K::free(self.counted) };
        }
    }
}

impl<T, K: Keep<T>> Shared<T, K> {
    /// Gives the handle up without counting it down.
    fn into_raw(self) -> *mut Counted<T, K> {
        let raw = self.counted.as_ptr();
        std::mem::forget(self);
        raw
    }
}

/// Somebody makes another handle from the one in the slot.
const LOCKED: usize = 1;
/// The mark.
const MARKED: usize = 2;
const FLAGS: usize = LOCKED | MARKED;

/// A place for one [`Shared`], with a mark beside it: an entry of a descriptor table. One word.
///
/// Making another handle locks the word for the few nanoseconds that it takes; who meets that
/// spins, then yields, then sleeps up to a millisecond at a time. Everything else is one exchange
/// or less. `Send` and `Sync` if `T` is both.
pub struct SharedSlot<T, K: Keep<T> = Boxed> {
    /// Null without flags, or a handle's pointer with flags.
    word: AtomicPtr<Counted<T, K>>,
    owns: PhantomData<Shared<T, K>>,
}

// SAFETY: it holds a `Shared<T>`, which any thread may clone, take and drop.
unsafe impl<T: Send + Sync, K: Keep<T>> Send for SharedSlot<T, K> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync, K: Keep<T>> Sync for SharedSlot<T, K> {}

impl<T, K: Keep<T>> SharedSlot<T, K> {
    /// An empty slot.
    #[must_use]
    pub fn new() -> Self {
        Self { word: AtomicPtr::new(std::ptr::null_mut()), owns: PhantomData }
    }

    fn pack(value: Shared<T, K>, mark: bool) -> *mut Counted<T, K> {
        value.into_raw().map_addr(|addr| addr | if mark { MARKED } else { 0 })
    }

    /// # Safety
    /// The word is not null and has been taken out of the slot, or the result is forgotten.
    unsafe fn unpack(word: *mut Counted<T, K>) -> Shared<T, K> {
        let raw = word.map_addr(|addr| addr & !FLAGS);
        // SAFETY: not null, says the caller; `pack` made it of a handle.
        Shared { counted: unsafe { NonNull::new_unchecked(raw) }, owns: PhantomData }
    }

    /// Changes the word of a full slot from what it is while unlocked to `to(word)`. `None` if the
    /// slot is empty, else what the word was. What is stored is released, what is read acquired.
    #[inline]
    fn update(
        &self,
        to: impl Fn(*mut Counted<T, K>) -> *mut Counted<T, K>,
    ) -> Option<*mut Counted<T, K>> {
        let mut backoff = Backoff::new();
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            if word.is_null() {
                return None;
            }
            if word.addr() & LOCKED != 0 {
                backoff.wait();
                word = self.word.load(Ordering::Relaxed);
                continue;
            }
            let new = to(word);
            match self.word.compare_exchange_weak(word, new, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Some(word),
                Err(now) => word = now,
            }
        }
    }

    /// Another handle on what is in the slot.
    #[inline]
    #[must_use]
    pub fn get(&self) -> Option<Shared<T, K>> {
        let word = self.update(|word| word.map_addr(|addr| addr | LOCKED))?;
        // SAFETY: the slot's handle stays in it while the word is locked, and is not dropped here.
        let inside = std::mem::ManuallyDrop::new(unsafe { Self::unpack(word) });
        let handle = Shared::clone(&inside);
        self.word.store(word, Ordering::Release);
        Some(handle)
    }

    /// Fills a slot that is empty, and that the caller has for itself.
    ///
    /// # Panics
    /// In debug builds, if it is not empty.
    #[inline]
    pub fn fill(&self, value: Shared<T, K>, mark: bool) {
        debug_assert!(self.word.load(Ordering::Relaxed).is_null(), "the slot is in use");
        self.word.store(Self::pack(value, mark), Ordering::Release);
    }

    /// Replaces what is in the slot, and returns it.
    ///
    /// # Errors
    /// `value` itself, if the slot is empty.
    pub fn replace(&self, value: Shared<T, K>, mark: bool) -> Result<Shared<T, K>, Shared<T, K>> {
        let new = Self::pack(value, mark);
        // SAFETY: the old word was taken out just now; or the new one has never been put in.
        unsafe {
            self.update(|_| new).map(|old| Self::unpack(old)).ok_or_else(|| Self::unpack(new))
        }
    }

    /// Empties the slot.
    #[inline]
    #[must_use]
    pub fn take(&self) -> Option<Shared<T, K>> {
        let word = self.update(|_| std::ptr::null_mut())?;
        // SAFETY: taken out just now.
        Some(unsafe { Self::unpack(word) })
    }

    /// The mark; `None` if the slot is empty.
    #[must_use]
    pub fn mark(&self) -> Option<bool> {
        let word = self.word.load(Ordering::Relaxed);
        (!word.is_null()).then_some(word.addr() & MARKED != 0)
    }

    /// Changes the mark. `false`, and nothing done, if the slot is empty.
    pub fn set_mark(&self, mark: bool) -> bool {
        let flag = if mark { MARKED } else { 0 };
        self.update(|word| word.map_addr(|addr| addr & !MARKED | flag)).is_some()
    }
}

impl<T, K: Keep<T>> Default for SharedSlot<T, K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T, K: Keep<T>> Drop for SharedSlot<T, K> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
