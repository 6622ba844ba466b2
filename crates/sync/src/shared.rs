//! A counted owner without weak references.
//!
//! # Purpose
//!
//! `Arc` pays for its weak references when the last owner goes: two atomic operations, where an
//! open file that was never shared needs none. [`Shared`] has one count, and an owner that finds
//! itself alone frees without writing it.
//!
//! # Invariants
//!
//! * The count is the number of handles. Only a handle makes another, so a handle that reads one is
//!   the only one, and stays it.
//! * Giving a handle back releases, and the last one acquires: all uses happen before the end.

use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;

use crate::atomic::{AtomicUsize, Ordering};

/// More handles than this are a leak in a loop: going on would free the value under its users.
const HANDLES_MAX: usize = isize::MAX as usize;

struct Counted<T> {
    count: AtomicUsize,
    value: T,
}

/// One of the owners of a value, which is dropped with the last of them. One pointer in size.
///
/// `Send` and `Sync` if `T` is both. Cloning and dropping never block (but for what the value's own
/// destructor does).
pub struct Shared<T> {
    counted: NonNull<Counted<T>>,
    owns: PhantomData<Counted<T>>,
}

// SAFETY: handles give out `&T` on any thread, and the last may drop the value on any.
unsafe impl<T: Send + Sync> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Shared<T> {}

impl<T> Shared<T> {
    /// Owns `value`.
    #[inline]
    #[must_use]
    pub fn new(value: T) -> Self {
        let counted = Box::new(Counted { count: AtomicUsize::new(1), value });
        Self { counted: NonNull::from(Box::leak(counted)), owns: PhantomData }
    }

    /// The address of the value, the same for all its owners.
    #[inline]
    #[must_use]
    pub fn as_ptr(&self) -> *const T {
        &raw const **self
    }

    #[inline]
    fn counted(&self) -> &Counted<T> {
        // SAFETY: a handle keeps it.
        unsafe { self.counted.as_ref() }
    }

    #[cold]
    fn free(&self) {
        // SAFETY: it came from a box, and the caller is the last owner.
        drop(unsafe { Box::from_raw(self.counted.as_ptr()) });
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.counted().value
    }
}

impl<T> Clone for Shared<T> {
    #[inline]
    fn clone(&self) -> Self {
        // Relaxed: we have a handle, so it can't go away meanwhile.
        if self.counted().count.fetch_add(1, Ordering::Relaxed) > HANDLES_MAX {
            std::process::abort();
        }
        Self { counted: self.counted, owns: PhantomData }
    }
}

impl<T> Drop for Shared<T> {
    #[inline]
    fn drop(&mut self) {
        let count = &self.counted().count;
        // Acquire: what the others did before they gave their handles back happens before the end.
        if count.load(Ordering::Acquire) == 1 || count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.free();
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
