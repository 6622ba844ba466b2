//! Fetching memory before it is looked at.
//!
//! Who goes through many things that no cache of the CPU holds any more waits for each of them.
//! Asked for some steps before, they come meanwhile. It is a hint: nothing depends on it but time.

/// How far ahead of the one that is looked at: as long as memory takes to come.
const AHEAD: usize = 8;
/// Bytes of a line.
#[cfg(target_arch = "x86_64")]
const LINE: usize = 64;

/// Asks for all lines of `value`, and waits for none.
#[inline]
pub fn prefetch<T: ?Sized>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

        let start = std::ptr::from_ref(value).cast::<i8>();
        let mut offset = 0;
        while offset < size_of_val(value) {
            // SAFETY: a prefetch reads nothing that the program sees, and faults at no address.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(offset)) };
            offset += LINE;
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}

/// In a loop that is at `list[at]`: calls `fetch` with what comes some steps later, to [`prefetch`]
/// what that leads to.
#[inline]
pub fn soon<T>(list: &[T], at: usize, fetch: impl FnOnce(&T)) {
    if let Some(later) = list.get(at + AHEAD) {
        fetch(later);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
