//! Several pages: their allocation, and copies of them.
//!
//! Adjacent pages are copied as one, because long copies are cheaper: starting one costs as much as
//! copying a hundred bytes, and the processor prefetches memory only within a copy whose addresses
//! ascend.

use std::ops::Deref;
use std::ptr::NonNull;

use super::size::PAGE_SIZE;
use super::{Page, PageBox, bytes, pool};

impl Page {
    /// Allocates `count` pages that hold `bytes` from `offset` of the first one on, and zeros
    /// before and after. They are adjacent in memory if the pool has such pages, which makes copies
    /// of several of them ([`read_pages`]) more than twice as fast: the processor prefetches only
    /// as long as addresses ascend. Otherwise like [`with`](Self::with).
    ///
    /// # Panics
    ///
    /// If the range isn't within the pages.
    pub fn many_with(count: usize, offset: usize, bytes: &[u8]) -> Vec<PageBox> {
        let end = offset + bytes.len();
        assert!(end <= count * PAGE_SIZE, "bytes up to {end} are not within {count} pages");
        let memory = pool::alloc_many(count);
        let fresh = |&(page, _): &(NonNull<u8>, bool)| PageBox(page.cast());
        let pages: Vec<PageBox> = memory.iter().map(fresh).collect();
        let (first, within) = (offset / PAGE_SIZE, offset % PAGE_SIZE);
        write_pages(pages.iter().skip(first).map(Deref::deref), within, bytes);
        for (index, (page, (_, is_zero))) in pages.iter().zip(memory).enumerate() {
            if !is_zero {
                let begin = index * PAGE_SIZE;
                let part = |at: usize| at.clamp(begin, begin + PAGE_SIZE) - begin;
                page.bytes.zero(0..part(offset));
                page.bytes.zero(part(end).max(part(offset))..PAGE_SIZE);
            }
        }
        pages
    }

    /// Allocates `count` pages with arbitrary bytes, left by former users. The caller fills them
    /// before any thread may read them. Otherwise like [`many_with`](Self::many_with).
    pub fn many_unfilled(count: usize) -> Vec<PageBox> {
        pool::alloc_many(count).into_iter().map(|(page, _)| PageBox(page.cast())).collect()
    }
}

/// Copies the bytes of `pages`, from `within` of the first one on, into `into`, until that is full
/// or there are no more pages. Returns the number of bytes.
///
/// # Panics
///
/// If `within` isn't within a page.
#[inline]
pub fn read_pages<'p>(
    pages: impl Iterator<Item = &'p Page>,
    within: usize,
    into: &mut [u8],
) -> usize {
    let mut done = 0;
    runs(pages, within, into.len(), |first, offset, len| {
        // SAFETY: `runs` passes adjacent pages, which are borrowed.
        unsafe { first.bytes.read_run(offset, &mut into[done..done + len]) };
        done += len;
    })
}

/// Copies `from` to the bytes of `pages`, from `within` of the first one on, until all is copied or
/// there are no more pages. Returns the number of bytes.
///
/// # Panics
///
/// If `within` isn't within a page.
#[inline]
pub fn write_pages<'p>(pages: impl Iterator<Item = &'p Page>, within: usize, from: &[u8]) -> usize {
    let mut done = 0;
    runs(pages, within, from.len(), |first, offset, len| {
        // SAFETY: `runs` passes adjacent pages, which are borrowed.
        unsafe { first.bytes.write_run(offset, &from[done..done + len]) };
        done += len;
    })
}

/// Splits `pages` into runs of adjacent pages, of at most `len` bytes in total. Calls `copy` with
/// the first page, the offset in it and the length of each. Returns the number of bytes.
#[inline]
fn runs<'p>(
    pages: impl Iterator<Item = &'p Page>,
    within: usize,
    len: usize,
    mut copy: impl FnMut(&'p Page, usize, usize),
) -> usize {
    assert!(within <= PAGE_SIZE, "{within} is not within a page");
    let mut done = 0;
    // The first page of the run, the offset in it, its length, and the address of an adjacent page.
    let mut run: Option<(&Page, usize, usize, *const Page)> = None;
    for page in pages {
        if done == len {
            break;
        }
        let offset = if done == 0 { within } else { 0 };
        let part = (len - done).min(PAGE_SIZE - offset);
        let here = std::ptr::from_ref(page);
        run = match run {
            Some((first, begin, so_far, next)) if bytes::HAS_RUNS && next == here => {
                Some((first, begin, so_far + part, here.wrapping_add(1)))
            }
            ended => {
                if let Some((first, begin, so_far, _)) = ended {
                    copy(first, begin, so_far);
                }
                Some((page, offset, part, here.wrapping_add(1)))
            }
        };
        done += part;
    }
    if let Some((first, begin, so_far, _)) = run {
        copy(first, begin, so_far);
    }
    done
}
