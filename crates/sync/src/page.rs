//! Pages whose bytes several threads may read and write at once.
//!
//! # Purpose
//!
//! POSIX lets a `read` race with a `write` of the same bytes; the reader may see any mixture. In
//! Rust a plain copy in such a race is undefined behaviour. A [`Page`] offers the race with a
//! meaning: every byte read is one that was there at some moment of the call.
//!
//! # Why it is sound
//!
//! All access to the bytes goes through this module, in one of two ways, never both in one build:
//!
//! * On x86-64 the bytes are only touched by inline assembly, which to the compiler is a machine
//!   instruction of unknown effect on that memory, and to the machine an ordinary load or store,
//!   which can't tear within a byte. The memory is in an `UnsafeCell`, so the compiler assumes
//!   nothing about it between two calls.
//! * Elsewhere, and under Miri, the page is an array of 64-bit atomics. A write of a part of a
//!   word replaces the bytes with a compare-and-exchange, so that two writers of neighbouring bytes
//!   keep each other's.
//!
//! No ordering is promised between the bytes, or with anything else. Who needs one (a reader that
//! must see a completed write) gets it from the lock or counter that told it of the write.
//!
//! # Blocking
//!
//! Nothing here waits.

use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};
use std::fmt;
use std::ops::Range;

#[cfg(all(target_arch = "x86_64", not(miri)))]
use bytes_asm as bytes;
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
use bytes_atomic as bytes;

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod bytes_asm;
#[cfg(any(test, not(all(target_arch = "x86_64", not(miri)))))]
mod bytes_atomic;

/// The size of a [`Page`] in bytes.
pub const PAGE_SIZE: usize = 4096;

/// 4096 bytes, to be shared between threads that read and write them.
///
/// Aligned as `malloc` aligns everything, and no more: pages aligned to their size cost glibc 8,200
/// bytes each instead of 4,120 (measured, 100,000 pages), and those copy no faster here.
#[repr(C, align(16))]
pub struct Page {
    bytes: bytes::Bytes,
}

const _: () = assert!(size_of::<Page>() == PAGE_SIZE && align_of::<Page>() == 16);

impl Page {
    /// A page of zeros. Aborts, as every allocation does, when there is no memory.
    #[must_use]
    pub fn zeroed() -> Box<Self> {
        let layout = Layout::new::<Self>();
        // SAFETY: The layout isn't empty, and all-zero bytes are a valid page: it consists of
        // integers in cells.
        unsafe {
            let page = alloc_zeroed(layout).cast::<Self>();
            if page.is_null() {
                handle_alloc_error(layout);
            }
            Box::from_raw(page)
        }
    }

    /// Copies the bytes from `offset` on into `into`.
    ///
    /// # Panics
    ///
    /// When the range isn't within the page.
    #[inline]
    pub fn read(&self, offset: usize, into: &mut [u8]) {
        assert_within(offset, into.len());
        self.bytes.read(offset, into);
    }

    /// Copies `from` to the bytes from `offset` on.
    ///
    /// # Panics
    ///
    /// When the range isn't within the page.
    #[inline]
    pub fn write(&self, offset: usize, from: &[u8]) {
        assert_within(offset, from.len());
        self.bytes.write(offset, from);
    }

    /// Sets the bytes of `range` to zero.
    ///
    /// # Panics
    ///
    /// When the range isn't within the page or ends before it starts.
    #[inline]
    pub fn zero(&self, range: Range<usize>) {
        assert!(range.start <= range.end, "a range that ends before it starts: {range:?}");
        assert_within(range.start, range.end - range.start);
        self.bytes.zero(range);
    }
}

/// The one check that keeps every copy inside its page.
#[inline]
#[track_caller]
fn assert_within(offset: usize, len: usize) {
    assert!(
        offset <= PAGE_SIZE && len <= PAGE_SIZE - offset,
        "{len} bytes at {offset} are not within a page"
    );
}

impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Page").finish_non_exhaustive()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
