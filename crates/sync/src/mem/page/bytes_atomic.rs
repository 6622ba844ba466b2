//! Bytes of a page on any machine: an array of atomic words.

use super::size::PAGE_SIZE;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

const WORD: usize = size_of::<u64>();

/// Whether adjacent pages are copied as one: no, as a reference to a page does not cover the next
/// one.
#[cfg_attr(
    all(target_arch = "x86_64", not(miri)),
    expect(dead_code, reason = "only its tests are here")
)]
pub(super) const HAS_RUNS: bool = false;

/// The bytes of a page.
#[repr(transparent)]
pub(super) struct Bytes([AtomicU64; PAGE_SIZE / WORD]);

impl Bytes {
    /// Copies bytes out of the page. The caller has checked the bounds.
    pub(super) fn read(&self, offset: usize, into: &mut [u8]) {
        for (word, at, range) in pieces(offset..offset + into.len()) {
            let bytes = self.0[word].load(Ordering::Relaxed).to_le_bytes();
            into[range.clone()].copy_from_slice(&bytes[at..at + range.len()]);
        }
    }

    /// Copies bytes into the page. The caller has checked the bounds.
    pub(super) fn write(&self, offset: usize, from: &[u8]) {
        for (word, at, range) in pieces(offset..offset + from.len()) {
            self.replace(word, at, &from[range]);
        }
    }

    /// Zeroes a range. The caller has checked the bounds.
    pub(super) fn zero(&self, range: Range<usize>) {
        for (word, at, range) in pieces(range) {
            self.replace(word, at, &[0; WORD][..range.len()]);
        }
    }

    /// Reads like [`read`](Self::read): there are no runs here.
    ///
    /// # Safety
    ///
    /// The range is within the page; there is no other condition.
    #[cfg_attr(
        all(target_arch = "x86_64", not(miri)),
        expect(dead_code, reason = "only its tests are here")
    )]
    pub(super) unsafe fn read_run(&self, offset: usize, into: &mut [u8]) {
        self.read(offset, into);
    }

    /// Writes like [`write`](Self::write): there are no runs here.
    ///
    /// # Safety
    ///
    /// The range is within the page; there is no other condition.
    #[cfg_attr(
        all(target_arch = "x86_64", not(miri)),
        expect(dead_code, reason = "only its tests are here")
    )]
    pub(super) unsafe fn write_run(&self, offset: usize, from: &[u8]) {
        self.write(offset, from);
    }

    /// Replaces some bytes of a word; concurrent writes to the rest of it are preserved.
    fn replace(&self, word: usize, at: usize, from: &[u8]) {
        let merge = |old: u64| {
            let mut bytes = old.to_le_bytes();
            bytes[at..at + from.len()].copy_from_slice(from);
            u64::from_le_bytes(bytes)
        };
        let word = &self.0[word];
        if from.len() == WORD {
            word.store(merge(0), Ordering::Relaxed);
            return;
        }
        let mut old = word.load(Ordering::Relaxed);
        while let Err(now) =
            word.compare_exchange_weak(old, merge(old), Ordering::Relaxed, Ordering::Relaxed)
        {
            old = now;
        }
    }
}

/// Splits a range of bytes at word boundaries, into the index of the word, the offset in the word,
/// and the range relative to the start.
fn pieces(range: Range<usize>) -> impl Iterator<Item = (usize, usize, Range<usize>)> {
    let start = range.start;
    let mut next = range.start;
    std::iter::from_fn(move || {
        if next >= range.end {
            return None;
        }
        let (word, at) = (next / WORD, next % WORD);
        let end = range.end.min(next - at + WORD);
        let piece = (word, at, next - start..end - start);
        next = end;
        Some(piece)
    })
}
