//! Deferred calls.

use std::mem::MaybeUninit;

/// Number of calls in a full bag. In a model of shuttle no call waits for others.
pub(crate) const BAG_LEN: usize = if cfg!(shuttle) { 1 } else { 64 };

/// Number of words of a call that needs no memory of its own.
const WORDS: usize = 3;

type Data = MaybeUninit<[usize; WORDS]>;

/// A call that is made later, or never. Dropping it leaks it.
pub(crate) struct Deferred {
    call: unsafe fn(Data),
    data: Data,
}

impl Deferred {
    /// Makes a deferred call of `f`. It may be run on another thread only if `f` may be.
    #[inline]
    pub(crate) fn new<F: FnOnce()>(f: F) -> Self {
        const {
            assert!(size_of::<Box<F>>() <= size_of::<Data>());
        }
        let mut data = Data::uninit();
        if is_small::<F>() {
            // SAFETY: it fits, by size and alignment.
            unsafe { data.as_mut_ptr().cast::<F>().write(f) };
            Self { call: call_small::<F>, data }
        } else {
            // SAFETY: a box fits, by size and alignment.
            unsafe { data.as_mut_ptr().cast::<Box<F>>().write(Box::new(f)) };
            Self { call: call_boxed::<F>, data }
        }
    }

    /// Makes the call.
    pub(crate) fn run(self) {
        // SAFETY: `new` has chosen the function for the data, and this consumes them.
        unsafe { (self.call)(self.data) }
    }
}

const fn is_small<F>() -> bool {
    size_of::<F>() <= size_of::<Data>() && align_of::<F>() <= align_of::<Data>()
}

/// # Safety
/// The data are an `F`, which is small, and are not used again.
unsafe fn call_small<F: FnOnce()>(data: Data) {
    // SAFETY: as the caller promises.
    let f = unsafe { data.as_ptr().cast::<F>().read() };
    f();
}

/// # Safety
/// The data are a `Box<F>`, and are not used again.
unsafe fn call_boxed<F: FnOnce()>(data: Data) {
    // SAFETY: as the caller promises.
    let f = unsafe { data.as_ptr().cast::<Box<F>>().read() };
    f();
}
