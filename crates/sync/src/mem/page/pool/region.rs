//! Regions: 2 MiB of address space each, whose first page records which others are free.

use std::ptr::{self, NonNull};

use super::system;
use crate::mem::page::size::PAGE_SIZE;

/// Number of pages in a region, with the header.
pub(super) const PAGES: usize = REGION / PAGE_SIZE;
const REGION: usize = 2 << 20;
const WORDS: usize = PAGES / 64;

/// A set of pages of a region.
#[derive(Clone, Default)]
pub(super) struct Bitmap([u64; WORDS]);

impl Bitmap {
    pub(super) fn has(&self, index: usize) -> bool {
        self.0[index / 64] & (1 << (index % 64)) != 0
    }

    pub(super) fn set(&mut self, index: usize) {
        self.0[index / 64] |= 1 << (index % 64);
    }

    pub(super) fn clear(&mut self, index: usize) {
        self.0[index / 64] &= !(1 << (index % 64));
    }

    /// Returns the first `count` pages of the set, or all if there are fewer.
    pub(super) fn first(&self, count: usize) -> Bitmap {
        let mut first = Bitmap::default();
        self.indices().take(count).for_each(|index| first.set(index));
        first
    }

    /// Returns the pages of the set, in ascending order.
    pub(super) fn indices(&self) -> impl Iterator<Item = usize> + use<'_> {
        self.0.iter().enumerate().flat_map(|(at, &word)| {
            let without_first =
                |rest: u64| Some(rest & rest.wrapping_sub(1)).filter(|rest| *rest != 0);
            let rests = std::iter::successors(Some(word).filter(|word| *word != 0), move |rest| {
                without_first(*rest)
            });
            rests.map(move |rest| at * 64 + rest.trailing_zeros() as usize)
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    pub(super) fn count(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    pub(super) fn add(&mut self, other: &Bitmap) {
        self.0.iter_mut().zip(other.0).for_each(|(word, other)| *word |= other);
    }

    pub(super) fn remove(&mut self, other: &Bitmap) {
        self.0.iter_mut().zip(other.0).for_each(|(word, other)| *word &= !other);
    }

    /// Returns the runs of consecutive pages: the index of the first page, and the length.
    pub(super) fn runs(&self) -> impl Iterator<Item = (usize, usize)> + use<'_> {
        let mut next = 0;
        std::iter::from_fn(move || {
            let start = (next..PAGES).find(|&index| self.has(index))?;
            let end = (start..PAGES).find(|&index| !self.has(index)).unwrap_or(PAGES);
            next = end;
            Some((start, end - start))
        })
    }
}

/// The first page of a region.
struct FirstPage {
    /// The number of the depot that the region belongs to. Never changes.
    depot: usize,
    header: RegionHeader,
}

/// The state of a region. Used under the lock of its depot.
#[derive(Default)]
pub(super) struct RegionHeader {
    /// Pages that are neither in use nor in a magazine.
    pub(super) free: Bitmap,
    /// Free pages that don't read as zeros, and therefore have memory.
    pub(super) dirty: Bitmap,
    /// Number of pages that are not free.
    pub(super) in_use: usize,
    /// Whether all pages may have memory, because the system may have provided a huge page.
    pub(super) is_huge: bool,
    /// The indices in the lists of the depot.
    pub(super) open_at: Option<usize>,
    pub(super) dirty_at: Option<usize>,
    pub(super) whole_at: Option<usize>,
}

const _: () = assert!(size_of::<FirstPage>() <= PAGE_SIZE);

/// The address of a region that is mapped.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Region(NonNull<FirstPage>);

// SAFETY: it is an address; its memory is used under the lock of the depot.
unsafe impl Send for Region {}

impl Region {
    /// Maps a new region for a depot. Only the header's page has memory; if the system provides a
    /// huge page for it, all pages have. Returns `None` if there is no memory.
    pub(super) fn map(depot: usize, is_huge: bool) -> Option<Region> {
        let start = aligned()?;
        let advice = if is_huge { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE };
        // SAFETY: the range is mapped and ours. The advice may be refused.
        unsafe { libc::madvise(start.as_ptr().cast(), REGION, advice) };
        let first = start.cast::<FirstPage>();
        let mut free = Bitmap([u64::MAX; WORDS]);
        free.clear(0);
        // SAFETY: the region begins with a page for the header, aligned, and ours alone.
        unsafe {
            let header = RegionHeader { free, is_huge, ..RegionHeader::default() };
            first.write(FirstPage { depot, header });
        }
        Some(Region(first))
    }

    /// Returns the region of `page`, and its index there.
    pub(super) fn of(page: NonNull<u8>) -> (Region, usize) {
        let offset = page.addr().get() % REGION;
        // SAFETY: pages are in regions, which start at multiples of their size.
        let start = unsafe { page.sub(offset) };
        (Region(start.cast()), offset / PAGE_SIZE)
    }

    /// Returns the number of the depot that the region belongs to. The region is in a list, or the
    /// caller has a page of it.
    pub(super) fn depot(self) -> usize {
        // SAFETY: the region is mapped, and the word was written before any of its pages was handed
        // out, and never since.
        unsafe { (*self.0.as_ptr()).depot }
    }

    /// Returns the header; the caller holds the lock of the depot.
    pub(super) fn header(&mut self) -> &mut RegionHeader {
        // SAFETY: the region is mapped as long as it is in a list or has a page in use, and the
        // lock makes the header ours. Each caller ends its borrow before it takes another. Only the
        // header is borrowed, since other threads may read the number of the depot.
        unsafe { &mut (*self.0.as_ptr()).header }
    }

    /// Returns the address of a page.
    pub(super) fn page(self, index: usize) -> NonNull<u8> {
        debug_assert!((1..PAGES).contains(&index));
        // SAFETY: the page is within the region.
        unsafe { self.0.cast::<u8>().add(index * PAGE_SIZE) }
    }

    /// Makes `pages` read as zeros, and returns their memory to the system if they fill whole pages
    /// of it. The caller has removed them from the header, so no other thread has them. `was_huge`:
    /// the system may have provided a huge page.
    pub(super) fn discard(self, pages: &Bitmap, was_huge: bool) {
        if was_huge {
            // SAFETY: the range is mapped and ours; the call changes no memory. It prevents the
            // kernel from making one huge page of the rest.
            unsafe { libc::madvise(self.0.as_ptr().cast(), REGION, libc::MADV_NOHUGEPAGE) };
        }
        for (start, len) in pages.runs() {
            // SAFETY: the pages are mapped and ours, and their contents are not needed.
            unsafe { system::discard(self.page(start), len * PAGE_SIZE) };
        }
    }

    /// Unmaps a region that is in no list and has no page in use.
    pub(super) fn unmap(self) {
        // SAFETY: the caller promises that the region is not in use. The call can't fail for a
        // whole mapping, and a failure would only leak address space.
        unsafe { libc::munmap(self.0.as_ptr().cast(), REGION) };
    }
}

/// Maps a region, which starts at a multiple of its size.
fn aligned() -> Option<NonNull<u8>> {
    // Recent kernels align a mapping of this size by themselves.
    let start = map(REGION)?;
    if start.addr().get().is_multiple_of(REGION) {
        return Some(start);
    }
    // SAFETY: the mapping is not known to other code yet.
    unsafe { libc::munmap(start.as_ptr().cast(), REGION) };
    // An aligned region is within twice the size; the rest is unmapped immediately.
    let start = map(2 * REGION)?;
    let before = start.align_offset(REGION);
    // SAFETY: both ends and the region are within the mapping, which is ours alone. An end of no
    // length is refused, which does no harm.
    unsafe {
        libc::munmap(start.as_ptr().cast(), before);
        let start = start.add(before);
        libc::munmap(start.add(REGION).as_ptr().cast(), REGION - before);
        Some(start)
    }
}

/// Maps address space, without memory so far.
fn map(len: usize) -> Option<NonNull<u8>> {
    // SAFETY: a new mapping at an address of the kernel's choice affects no other memory.
    let mapping = unsafe {
        libc::mmap(
            ptr::null_mut(),
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if mapping == libc::MAP_FAILED { None } else { NonNull::new(mapping.cast()) }
}
