//! A kernel with larger pages, as far as `madvise` is concerned.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

static PAGE_BYTES: AtomicUsize = AtomicUsize::new(0);

/// A pretended size of the system's pages, until this is dropped. One at a time.
pub struct Pretended(());

impl Pretended {
    pub fn pages_of(bytes: usize) -> Pretended {
        assert!(bytes.is_power_of_two());
        PAGE_BYTES.store(bytes, Relaxed);
        Pretended(())
    }
}

impl Drop for Pretended {
    fn drop(&mut self) {
        PAGE_BYTES.store(0, Relaxed);
    }
}

pub(super) fn page_bytes() -> Option<usize> {
    Some(PAGE_BYTES.load(Relaxed)).filter(|&bytes| bytes > 0)
}

/// Returns the length that `madvise` works on; `None` if it refuses the address.
pub(super) fn range(start: NonNull<u8>, len: usize) -> Option<usize> {
    let Some(page) = page_bytes() else { return Some(len) };
    start.addr().get().is_multiple_of(page).then(|| len.next_multiple_of(page))
}
