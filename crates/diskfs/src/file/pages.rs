//! The pages of one file in memory.

use std::collections::{BTreeMap, BTreeSet};

use vfscale_sync::atomic::{AtomicBool, Ordering};
use vfscale_sync::page::PageBox;

/// A page in memory.
///
/// A page that is neither dirty nor being written back is what is on the device: in its block, or in
/// the inode.
#[derive(Debug)]
pub(super) struct Cached {
    pub(super) page: PageBox,
    /// It has bytes that nobody has begun to write back.
    pub(super) is_dirty: bool,
    /// It is being written back.
    pub(super) is_writing: bool,
    /// It has a block.
    pub(super) is_mapped: bool,
    /// Space was set aside for its block.
    pub(super) is_reserved: bool,
    /// It was dirty at some time.
    pub(super) was_dirty: bool,
    /// It was used since the clock came by.
    pub(super) is_used: AtomicBool,
}

impl Cached {
    /// A page that is as on the device.
    pub(super) fn clean(page: PageBox, is_mapped: bool) -> Self {
        Self {
            page,
            is_dirty: false,
            is_writing: false,
            is_mapped,
            is_reserved: false,
            was_dirty: false,
            is_used: AtomicBool::new(false),
        }
    }

    pub(super) fn is_unstable(&self) -> bool {
        self.is_dirty || self.is_writing
    }

    pub(super) fn touch(&self) {
        // Most pages that are read are read again: then nothing is written.
        if !self.is_used.load(Ordering::Relaxed) {
            self.is_used.store(true, Ordering::Relaxed);
        }
    }
}

/// What was taken out.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Gone {
    pub(super) pages: u64,
    pub(super) unstable: u64,
    pub(super) reserved: u64,
}

/// The pages of a file that are in memory.
#[derive(Debug, Default)]
pub(super) struct Pages {
    pub(super) map: BTreeMap<u64, Cached>,
    /// Those that are dirty or being written back.
    pub(super) unstable: BTreeSet<u64>,
    /// How many pages were dropped that had been dirty.
    pub(super) dropped_written: u64,
    /// Where the clock goes on.
    hand: u64,
}

impl Pages {
    /// The first dirty page that is not before `index`.
    pub(super) fn next_dirty(&self, index: u64) -> Option<u64> {
        let mut unstable = self.unstable.range(index..);
        unstable.find(|index| self.map.get(index).is_some_and(|page| page.is_dirty)).copied()
    }

    /// How many dirty pages follow from `index` on without a gap, at most `most`.
    pub(super) fn dirty_run(&self, index: u64, most: u64) -> u64 {
        let run = self.map.range(index..index.saturating_add(most)).zip(index..);
        run.take_while(|((found, page), expected)| *found == expected && page.is_dirty).count()
            as u64
    }

    /// Marks a page that is there as dirty. True if it was stable.
    pub(super) fn mark_dirty(&mut self, index: u64) -> bool {
        let Some(page) = self.map.get_mut(&index) else { return false };
        (page.is_dirty, page.was_dirty) = (true, true);
        page.touch();
        self.unstable.insert(index)
    }

    /// Takes the pages `from` to `to` out.
    pub(super) fn remove(&mut self, from: u64, to: u64) -> Gone {
        let mut behind = self.map.split_off(&from);
        let mut rest = behind.split_off(&to);
        self.map.append(&mut rest);
        let mut gone = Gone { pages: behind.len() as u64, ..Gone::default() };
        for (index, page) in &behind {
            gone.unstable += u64::from(self.unstable.remove(index));
            gone.reserved += u64::from(page.is_reserved);
        }
        gone
    }

    /// Drops up to `want` clean pages that were not used lately, of the next `scan` ones.
    pub(super) fn evict(&mut self, want: u64, scan: usize) -> u64 {
        let (mut gone, mut looked) = (Vec::new(), 0);
        let mut hand = self.hand;
        for (index, page) in self.map.range(hand..).take(scan) {
            looked += 1;
            hand = index + 1;
            if !page.is_unstable() && !page.is_used.swap(false, Ordering::Relaxed) {
                gone.push(*index);
                if gone.len() as u64 == want {
                    break;
                }
            }
        }
        // At the end it begins again from the start.
        self.hand = if looked < scan && (gone.len() as u64) < want { 0 } else { hand };
        for index in &gone {
            if self.map.remove(index).is_some_and(|page| page.was_dirty) {
                self.dropped_written += 1;
            }
        }
        gone.len() as u64
    }
}
