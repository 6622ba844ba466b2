//! loom's atomics, with loads that take part in the exploration.
//!
//! loom 0.7 runs another order of two accesses only if it notices that they conflict, and of each
//! atomic it remembers just the last access and the last one that was not a load. When thread A
//! loads, and then thread B loads and stores, B's own load hides A's from its store, and the order
//! in which B runs first is never explored. Every lock loads and then exchanges, so whole families
//! of executions would go unseen (a sequence count without its fences passed).
//!
//! Here each atomic has a companion, and each load first does a relaxed read-modify-write of it.
//! Two of those always conflict, so both orders are run. They are relaxed and on a location of
//! their own, so they order nothing that the load itself does not order.

use std::ops::{Deref, DerefMut};

use loom::sync::atomic::{self as model, Ordering};

macro_rules! explored {
    ($($name:ident $(<$param:ident>)? = $value:ty;)+) => {
        $(
            /// loom's atomic of this name, whose loads take part in the exploration.
            pub struct $name $(<$param>)? {
                companion: model::AtomicUsize,
                inner: model::$name $(<$param>)?,
            }

            impl $(<$param>)? $name $(<$param>)? {
                /// Creates an atomic with this value.
                #[track_caller]
                pub fn new(value: $value) -> Self {
                    let companion = model::AtomicUsize::new(0);
                    Self { companion, inner: model::$name::new(value) }
                }

                /// Loads the value.
                #[track_caller]
                pub fn load(&self, order: Ordering) -> $value {
                    self.companion.fetch_add(1, Ordering::Relaxed);
                    self.inner.load(order)
                }

                /// Returns the value.
                #[track_caller]
                pub fn into_inner(self) -> $value {
                    self.inner.into_inner()
                }
            }

            impl $(<$param>)? Deref for $name $(<$param>)? {
                type Target = model::$name $(<$param>)?;

                fn deref(&self) -> &Self::Target {
                    &self.inner
                }
            }

            impl $(<$param>)? DerefMut for $name $(<$param>)? {
                fn deref_mut(&mut self) -> &mut Self::Target {
                    &mut self.inner
                }
            }

            impl $(<$param>)? std::fmt::Debug for $name $(<$param>)? {
                fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    self.inner.fmt(f)
                }
            }
        )+
    };
}

explored! {
    AtomicBool = bool;
    AtomicI64 = i64;
    AtomicPtr<T> = *mut T;
    AtomicU8 = u8;
    AtomicU16 = u16;
    AtomicU32 = u32;
    AtomicU64 = u64;
    AtomicUsize = usize;
}
