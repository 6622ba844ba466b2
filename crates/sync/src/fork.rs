//! Children of a fork, which have one thread and nobody else's.
//!
//! # Purpose
//!
//! A process that forks without becoming another program leaves the child one thread, and all
//! memory as it was at that moment: locks that other threads held stay taken, queues keep sleepers
//! that are not there, and a thread that was pinned holds all grace periods back. So nothing that
//! needs a lock ends in the child, and what a device is written with is the parent's. A child can
//! tell that it is one ([`is_child`]): calls fail there, and what would be dropped is leaked
//! ([`Owned`]).
//!
//! # Invariants
//!
//! * A process in which nobody has called [`watch`] forks as it likes: its child begins anew.
//! * In a child of one in which somebody has, [`is_child`] is true for good, also in its own
//!   children.
//! * Deferred work does not run in a child ([`crate::rcu`]): it may take locks, and its memory may
//!   be in use by threads that are not there. So pinning never waits there either.
//! * Who would wait for another thread in a child all the same, because a call has no way to fail,
//!   panics with a text that says so. It would wait for ever.
//!
//! The handler that the C library runs in the child stores to one word, which nobody writes
//! otherwise: asking is a load of a line that every CPU keeps.

use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::sync::Once;
// Those of the process, in models too: nothing forks in these.
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether this is a child.
static IS_CHILD: AtomicBool = AtomicBool::new(false);

/// Sees to it that children of this process know that they are some. From the first call on; others
/// do nothing. Never blocks for long.
pub fn watch() {
    static WATCHED: Once = Once::new();
    // In a child the cell may be as another thread left it.
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

/// Whether this process is the child of one that used the library, and is no other program since.
#[inline]
#[must_use]
pub fn is_child() -> bool {
    // Relaxed: it is stored when the child has one thread.
    IS_CHILD.load(Ordering::Relaxed)
}

/// Says that the caller would wait for ever, for a thread that only the parent has.
///
/// # Panics
/// In a child.
#[cfg(not(any(loom, shuttle)))]
#[inline]
pub(crate) fn assert_no_child() {
    assert!(
        !is_child(),
        "vfscale was called in a child of fork, whose other threads are not there: it would wait for ever"
    );
}

/// A value that is leaked instead of dropped in a child: its end would take locks, or write what is
/// the parent's.
///
/// As large as the value; reading it costs nothing more. `Send` and `Sync` as the value.
pub struct Owned<T>(ManuallyDrop<T>);

impl<T> Owned<T> {
    /// Owns `value`.
    #[inline]
    pub const fn new(value: T) -> Owned<T> {
        Owned(ManuallyDrop::new(value))
    }

    /// The value, to be dropped as any other.
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
            // SAFETY: this is its end, and nobody uses it afterwards.
            unsafe { ManuallyDrop::drop(&mut self.0) };
        }
    }
}
