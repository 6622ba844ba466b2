//! A reference-counted pointer without weak references, a slot for one, and lists of the values.
//!
//! # Purpose
//!
//! `Arc` pays for its weak references when the last owner is dropped: two atomic operations, where
//! an open file that was never shared needs none. [`Shared`] has one count, and an owner that is
//! the only one frees the value without writing the count.
//!
//! A parameter decides how the memory is allocated, and what else happens when a value is created
//! and freed: [`Boxed`] values are boxes, [`Listed`] values are on a [`SharedList`].
//!
//! # Invariants
//!
//! * The count is the number of handles. Only a handle makes another, so a handle that reads 1 is
//!   the only one, and remains so.
//! * Dropping a handle releases, and the last drop acquires: all uses happen before the value is
//!   dropped.

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

/// Maximum number of handles. More are a leak in a loop: a wrapped count would free a value in use.
const HANDLES_MAX: usize = isize::MAX as usize;

/// The storage of values, and of extra data for each.
pub trait Storage<T>: Sized + 'static {
    /// The extra data of a value.
    #[doc(hidden)]
    type Extra;

    /// Drops a value and frees its memory.
    ///
    /// # Safety
    /// The caller was the last owner.
    #[doc(hidden)]
    unsafe fn free(counted: NonNull<Counted<T, Self>>);
}

/// A value, its count, and its extra data, aligned to a cache line.
#[doc(hidden)]
#[repr(C, align(64))]
pub struct Counted<T, K: Storage<T>> {
    count: AtomicUsize,
    extra: K::Extra,
    value: T,
}

/// Storage of each value in a box of its own.
pub enum Boxed {}

impl<T> Storage<T> for Boxed {
    type Extra = ();

    #[cold]
    unsafe fn free(counted: NonNull<Counted<T, Boxed>>) {
        // SAFETY: the pointer is that of a leaked box, and the caller was the last owner.
        drop(unsafe { Box::from_raw(counted.as_ptr()) });
    }
}

/// One of the owners of a value, which is dropped with the last of them. One pointer in size. Like
/// `Arc`, without weak references.
///
/// `Send` and `Sync` if `T` is both. Cloning and dropping never block (apart from the value's own
/// destructor, and the short lock of its list if it is on one).
pub struct Shared<T, K: Storage<T> = Boxed> {
    counted: NonNull<Counted<T, K>>,
    owns: PhantomData<Counted<T, K>>,
}

// SAFETY: handles give out `&T` on any thread, and the last may drop the value on any. The extra
// data is used under a lock, or by the last owner.
unsafe impl<T: Send + Sync, K: Storage<T>> Send for Shared<T, K> {}
// SAFETY: a shared handle gives out `&T` and can be cloned, which any thread may do if `T` is
// `Send` and `Sync`. The extra data is used under a lock, or by the last owner.
unsafe impl<T: Send + Sync, K: Storage<T>> Sync for Shared<T, K> {}

impl<T> Shared<T> {
    /// Creates the first owner of `value`.
    #[inline]
    pub fn new(value: T) -> Self {
        let counted = Box::new(Counted { count: AtomicUsize::new(1), extra: (), value });
        // SAFETY: the one count is this handle's.
        unsafe { Self::from_counted(NonNull::from(Box::leak(counted))) }
    }
}

impl<T, K: Storage<T>> Shared<T, K> {
    /// Creates a handle.
    ///
    /// # Safety
    /// The count holds one for this handle.
    #[inline]
    unsafe fn from_counted(counted: NonNull<Counted<T, K>>) -> Self {
        Self { counted, owns: PhantomData }
    }

    /// Returns the address of the value, which is equal for all its owners.
    #[inline]
    pub fn as_ptr(&self) -> *const T {
        &raw const **self
    }

    #[inline]
    fn counted(&self) -> &Counted<T, K> {
        // SAFETY: the value lives as long as a handle.
        unsafe { self.counted.as_ref() }
    }
}

impl<T, K: Storage<T>> Deref for Shared<T, K> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.counted().value
    }
}

impl<T, K: Storage<T>> Clone for Shared<T, K> {
    #[inline]
    fn clone(&self) -> Self {
        // Relaxed: the value lives as long as our handle.
        if self.counted().count.fetch_add(1, Ordering::Relaxed) > HANDLES_MAX {
            std::process::abort();
        }
        Self { counted: self.counted, owns: PhantomData }
    }
}

impl<T, K: Storage<T>> Drop for Shared<T, K> {
    #[inline]
    fn drop(&mut self) {
        let count = &self.counted().count;
        // Acquire: everything that other owners did before they dropped their handles happens
        // before the value is dropped.
        let is_last =
            count.load(Ordering::Acquire) == 1 || count.fetch_sub(1, Ordering::AcqRel) == 1;
        // A fork child leaks the value.
        if is_last && !fork::is_child() {
            // SAFETY: this was the last owner.
            unsafe { K::free(self.counted) };
        }
    }
}

impl<T, K: Storage<T>> Shared<T, K> {
    /// Forgets the handle without decrementing the count.
    fn into_raw(self) -> *mut Counted<T, K> {
        let raw = self.counted.as_ptr();
        std::mem::forget(self);
        raw
    }
}

/// Flag: a thread is cloning the handle in the slot.
const LOCKED: usize = 1;
/// Flag: the mark.
const MARKED: usize = 2;
const FLAGS: usize = LOCKED | MARKED;

/// A slot for one [`Shared`], with a mark in the pointer's low bits: an entry of a descriptor
/// table. One word.
///
/// Making another handle locks the word for the few nanoseconds that it takes; a thread that finds
/// it locked spins, then yields, then sleeps up to a millisecond at a time. Everything else is at
/// most one exchange. `Send` and `Sync` if `T` is both.
pub struct SharedSlot<T, K: Storage<T> = Boxed> {
    /// Null without flags, or a handle's pointer with flags.
    word: AtomicPtr<Counted<T, K>>,
    owns: PhantomData<Shared<T, K>>,
}

// SAFETY: the slot holds a `Shared<T>`, which any thread may clone, take and drop.
unsafe impl<T: Send + Sync, K: Storage<T>> Send for SharedSlot<T, K> {}
// SAFETY: the slot holds a `Shared<T>`, which any thread may clone, take and drop.
unsafe impl<T: Send + Sync, K: Storage<T>> Sync for SharedSlot<T, K> {}

impl<T, K: Storage<T>> SharedSlot<T, K> {
    /// Creates an empty slot.
    pub fn new() -> Self {
        Self { word: AtomicPtr::new(std::ptr::null_mut()), owns: PhantomData }
    }

    fn pack(value: Shared<T, K>, mark: bool) -> *mut Counted<T, K> {
        value.into_raw().map_addr(|addr| addr | if mark { MARKED } else { 0 })
    }

    /// Converts the word of a full slot to its handle.
    ///
    /// # Safety
    /// The word is not null and has been taken out of the slot, or the result is forgotten.
    unsafe fn unpack(word: *mut Counted<T, K>) -> Shared<T, K> {
        let raw = word.map_addr(|addr| addr & !FLAGS);
        // SAFETY: the caller promises that it is not null; `pack` made it from a handle.
        Shared { counted: unsafe { NonNull::new_unchecked(raw) }, owns: PhantomData }
    }

    /// Replaces the unlocked word of a full slot with `to(word)`. Returns the former word, or
    /// `None` if the slot is empty. Releases the stored value and acquires the read one.
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

    /// Returns another handle of the value in the slot.
    #[inline]
    pub fn get(&self) -> Option<Shared<T, K>> {
        let word = self.update(|word| word.map_addr(|addr| addr | LOCKED))?;
        // SAFETY: the slot's handle stays in it while the word is locked, and is not dropped here.
        let inside = std::mem::ManuallyDrop::new(unsafe { Self::unpack(word) });
        let handle = Shared::clone(&inside);
        self.word.store(word, Ordering::Release);
        Some(handle)
    }

    /// Fills a slot that is empty, and that no other thread changes.
    ///
    /// # Panics
    /// In debug builds, if the slot is not empty.
    #[inline]
    pub fn fill(&self, value: Shared<T, K>, mark: bool) {
        debug_assert!(self.word.load(Ordering::Relaxed).is_null(), "the slot is in use");
        self.word.store(Self::pack(value, mark), Ordering::Release);
    }

    /// Replaces the handle in the slot, and returns the former one.
    ///
    /// # Errors
    /// Returns `value` itself if the slot is empty.
    pub fn replace(&self, value: Shared<T, K>, mark: bool) -> Result<Shared<T, K>, Shared<T, K>> {
        let new = Self::pack(value, mark);
        // SAFETY: the old word has just been removed from the slot, or the new one was never
        // stored.
        unsafe {
            self.update(|_| new).map(|old| Self::unpack(old)).ok_or_else(|| Self::unpack(new))
        }
    }

    /// Empties the slot.
    #[inline]
    pub fn take(&self) -> Option<Shared<T, K>> {
        let word = self.update(|_| std::ptr::null_mut())?;
        // SAFETY: the word has just been removed from the slot.
        Some(unsafe { Self::unpack(word) })
    }

    /// Returns the mark; `None` if the slot is empty.
    pub fn mark(&self) -> Option<bool> {
        let word = self.word.load(Ordering::Relaxed);
        (!word.is_null()).then_some(word.addr() & MARKED != 0)
    }

    /// Sets the mark. Returns `false`, and does nothing, if the slot is empty.
    pub fn set_mark(&self, mark: bool) -> bool {
        let flag = if mark { MARKED } else { 0 };
        self.update(|word| word.map_addr(|addr| addr & !MARKED | flag)).is_some()
    }
}

impl<T, K: Storage<T>> Default for SharedSlot<T, K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T, K: Storage<T>> Drop for SharedSlot<T, K> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
