//! Returning memory to the system, in whole pages of the system.
//!
//! The kernel's page is 4 KiB on x86-64, and 4, 16 or 64 KiB on aarch64. `madvise` requires an
//! address that is a multiple of it, and rounds the length up to one: called for less than a page
//! of the kernel, it affects neighbours, which may be in use.

use std::ptr::NonNull;

/// Returns the size of the system's pages in bytes, a power of two.
fn page_bytes() -> usize {
    #[cfg(test)]
    if let Some(bytes) = pretended::page_bytes() {
        return bytes;
    }
    // SAFETY: the call only returns a number.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).expect("the size of a page is positive")
}

/// Makes `len` bytes at `start` read as zeros, and returns the memory of all whole pages of the
/// system among them. The partial pages around them keep their memory.
///
/// # Safety
///
/// The range is mapped for writing, privately and without a file, and no thread uses it.
pub(super) unsafe fn discard(start: NonNull<u8>, len: usize) {
    let page = page_bytes();
    let before = start.align_offset(page).min(len);
    let whole = (len - before) / page * page;
    // SAFETY: all three parts are in the range, which is the caller's.
    unsafe {
        let middle = start.add(before);
        let behind = middle.add(whole);
        start.write_bytes(0, before);
        behind.write_bytes(0, len - before - whole);
        if whole > 0 && !dont_need(middle, whole) {
            // The kernel refuses locked memory, for example. It remains resident, but must be
            // zeros.
            middle.write_bytes(0, whole);
        }
    }
}

/// Asks the kernel to take the memory of a range. Returns whether it did.
///
/// # Safety
///
/// The range is as for [`discard`], up to the end of the kernel's page that it ends in.
unsafe fn dont_need(start: NonNull<u8>, len: usize) -> bool {
    #[cfg(test)]
    let Some(len) = pretended::range(start, len) else { return false };
    // SAFETY: promised by the caller.
    unsafe { libc::madvise(start.as_ptr().cast(), len, libc::MADV_DONTNEED) == 0 }
}

#[cfg(test)]
pub(super) mod pretended;
