//! Free pages, their magazines, and how many of them the pool retains.

use std::ptr::NonNull;

use crate::mem::page::size::PAGE_SIZE;

/// Number of pages in a full magazine.
pub(super) const MAGAZINE: usize = 64;
/// Number of pages that are taken from a region if there is no full magazine.
pub(super) const CARVE: usize = 32;
/// Maximum number of full magazines in the depot: 4 MiB.
pub(super) const FULL_MAX: usize = (4 << 20) / (MAGAZINE * PAGE_SIZE);
/// Maximum number of dirty free pages in the regions: 12 MiB.
pub(super) const DIRTY_MAX: usize = (12 << 20) / PAGE_SIZE;
/// Number of dirty pages (6 MiB) from which regions that are wholly free are returned. They are the
/// cheapest to return; more regions may become wholly free before others must be.
pub(super) const WHOLE_MAX: usize = DIRTY_MAX / 2;

/// A free page.
#[derive(Clone, Copy)]
pub(super) struct Free {
    pub(super) page: NonNull<u8>,
    /// Whether it reads as zeros.
    pub(super) is_zero: bool,
}

// SAFETY: it owns the page.
unsafe impl Send for Free {}

/// Free pages that move between a slot and the depot together.
pub(super) type PageMagazine = Vec<Free>;
