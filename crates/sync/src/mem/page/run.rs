//! Copies of several pages.
//!
//! Pages that lie one behind the other in memory are copied as one, so that a copy is as long as it
//! can be: starting one costs as much as copying a hundred bytes, and the processor fetches memory
//! ahead only within a copy whose addresses ascend.

use super::{PAGE_SIZE, Page, bytes};

/// Copies the bytes of `pages`, from `within` of the first one on, into `into`, until that is full
/// or there are no more pages. Returns how many bytes.
///
/// # Panics
///
/// When `within` isn't within a page.
#[inline]
pub fn read_pages<'p>(
    pages: impl Iterator<Item = &'p Page>,
    within: usize,
    into: &mut [u8],
) -> usize {
    let mut done = 0;
    runs(pages, within, into.len(), |first, offset, len| {
        // SAFETY: `runs` gives pages that lie one behind the other, and that are borrowed.
        unsafe { first.bytes.read_run(offset, &mut into[done..done + len]) };
        done += len;
    })
}

/// Copies `from` to the bytes of `pages`, from `within` of the first one on, until it is at its end
/// or there are no more pages. Returns how many bytes.
///
/// # Panics
///
/// When `within` isn't within a page.
#[inline]
pub fn write_pages<'p>(pages: impl Iterator<Item = &'p Page>, within: usize, from: &[u8]) -> usize {
    let mut done = 0;
    runs(pages, within, from.len(), |first, offset, len| {
        // SAFETY: as above.
        unsafe { first.bytes.write_run(offset, &from[done..done + len]) };
        done += len;
    })
}

/// Calls `copy` with the first page, the offset in it and the length of each run of pages that lie
/// one behind the other, of `len` bytes in all at most. Returns how many there were.
#[inline]
fn runs<'p>(
    pages: impl Iterator<Item = &'p Page>,
    within: usize,
    len: usize,
    mut copy: impl FnMut(&'p Page, usize, usize),
) -> usize {
    assert!(within <= PAGE_SIZE, "{within} is not within a page");
    let mut done = 0;
    // Where the run began, how long it is, and where the next page would have to be.
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
