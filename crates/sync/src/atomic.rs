//! Atomics, fences and threads: the standard library's, or a model checker's.
//!
//! # Purpose
//!
//! This module decides which implementation the whole workspace runs on: `std` in a normal build,
//! loom under `cfg(loom)`, shuttle under `cfg(shuttle)`. Code that is to be model-checked imports
//! its atomics, `spin_loop` and `thread` from here and nowhere else.
//!
//! # Invariants
//!
//! * In a model constructors are not `const`, and atomics are larger than a machine word. Code that
//!   asserts a layout or needs a constant does so only outside of models.
//! * Under loom a load is made visible to the exploration; `explored` explains why.
//! * Statistics that must not enlarge a model (lock counters) use `std::sync::atomic` directly.

#[cfg(loom)]
mod explored;
#[cfg(all(shuttle, not(loom)))]
mod freed;
mod listed;

pub use listed::ListedFlag;

#[cfg(loom)]
pub use explored::{
    AtomicBool, AtomicI64, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize,
};
#[cfg(loom)]
pub use loom::{
    hint::spin_loop,
    sync::atomic::{Ordering, fence},
    thread,
    thread::yield_now,
};

#[cfg(all(shuttle, not(loom)))]
pub use freed::{
    AtomicBool, AtomicI64, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize,
};
#[cfg(all(shuttle, not(loom)))]
pub use shuttle::{
    hint::spin_loop,
    sync::atomic::{Ordering, fence},
    thread,
    thread::yield_now,
};

#[cfg(not(any(loom, shuttle)))]
pub use std::{
    hint::spin_loop,
    sync::atomic::{
        AtomicBool, AtomicI64, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize,
        Ordering, fence,
    },
    thread,
    thread::yield_now,
};

/// Issues a full fence just after a read-modify-write of this thread on an atomic variable: loads
/// that follow are not performed before that operation is visible to other CPUs
/// (`smp_mb__after_atomic` in Linux).
///
/// On x86 such an operation is a full fence itself, so only the compiler must be prevented from
/// reordering.
#[inline]
pub fn fence_after_rmw() {
    if cfg!(all(target_arch = "x86_64", not(any(loom, shuttle, miri)))) {
        std::sync::atomic::compiler_fence(Ordering::SeqCst);
    } else {
        fence(Ordering::SeqCst);
    }
}

/// Declares a constructor that is `const` wherever the atomics allow it, which is everywhere but
/// in a model.
macro_rules! const_unless_model {
    ($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $ty:ty),* $(,)?) -> $ret:ty $body:block) => {
        #[cfg(not(any(loom, shuttle)))]
        $(#[$meta])*
        $vis const fn $name($($arg: $ty),*) -> $ret $body

        #[cfg(any(loom, shuttle))]
        $(#[$meta])*
        $vis fn $name($($arg: $ty),*) -> $ret $body
    };
}
pub(crate) use const_unless_model;
