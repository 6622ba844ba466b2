//! A set of blocks: one bit per block, and less for pages that are full or empty.

use std::ops::Range;

const WORDS: usize = 512;
/// Number of blocks in a page.
const PAGE: u64 = WORDS as u64 * 64;

#[derive(Clone)]
enum Page {
    Empty,
    Full,
    Some(Box<[u64; WORDS]>),
}

/// A set of blocks of a volume. Takes 512 bytes for each 4096 blocks in areas that are partly in
/// the set.
pub(crate) struct BlockSet {
    pages: Vec<Page>,
    blocks: u64,
}

impl BlockSet {
    /// Creates an empty set for a volume of `blocks` blocks.
    pub(crate) fn new(blocks: u64) -> Self {
        let pages = vec![Page::Empty; blocks.div_ceil(PAGE) as usize];
        Self { pages, blocks }
    }

    /// Adds the blocks of a run that are in the volume. Calls `twice` with each run of blocks that
    /// were already in the set.
    pub(crate) fn insert(&mut self, run: Range<u64>, twice: impl FnMut(Range<u64>)) {
        let mut runs = Runs::new(twice);
        for (number, part) in pages(run.start..run.end.min(self.blocks)) {
            let Some(page) = self.pages.get_mut(number) else { break };
            let start = number as u64 * PAGE;
            match page {
                Page::Full => runs.add(part),
                Page::Empty if part == (start..start + PAGE) => *page = Page::Full,
                Page::Empty | Page::Some(_) => page.insert(start, part, &mut runs),
            }
        }
        runs.end();
    }

    /// Calls `each` with every run of blocks in `run` that are not in the set.
    pub(crate) fn absent(&self, run: Range<u64>, each: impl FnMut(Range<u64>)) {
        let mut runs = Runs::new(each);
        for (number, part) in pages(run.start..run.end.min(self.blocks)) {
            let start = number as u64 * PAGE;
            match self.pages.get(number) {
                None => break,
                Some(Page::Full) => {}
                Some(Page::Empty) => runs.add(part),
                Some(Page::Some(words)) => {
                    for (word, mask) in masks(part.start - start..part.end - start) {
                        runs.bits(start + word as u64 * 64, !words[word] & mask);
                    }
                }
            }
        }
        runs.end();
    }
}

impl Page {
    /// Adds `part` to a page that begins at `start` and is not full.
    fn insert(&mut self, start: u64, part: Range<u64>, runs: &mut Runs<impl FnMut(Range<u64>)>) {
        if let Self::Empty = self {
            *self = Self::Some(Box::new([0; WORDS]));
        }
        let Self::Some(words) = self else { return };
        for (word, mask) in masks(part.start - start..part.end - start) {
            runs.bits(start + word as u64 * 64, words[word] & mask);
            words[word] |= mask;
        }
        if words.iter().all(|word| *word == u64::MAX) {
            *self = Self::Full;
        }
    }
}

/// Returns the pages that a run overlaps, and the part of the run in each.
fn pages(run: Range<u64>) -> impl Iterator<Item = (usize, Range<u64>)> {
    let numbers = if run.is_empty() { 0..0 } else { run.start / PAGE..run.end.div_ceil(PAGE) };
    numbers.map(move |number| {
        let start = number * PAGE;
        (number as usize, run.start.max(start)..run.end.min(start + PAGE))
    })
}

/// Returns the words of a page that a run of its bits overlaps, and the mask of bits in each.
fn masks(bits: Range<u64>) -> impl Iterator<Item = (usize, u64)> {
    (bits.start / 64..bits.end.div_ceil(64)).map(move |word| {
        let (from, to) = (bits.start.max(word * 64), bits.end.min(word * 64 + 64));
        (word as usize, u64::MAX >> (64 - (to - from)) << (from - word * 64))
    })
}

/// Builder that merges adjacent blocks into runs.
struct Runs<F: FnMut(Range<u64>)> {
    open: Range<u64>,
    each: F,
}

impl<F: FnMut(Range<u64>)> Runs<F> {
    fn new(each: F) -> Self {
        Self { open: 0..0, each }
    }

    fn add(&mut self, run: Range<u64>) {
        if run.start != self.open.end || self.open.is_empty() {
            self.end();
            self.open = run;
        } else {
            self.open.end = run.end;
        }
    }

    /// Adds the blocks of the bits that are set; the lowest bit is block `start`.
    fn bits(&mut self, start: u64, mut bits: u64) {
        while bits != 0 {
            let first = u64::from(bits.trailing_zeros());
            let count = u64::from((!(bits >> first)).trailing_zeros());
            self.add(start + first..start + first + count);
            let behind = first + count;
            bits = if behind < 64 { bits >> behind << behind } else { 0 };
        }
    }

    fn end(&mut self) {
        let open = std::mem::take(&mut self.open);
        if !open.is_empty() {
            (self.each)(open);
        }
    }
}

#[cfg(test)]
mod tests;
