//! Free pages, and their magazines.

use std::ptr::NonNull;

use crate::mem::page::size::PAGE_SIZE;

/// Number of pages in a full magazine.
pub(super) const MAGAZINE: usize = 64;
/// Number of pages that are taken from a region if there is no full magazine.
pub(super) const CARVE: usize = 32;
/// Maximum number of full magazines in the depot: 4 MiB.
pub(super) const FULL_MAX: usize = (4 << 20) / (MAGAZINE * PAGE_SIZE);

/// A free page.
#[derive(Clone, Copy)]
pub(super) struct Free {
    pub(super) page: NonNull<u8>,
    /// Whether it reads as zeros.
    pub(super) is_zero: bool,
}

// SAFETY: it owns the page.
unsafe impl Send for Free {}

/// Free pages that move between a slot and the depot together. The last one is taken first.
pub(super) type PageMagazine = Vec<Free>;

/// Reverses every run of ascending addresses, so that pages which were put in such an order are
/// taken in it.
pub(super) fn ascend(pages: &mut [Free]) {
    for run in pages.chunk_by_mut(|page, next| page.page < next.page) {
        run.reverse();
    }
}
