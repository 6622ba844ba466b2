//! Panics of code that the crate runs for others: deferred calls, destructors, work.
//!
//! They come up in an arbitrary call or on a thread of the crate, which they don't concern. So each
//! ends what has panicked, and nothing else. The panic hook reports it.

use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Calls `f`. Returns false if it has panicked. In a model a panic is a failure of the model, and
/// passes.
#[inline]
pub(crate) fn survives(f: impl FnOnce()) -> bool {
    if cfg!(any(loom, shuttle)) {
        f();
        return true;
    }
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(()) => true,
        Err(payload) => {
            // Its destructor may panic.
            mem::forget(payload);
            false
        }
    }
}

/// Calls `f` with each item, also with those behind one for which it panics.
#[inline]
pub(crate) fn each_survives<T>(items: impl IntoIterator<Item = T>, mut f: impl FnMut(T)) {
    let mut items = items.into_iter();
    while !survives(|| items.by_ref().for_each(&mut f)) {}
}
