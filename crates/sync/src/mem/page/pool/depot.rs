//! The part of the page pool that all slots share, under the depot's lock.

use std::mem;

use super::magazine::{CARVE, DIRTY_MAX, FULL_MAX, Free, MAGAZINE, PageMagazine, WHOLE_MAX};
use super::region::{Bitmap, PAGES, Region};

/// Pages whose memory is being returned to the system, in no list.
pub(super) struct Taken {
    pub(super) region: Region,
    pub(super) pages: Bitmap,
    pub(super) was_huge: bool,
}

/// Full magazines, and the regions in three lists. A region stores its index in each.
#[derive(Default)]
pub(super) struct RegionDepot {
    full: Vec<PageMagazine>,
    /// Vectors that can become magazines.
    empty: Vec<PageMagazine>,
    /// Regions with free pages.
    open: Vec<Region>,
    /// Regions with dirty free pages.
    dirty: Vec<Region>,
    /// Regions without pages in use, some of them dirty.
    whole: Vec<Region>,
    /// Number of dirty free pages in all regions.
    dirty_pages: usize,
    regions: usize,
}

impl RegionDepot {
    /// Returns the number of regions.
    pub(super) fn regions(&self) -> usize {
        self.regions
    }

    /// Returns the number of free pages that have memory.
    pub(super) fn idle_pages(&self) -> usize {
        let fresh = |region: &Region| {
            let mut region = *region;
            let header = region.header();
            if header.is_huge { header.free.count() - header.dirty.count() } else { 0 }
        };
        let fresh: usize = self.open.iter().map(fresh).sum();
        self.full.iter().map(Vec::len).sum::<usize>() + self.dirty_pages + fresh
    }

    /// Fills an empty magazine, with pages that have memory if there are any. It stays empty if
    /// there is no free page in any region.
    pub(super) fn take(&mut self, into: &mut PageMagazine) {
        if let Some(full) = self.full.pop() {
            self.empty.push(mem::replace(into, full));
            return;
        }
        into.reserve_exact(MAGAZINE);
        while into.len() < CARVE {
            let Some(region) = self.dirty.last().or(self.open.last()) else { break };
            let mut region = *region;
            let header = region.header();
            let is_zero = header.dirty.is_empty();
            let pages = if is_zero { &header.free } else { &header.dirty };
            let Some(index) = pages.first() else { break };
            header.free.clear(index);
            header.dirty.clear(index);
            header.in_use += 1;
            into.push(Free { page: region.page(index), is_zero });
            self.dirty_pages -= usize::from(!is_zero);
            self.relist(region);
        }
    }

    /// Takes a full magazine and leaves an empty one. Returns true if memory should be returned
    /// now.
    pub(super) fn exchange(&mut self, magazine: &mut PageMagazine) -> bool {
        if self.full.len() < FULL_MAX {
            let empty = self.empty.pop().unwrap_or_default();
            self.full.push(mem::replace(magazine, empty));
            return false;
        }
        self.put(magazine.drain(..));
        self.dirty_pages > DIRTY_MAX || (self.dirty_pages > WHOLE_MAX && !self.whole.is_empty())
    }

    /// Puts all pages that are in magazines into their regions.
    pub(super) fn empty_magazines(&mut self) {
        self.empty = Vec::new();
        for magazine in mem::take(&mut self.full) {
            self.put(magazine.into_iter());
        }
    }

    /// Takes pages back into their regions.
    pub(super) fn put(&mut self, pages: impl Iterator<Item = Free>) {
        for free in pages {
            let (mut region, index) = Region::of(free.page);
            let header = region.header();
            debug_assert!(!header.free.has(index), "a page was freed twice");
            header.free.set(index);
            header.in_use -= 1;
            if !free.is_zero {
                header.dirty.set(index);
                self.dirty_pages += 1;
            }
            self.relist(region);
        }
    }

    /// Enters a new region.
    pub(super) fn add(&mut self, region: Region) {
        self.regions += 1;
        self.relist(region);
    }

    /// Takes a region without pages in use, if more than `keep` pages are dirty in all. The caller
    /// unmaps it.
    pub(super) fn take_whole(&mut self, keep: usize) -> Option<Region> {
        if self.dirty_pages <= keep {
            return None;
        }
        let region = *self.whole.last()?;
        self.forget(region);
        Some(region)
    }

    /// Takes all free pages with memory of a region out, if more than `keep` pages are dirty in
    /// all. They count as in use until [`put_void`](Self::put_void).
    pub(super) fn take_dirty(&mut self, keep: usize) -> Option<Taken> {
        if self.dirty_pages <= keep {
            return None;
        }
        let region = *self.dirty.first()?;
        Some(self.take_resident(region))
    }

    /// Takes pages like [`take_dirty`](Self::take_dirty), from a region that has huge pages.
    pub(super) fn take_fresh(&mut self) -> Option<Taken> {
        let is_huge = |region: &&Region| {
            let mut region = **region;
            region.header().is_huge
        };
        let region = *self.open.iter().find(is_huge)?;
        Some(self.take_resident(region))
    }

    fn take_resident(&mut self, mut region: Region) -> Taken {
        let header = region.header();
        self.dirty_pages -= header.dirty.count();
        let dirty = mem::take(&mut header.dirty);
        let was_huge = mem::take(&mut header.is_huge);
        let pages = if was_huge { header.free.clone() } else { dirty };
        header.free.remove(&pages);
        header.in_use += pages.count();
        self.relist(region);
        Taken { region, pages, was_huge }
    }

    /// Puts pages back that have no memory any more. Returns the region if none of its pages is in
    /// use, for the caller to unmap.
    pub(super) fn put_void(&mut self, taken: Taken) -> Option<Region> {
        let Taken { mut region, pages, .. } = taken;
        let header = region.header();
        header.free.add(&pages);
        header.in_use -= pages.count();
        if header.in_use == 0 && header.dirty.is_empty() {
            self.forget(region);
            return Some(region);
        }
        self.relist(region);
        None
    }

    /// Takes a region out of all lists.
    fn forget(&mut self, mut region: Region) {
        let header = region.header();
        debug_assert!(header.in_use == 0 && header.free.count() == PAGES - 1);
        self.dirty_pages -= header.dirty.count();
        header.free = Bitmap::default();
        header.dirty = Bitmap::default();
        self.regions -= 1;
        self.relist(region);
    }

    /// Enters a region in the lists that it belongs in, and removes it from the others.
    fn relist(&mut self, mut region: Region) {
        let header = region.header();
        let (is_open, is_dirty) = (!header.free.is_empty(), !header.dirty.is_empty());
        let is_whole = is_dirty && header.in_use == 0;
        relist(&mut self.open, region, is_open, |region| &mut region.header().open_at);
        relist(&mut self.dirty, region, is_dirty, |region| &mut region.header().dirty_at);
        relist(&mut self.whole, region, is_whole, |region| &mut region.header().whole_at);
    }
}

/// Enters `region` in `list` or removes it, and updates its index in the list, which `place`
/// selects.
fn relist(
    list: &mut Vec<Region>,
    mut region: Region,
    belongs: bool,
    place: impl Fn(&mut Region) -> &mut Option<usize>,
) {
    match (*place(&mut region), belongs) {
        (None, true) => {
            *place(&mut region) = Some(list.len());
            list.push(region);
        }
        (Some(at), false) => {
            *place(&mut region) = None;
            list.swap_remove(at);
            if let Some(moved) = list.get_mut(at) {
                *place(moved) = Some(at);
            }
        }
        _ => {}
    }
}
