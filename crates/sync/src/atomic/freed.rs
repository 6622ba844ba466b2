//! shuttle's atomics, whose uses fail when they were freed, and cost less to make.
//!
//! Every object that threads share without a lock has atomics in it. Each of shuttle's has a
//! `RefCell`. Memory that is freed is overwritten ([`Freed`]), and so is that of a
//! [`Slab`](crate::slab::Slab), with a pattern that means "mutably borrowed" there: a use after
//! that panics with "RefCell already borrowed". The memory is still there, and seldom for something
//! else, since the program gets freed memory back late.
//!
//! shuttle's constructors hash the name of the file that calls them. Here they are called by the
//! compiler.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ops::{Deref, DerefMut};
use std::ptr;
use std::sync::{Mutex, PoisonError};

use shuttle::sync::atomic as model;

/// The byte that freed memory is filled with: a word of it is negative.
const POISON: u8 = 0xdd;

macro_rules! freed {
    ($($name:ident $(<$param:ident>)? = $value:ty, $zero:expr;)+) => {
        $(
            /// shuttle's atomic of this name.
            pub struct $name $(<$param>)? (model::$name $(<$param>)?);

            impl $(<$param>)? $name $(<$param>)? {
                /// Creates an atomic with this value.
                pub fn new(value: $value) -> Self {
                    let mut atomic = Self::default();
                    *atomic.get_mut() = value;
                    atomic
                }

                /// Returns the value.
                pub fn into_inner(self) -> $value {
                    self.0.into_inner()
                }
            }

            impl $(<$param>)? Deref for $name $(<$param>)? {
                type Target = model::$name $(<$param>)?;

                fn deref(&self) -> &Self::Target {
                    &self.0
                }
            }

            impl $(<$param>)? DerefMut for $name $(<$param>)? {
                fn deref_mut(&mut self) -> &mut Self::Target {
                    &mut self.0
                }
            }

            impl $(<$param>)? Default for $name $(<$param>)? {
                fn default() -> Self {
                    Self(const { model::$name::new($zero) })
                }
            }

            impl $(<$param>)? From<$value> for $name $(<$param>)? {
                fn from(value: $value) -> Self {
                    Self::new(value)
                }
            }

            impl $(<$param>)? std::fmt::Debug for $name $(<$param>)? {
                fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    self.0.fmt(f)
                }
            }
        )+
    };
}

freed! {
    AtomicBool = bool, false;
    AtomicI64 = i64, 0;
    AtomicPtr<T> = *mut T, ptr::null_mut();
    AtomicU8 = u8, 0;
    AtomicU16 = u16, 0;
    AtomicU32 = u32, 0;
    AtomicU64 = u64, 0;
    AtomicUsize = usize, 0;
}

/// The most bytes of an object that is overwritten. Larger ones are buffers.
const FILLED_MAX: usize = 16 << 10;

/// Number of freed objects whose memory waits.
const WAITING: usize = 512;

/// The allocator of a model: it overwrites what is freed, and gives it to the system later.
struct Freed;

/// The freed objects that wait, and the place of the next one.
struct Waiting {
    objects: [(*mut u8, usize, usize); WAITING],
    next: usize,
}

// SAFETY: the memory of freed objects has no other owner.
unsafe impl Send for Waiting {}

/// No thread of a model is switched while it holds the lock, nor allocates.
static FREED: Mutex<Waiting> =
    Mutex::new(Waiting { objects: [(ptr::null_mut(), 0, 0); WAITING], next: 0 });

#[global_allocator]
static ALLOCATOR: Freed = Freed;

// SAFETY: memory is the system's. It returns there once, some time after it was freed.
unsafe impl GlobalAlloc for Freed {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, object: *mut u8, layout: Layout) {
        let (mut object, mut size, mut align) = (object, layout.size(), layout.align());
        if size <= FILLED_MAX {
            // SAFETY: the memory was freed, and still has its size.
            unsafe { object.write_bytes(POISON, size) };
            let mut freed = FREED.lock().unwrap_or_else(PoisonError::into_inner);
            let at = freed.next;
            freed.next = (at + 1) % WAITING;
            (object, size, align) =
                std::mem::replace(&mut freed.objects[at], (object, size, align));
        }
        if !object.is_null() {
            // SAFETY: it has this layout, and has left the objects that wait.
            unsafe { System.dealloc(object, Layout::from_size_align_unchecked(size, align)) };
        }
    }

    unsafe fn realloc(&self, object: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe { System.realloc(object, layout, size) }
    }
}
