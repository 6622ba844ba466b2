//! Pages from the global allocator, for model checkers and Miri, which don't support `mmap`.

use std::alloc::{alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

use super::size::LAYOUT;

pub(super) fn alloc() -> (NonNull<u8>, bool) {
    // SAFETY: the layout is not empty.
    let page = unsafe { alloc_zeroed(LAYOUT) };
    (NonNull::new(page).unwrap_or_else(|| handle_alloc_error(LAYOUT)), true)
}

pub(super) fn alloc_many(count: usize) -> Vec<(NonNull<u8>, bool)> {
    (0..count).map(|_| alloc()).collect()
}

/// Frees a page.
///
/// # Safety
///
/// The page came from [`alloc`], hasn't been freed, and no thread uses it any more.
pub(super) unsafe fn free(page: NonNull<u8>) {
    // SAFETY: promised by the caller.
    unsafe { dealloc(page.as_ptr(), LAYOUT) }
}

pub(super) fn trim() {}

pub(super) fn idle_bytes() -> usize {
    0
}

pub(super) fn idle_max() -> usize {
    0
}

pub(super) fn set_idle_max(_: usize) {}
