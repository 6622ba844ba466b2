//! How memory goes back to the system, in whole pages of the system.
//!
//! The kernel's page is 4 KiB on x86-64, and 4, 16 or 64 KiB on aarch64. `madvise` wants an address
//! that is a multiple of it, and rounds the length up to one: asked for less than a page of the
//! kernel, it takes neighbours along, which may be in use.

use std::ptr::NonNull;

/// Returns the size of the system's pages in bytes, a power of two.
fn page_bytes() -> usize {
    #[cfg(test)]
    if let Some(bytes) = pretended::page_bytes() {
        return bytes;
    }
    // SAFETY: it reads a number.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).expect("the size of a page is positive")
}

/// Makes `len` bytes at `start` read as zeros, and gives back the memory of all whole pages of the
/// system among them. What lies around those keeps its memory.
///
/// # Safety
///
/// The range is mapped for writing, privately and without a file, and nobody uses it.
pub(super) unsafe fn discard(start: NonNull<u8>, len: usize) {
    let page = page_bytes();
    let before = start.align_offset(page).min(len);
    let whole = (len - before) / page * page;
    // SAFETY: all three parts lie in the range, which is the caller's.
    unsafe {
        let middle = start.add(before);
        let behind = middle.add(whole);
        start.write_bytes(0, before);
        behind.write_bytes(0, len - before - whole);
        if whole > 0 && !dont_need(middle, whole) {
            // Memory that is locked, for one. It stays resident, but has to be zeros.
            middle.write_bytes(0, whole);
        }
    }
}

/// Asks the kernel to take the memory of a range. Returns whether it did.
///
/// # Safety
///
/// As for [`discard`], up to the end of the kernel's page that the range ends in.
unsafe fn dont_need(start: NonNull<u8>, len: usize) -> bool {
    #[cfg(test)]
    let Some(len) = pretended::range(start, len) else { return false };
    // SAFETY: says the caller.
    unsafe { libc::madvise(start.as_ptr().cast(), len, libc::MADV_DONTNEED) == 0 }
}

#[cfg(test)]
pub(super) mod pretended;
