//! Pages whose bytes several threads may read and write concurrently.
//!
//! # Purpose
//!
//! POSIX lets a `read` race with a `write` of the same bytes; the reader may see any mixture. In
//! Rust a plain copy in such a race is undefined behaviour. A [`Page`] gives the race a meaning:
//! every byte read is one that the page held at some moment of the call.
//!
//! # Why it is sound
//!
//! All accesses to the bytes are in this module, in one of two ways, never both in one build:
//!
//! * On x86-64 the bytes are only accessed by inline assembly, which to the compiler is a machine
//!   instruction of unknown effect on that memory, and to the machine an ordinary load or store,
//!   which can't tear within a byte. The memory is in an `UnsafeCell`, so the compiler assumes
//!   nothing about it between two calls.
//! * Elsewhere, and under Miri, the page is an array of 64-bit atomics. A write of a part of a word
//!   replaces the bytes with a compare-and-exchange, so concurrent writers of neighbouring bytes do
//!   not overwrite each other's.
//!
//! No ordering is promised between the bytes, or with anything else. A reader that needs one (it
//! must see a completed write) gets it from the lock or counter that told it of the write.
//!
//! # Blocking
//!
//! Access to a page never waits. Making and freeing one may take the leaf locks of its pool.

use crate::rcu::slot::Pointer;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, Range};
use std::ptr::NonNull;

#[cfg(all(target_arch = "x86_64", not(miri)))]
use bytes_asm as bytes;
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
use bytes_atomic as bytes;
#[cfg(any(loom, shuttle, miri))]
use plain as pool;

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod bytes_asm;
#[cfg(any(test, not(all(target_arch = "x86_64", not(miri)))))]
mod bytes_atomic;

mod run;
mod size;

pub use run::{read_pages, write_pages};
pub use size::PAGE_SIZE;

#[cfg(any(loom, shuttle, miri))]
mod plain;
#[cfg(not(any(loom, shuttle, miri)))]
mod pool;

/// 4096 bytes, aligned to their size, to be shared between threads that read and write them.
#[repr(C, align(4096))]
pub struct Page {
    bytes: bytes::Bytes,
}

const _: () = assert!(size_of::<Page>() == PAGE_SIZE && align_of::<Page>() == PAGE_SIZE);

impl Page {
    /// Allocates a page of zeros from the pool of the process. Aborts, like every allocation, if
    /// there is no memory. Blocks only for the leaf locks of the pool.
    pub fn zeroed() -> PageBox {
        Self::with(0, &[])
    }

    /// Allocates a page with `bytes` from `offset` on, and zeros elsewhere; otherwise like
    /// [`zeroed`](Self::zeroed), and cheaper than zeroing and writing it.
    ///
    /// # Panics
    ///
    /// If the range isn't within the page.
    pub fn with(offset: usize, bytes: &[u8]) -> PageBox {
        assert_within(offset, bytes.len());
        let (memory, is_zero) = pool::alloc();
        let page = PageBox(memory.cast());
        page.bytes.write(offset, bytes);
        if !is_zero {
            page.bytes.zero(0..offset);
            page.bytes.zero(offset + bytes.len()..PAGE_SIZE);
        }
        page
    }

    /// Returns the address of the bytes, for system calls that read or write them. Such transfers
    /// are subject to the rules of [`read`](Self::read) and [`write`](Self::write).
    pub fn as_ptr(&self) -> *mut u8 {
        std::ptr::from_ref(self).cast_mut().cast()
    }

    /// Copies the bytes from `offset` on into `into`.
    ///
    /// # Panics
    ///
    /// If the range isn't within the page.
    #[inline]
    pub fn read(&self, offset: usize, into: &mut [u8]) {
        assert_within(offset, into.len());
        self.bytes.read(offset, into);
    }

    /// Copies `from` to the bytes from `offset` on.
    ///
    /// # Panics
    ///
    /// If the range isn't within the page.
    #[inline]
    pub fn write(&self, offset: usize, from: &[u8]) {
        assert_within(offset, from.len());
        self.bytes.write(offset, from);
    }

    /// Sets the bytes of `range` to zero.
    ///
    /// # Panics
    ///
    /// If the range isn't within the page or ends before it starts.
    #[inline]
    pub fn zero(&self, range: Range<usize>) {
        assert!(range.start <= range.end, "a range that ends before it starts: {range:?}");
        assert_within(range.start, range.end - range.start);
        self.bytes.zero(range);
    }
}

/// An owned page. Dropping it returns its memory to the pool of the process immediately.
///
/// `Send` and `Sync`, like a page.
pub struct PageBox(NonNull<Page>);

// SAFETY: it owns a page, which may be sent and shared.
unsafe impl Send for PageBox {}
// SAFETY: it owns a page, which may be shared.
unsafe impl Sync for PageBox {}

impl Deref for PageBox {
    type Target = Page;

    #[inline]
    fn deref(&self) -> &Page {
        // SAFETY: the page is ours until we are dropped. Its memory is initialised: the system
        // mapped it as zeros, and any bytes are a valid page.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for PageBox {
    fn drop(&mut self) {
        // SAFETY: the page came from `alloc`, was ours alone, and is not used after this drop.
        unsafe { pool::free(self.0.cast()) }
    }
}

// SAFETY: a page box owns its page, also while only its raw pointer exists.
unsafe impl Pointer for PageBox {
    type Target = Page;

    fn into_raw(self) -> *mut Page {
        ManuallyDrop::new(self).0.as_ptr()
    }

    unsafe fn from_raw(raw: *mut Page) -> Self {
        // SAFETY: the caller promises that it came from `into_raw`, which got it from a non-null
        // pointer.
        Self(unsafe { NonNull::new_unchecked(raw) })
    }
}

impl fmt::Debug for PageBox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

/// Returns the bytes of memory that no page uses and that the pool retains for new ones: at most
/// [`idle_max`], half a MiB for each CPU, and the rest of a huge page (2 MiB) that is being handed
/// out for the first time, for each thread that mapped one concurrently. Takes the locks of the
/// pool one after the other.
pub fn idle_bytes() -> usize {
    pool::idle_bytes()
}

/// Returns the maximum of the memory in bytes that the process retains for new pages, beside half a
/// MiB for each CPU. By default that is 32 MiB for each CPU, but at most a sixteenth of the memory
/// that the process may use, and at least 16 MiB.
///
/// Above 16 MiB the pool retains only what was in use within the last second, and gives the rest
/// back by halves, one each second.
pub fn idle_max() -> usize {
    pool::idle_max()
}

/// Sets the maximum of the memory in bytes that the process retains for new pages
/// ([`idle_max`]), and returns what exceeds it to the system. That takes the locks of the pool one
/// after the other, and about half a microsecond for each page.
pub fn set_idle_max(bytes: usize) {
    pool::set_idle_max(bytes);
}

/// Returns all unused memory of pages to the system. Takes the locks of the pool one after the
/// other, and about half a microsecond for each page.
pub fn trim() {
    pool::trim();
}

/// Panics unless the range is within a page: the bounds check of every copy.
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
