//! The size of a page, how many are read or written together, and offsets in pages.

use vfscale_sync::page::PAGE_SIZE;

/// The size of a page, for offsets.
pub(crate) const PAGE: u64 = PAGE_SIZE as u64;

/// The most pages that are read in one go: a megabyte.
pub(crate) const READ_PAGES_MAX: u64 = 256;

/// The most pages that are written back with one transaction: four megabytes. A device gets them in
/// requests of one, several at once.
pub(crate) const WRITE_PAGES_MAX: u64 = 4 * READ_PAGES_MAX;

/// The number of pages after which the write-back of a sequential writer's pages begins: as many as
/// are written with one transaction.
pub(crate) const BEHIND_PAGES: u64 = WRITE_PAGES_MAX;

/// Returns the page that has the byte at `offset`.
pub(crate) fn page_of(offset: u64) -> u64 {
    offset / PAGE
}

/// Returns the offset at which a page begins.
pub(crate) fn offset_of(page: u64) -> u64 {
    page.saturating_mul(PAGE)
}

/// Returns the number of pages of `size` bytes.
pub(crate) fn pages_of(size: u64) -> u64 {
    size.div_ceil(PAGE)
}
