//! The size of a page.

use std::alloc::Layout;

/// The size of a [`Page`](super::Page) in bytes.
pub const PAGE_SIZE: usize = 4096;

/// The memory of a page.
pub(super) const LAYOUT: Layout = match Layout::from_size_align(PAGE_SIZE, PAGE_SIZE) {
    Ok(layout) => layout,
    Err(_) => unreachable!(),
};
