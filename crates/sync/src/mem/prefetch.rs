//! Prefetching of memory.
//!
//! A loop over many objects that have left the CPU's caches waits for each of them. If they are
//! requested some steps earlier, they arrive in the meantime. It is a hint: only time depends on
//! it.

/// The distance of the prefetched item, in steps: about the latency of memory.
const AHEAD: usize = 8;
/// Bytes of a cache line.
#[cfg(target_arch = "x86_64")]
const LINE: usize = 64;

/// Requests all cache lines of `value`, and waits for none.
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

/// Calls `fetch` with an item some steps after `list[at]`, which can then [`prefetch`] what it
/// refers to.
#[inline]
pub fn soon<T>(list: &[T], at: usize, fetch: impl FnOnce(&T)) {
    if let Some(later) = list.get(at + AHEAD) {
        fetch(later);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
