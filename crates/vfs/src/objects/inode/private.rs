//! The driver's part of an inode.
//!
//! A driver attaches one value of a type of its own to an inode: the pages of a file, the target of
//! a link. A value of up to two words is stored in the inode itself. So a file in memory needs no
//! allocation for the head of its data, whose memory another CPU might free, and a read or write
//! follows no pointer to it. A larger value is in a box.
//!
//! # Invariants
//!
//! * `kind` is null as long as there is no value, [`CLAIMED`] while a thread stores it, and the
//!   address of the value's [`Kind`] from then on.
//! * The words are written only by the thread that has claimed them, before it publishes the kind.

use std::any::{Any, TypeId};
use std::cell::UnsafeCell;
use std::mem::{MaybeUninit, align_of, size_of};
use std::ptr;

use vfscale_sync::atomic::{AtomicPtr, Ordering, yield_now};

/// Memory of a value in an inode.
type Words = [usize; 2];

/// A value that is too large for an inode, or that a driver has boxed.
type Boxed = Box<dyn Any + Send + Sync>;

/// The address in place of a kind while a thread stores the value.
const CLAIMED: usize = 1;

/// The type of a value that is stored in an inode.
struct Kind {
    id: TypeId,
    /// Drops a value of the type in place.
    drop: unsafe fn(*mut ()),
}

impl Kind {
    fn of<T: Any>() -> *mut Kind {
        let kind: &'static Kind = const { &Kind { id: TypeId::of::<T>(), drop: drop_value::<T> } };
        ptr::from_ref(kind).cast_mut()
    }
}

/// Drops a value.
///
/// # Safety
///
/// `value` is a `T` that nothing uses any more.
unsafe fn drop_value<T>(value: *mut ()) {
    // SAFETY: the caller promises it.
    unsafe { value.cast::<T>().drop_in_place() }
}

/// Returns whether a `T` is stored in the inode.
const fn fits<T>() -> bool {
    size_of::<T>() <= size_of::<Words>() && align_of::<T>() <= align_of::<Words>()
}

const _: () = assert!(fits::<Boxed>());

/// The driver's part of an inode; see the [module](self).
pub(super) struct Private {
    kind: AtomicPtr<Kind>,
    words: UnsafeCell<MaybeUninit<Words>>,
}

// SAFETY: values are `Send` and `Sync`, see `init`; they are published by a release.
unsafe impl Send for Private {}
// SAFETY: values are `Send` and `Sync`, see `init`; they are published by a release.
unsafe impl Sync for Private {}

impl Private {
    /// Creates a part without a value.
    #[inline]
    pub(super) fn none() -> Private {
        let words = UnsafeCell::new(MaybeUninit::uninit());
        Private { kind: AtomicPtr::new(ptr::null_mut()), words }
    }

    /// Creates a part with a value that the driver has boxed.
    pub(super) fn boxed(value: Boxed) -> Private {
        assert!(fits::<Boxed>());
        let mut words = MaybeUninit::<Words>::uninit();
        // SAFETY: the value fits, and no other thread can see the words yet.
        unsafe { words.as_mut_ptr().cast::<Boxed>().write(value) };
        Private { kind: AtomicPtr::new(Kind::of::<Boxed>()), words: UnsafeCell::new(words) }
    }

    /// Returns whether it has a value, or is about to.
    #[inline]
    pub(super) fn is_some(&self) -> bool {
        !self.kind.load(Ordering::Acquire).is_null()
    }

    /// Returns the value, if it is a `T`.
    #[inline]
    pub(super) fn get<T: Any>(&self) -> Option<&T> {
        let kind = self.kind.load(Ordering::Acquire);
        if kind.addr() <= CLAIMED {
            return None;
        }
        // SAFETY: any other address is that of a static.
        let id = unsafe { (*kind).id };
        // SAFETY: the words are a value of this type, published before its kind, and not written
        // again.
        unsafe {
            if fits::<T>() && id == TypeId::of::<T>() {
                return Some(&*self.words.get().cast::<T>());
            }
            if id == TypeId::of::<Boxed>() {
                return (*self.words.get().cast::<Boxed>()).downcast_ref();
            }
        }
        None
    }

    /// Returns the value, made by `make` if there is none yet; `None` if it is no `T`. If several
    /// threads make one, all but one are dropped; a thread waits while another stores its own.
    pub(super) fn get_or_init<T: Any + Send + Sync>(&self, make: impl FnOnce() -> T) -> Option<&T> {
        if let Some(value) = self.get() {
            return Some(value);
        }
        if !self.is_some() {
            if fits::<T>() {
                self.init(make());
            } else {
                self.init::<Boxed>(Box::new(make()));
            }
        }
        while self.kind.load(Ordering::Acquire).addr() == CLAIMED {
            yield_now();
        }
        self.get()
    }

    /// Stores a value, which fits, unless there is one.
    fn init<T: Any + Send + Sync>(&self, value: T) {
        assert!(fits::<T>());
        let claimed = ptr::without_provenance_mut(CLAIMED);
        let none = ptr::null_mut();
        if self.kind.compare_exchange(none, claimed, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            // SAFETY: this thread has claimed the words, which nothing reads before the kind is
            // published, and the value fits.
            unsafe { self.words.get().cast::<T>().write(value) };
            self.kind.store(Kind::of::<T>(), Ordering::Release);
        }
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        // No other thread has a reference, so a relaxed load suffices, and no thread stores.
        let kind = self.kind.load(Ordering::Relaxed);
        if kind.addr() > CLAIMED {
            // SAFETY: the address is that of a static, and the words are a value of this kind.
            unsafe { ((*kind).drop)(self.words.get().cast()) };
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
