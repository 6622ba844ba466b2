//! Detection of fork children, in which only the thread that forked exists.
//!
//! # Purpose
//!
//! The child of a process that forks without executing another program starts with one thread, and
//! all memory as it was at that moment: locks that other threads held stay locked, queues list
//! sleepers that don't exist, and a thread that was pinned delays all grace periods for ever. So no
//! destructor that needs a lock may run in the child, and a device belongs to the parent. A process
//! can check whether it is such a child ([`is_child`]): calls fail there, and values that would be
//! dropped are leaked ([`Owned`]).
//!
//! # Invariants
//!
//! * A process that has neither called [`watch`] nor been in an RCU section, which calls it, forks
//!   freely: its child starts from scratch.
//! * In a child of any other process [`is_child`] is true for good, also in its own children. The
//!   C library runs the handler in `fork`. A child of `_Fork` or of a `clone` by the program itself
//!   is not noticed: it must execute another program.
//! * Deferred work does not run in a child ([`crate::rcu`]): it may take locks, and its memory may
//!   be in use by threads that don't exist there. For the same reason pinning never waits there.
//! * A function that would wait for another thread in a child, and can't return an error, panics
//!   with a text that names the reason. Otherwise it would wait for ever.
//!
//! The handler that the C library runs in the child stores to one word, which is written nowhere
//! else: checking it is a load of a line that every CPU can cache.

use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::sync::Once;
// Not the model's atomics, even in models: no model forks.
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_utils::CachePadded;

/// Whether this process is a child. Every call reads it, so nothing written shares its line.
static IS_CHILD: CachePadded<AtomicBool> = CachePadded::new(AtomicBool::new(false));

/// Registers the handler that marks fork children of this process. Only the first call has an
/// effect. Never blocks for long.
pub fn watch() {
    // Miri has no forks.
    if cfg!(miri) {
        return;
    }
    static WATCHED: Once = Once::new();
    // In a child the `Once` may be in the state that another thread's unfinished call left.
    if is_child() {
        return;
    }
    WATCHED.call_once(|| {
        // SAFETY: the handler only stores to an atomic, which is allowed in a child of many
        // threads.
        let result = unsafe { libc::pthread_atfork(None, None, Some(note_child)) };
        assert!(result == 0, "no memory to note forks");
    });
}

extern "C" fn note_child() {
    IS_CHILD.store(true, Ordering::Relaxed);
}

/// Returns whether this process is the fork child of a process that used the library, and has not
/// executed another program since.
#[inline]
pub fn is_child() -> bool {
    // Relaxed: it is stored while the child has one thread.
    IS_CHILD.load(Ordering::Relaxed)
}

/// Panics in a child, where the caller would wait for ever for a thread that only the parent has.
///
/// # Panics
/// If this process is a fork child.
#[cfg(not(any(loom, shuttle)))]
#[inline]
pub(crate) fn assert_no_child() {
    assert!(
        !is_child(),
        "vfscale was called in a fork child, which lacks the thread that it would wait for"
    );
}

/// A value that is leaked instead of dropped in a fork child, where dropping it would take locks or
/// write to files and devices of the parent.
///
/// As large as the value; reading it adds no cost. `Send` and `Sync` as the value.
pub struct Owned<T>(ManuallyDrop<T>);

impl<T> Owned<T> {
    /// Wraps `value`.
    #[inline]
    pub const fn new(value: T) -> Owned<T> {
        Owned(ManuallyDrop::new(value))
    }

    /// Unwraps the value, which is then dropped like any other.
    #[inline]
    pub fn into_inner(self) -> T {
        let mut whole = ManuallyDrop::new(self);
        // SAFETY: `whole` is neither used again nor dropped.
        unsafe { ManuallyDrop::take(&mut whole.0) }
    }
}

impl<T> Deref for Owned<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for Owned<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T: Clone> Clone for Owned<T> {
    #[inline]
    fn clone(&self) -> Owned<T> {
        Owned::new(T::clone(self))
    }
}

impl<T> Drop for Owned<T> {
    #[inline]
    fn drop(&mut self) {
        if !is_child() {
            // SAFETY: `self` is being dropped, so the value is not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.0) };
        }
    }
}
