//! The part of the page pool that the slots of a node share, under the depot's lock.

use std::mem;

use super::keep::{Keep, Kept};
use super::magazine::{self, CARVE, FULL_MAX, Free, MAGAZINE, PageMagazine};
use super::region::{Bitmap, PAGES, Region};

/// Pages whose memory is being returned to the system, in no list.
pub(super) struct Taken {
    pub(super) region: Region,
    pub(super) pages: Bitmap,
    pub(super) was_huge: bool,
}

/// The state of a depot that has received pages.
#[derive(Clone, Copy, Default)]
pub(super) struct Fill {
    /// Whether memory should be returned to the system now.
    pub(super) is_over: bool,
    /// Whether memory is returned in time, if it is not used.
    pub(super) decays: bool,
}

/// Full magazines, and the regions in three lists. A region stores its index in each. All pages in
/// the magazines are of these regions.
pub(super) struct RegionDepot {
    /// At most [`FULL_MAX`] magazines, each with the slot that filled it.
    full: Vec<(usize, PageMagazine)>,
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
    keep: Keep,
}

impl RegionDepot {
    /// Creates an empty depot that keeps free memory as `keep` says.
    pub(super) fn new(keep: Keep) -> Self {
        Self {
            full: Vec::new(),
            empty: Vec::new(),
            open: Vec::new(),
            dirty: Vec::new(),
            whole: Vec::new(),
            dirty_pages: 0,
            regions: 0,
            keep,
        }
    }

    /// Returns how much free memory the depot keeps.
    pub(super) fn keep(&mut self) -> &mut Keep {
        &mut self.keep
    }

    /// Returns the number of free pages that the depot can return to the system and that are not
    /// of a huge page that is being handed out for the first time.
    pub(super) fn idle(&self) -> usize {
        self.full.len() * MAGAZINE + self.dirty_pages
    }

    /// Returns whether the free memory becomes less in time.
    pub(super) fn decays(&self) -> bool {
        self.keep.decays(self.idle())
    }

    /// Ends the window in which the use of memory was measured. Keeps nothing if the system is
    /// short of memory.
    pub(super) fn end_window(&mut self, is_short: bool) {
        self.keep.end_window(self.idle(), is_short);
    }

    /// Returns whether there is memory to return now.
    pub(super) fn has_excess(&self) -> bool {
        self.keep.excess(self.idle(), Kept::ByUse) > 0
    }

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
        self.idle() + fresh
    }

    /// Fills an empty magazine of a slot, with pages that have memory if there are any: the latest
    /// of that slot, which its CPU may still have in its caches, or else of another. It stays empty
    /// if there is no free page in any region.
    pub(super) fn take(&mut self, slot: usize, into: &mut PageMagazine) {
        let own = self.full.iter().rposition(|(from, _)| *from == slot);
        if let Some(place) = own.or(self.full.len().checked_sub(1)) {
            let (_, full) = self.full.remove(place);
            self.empty.push(mem::replace(into, full));
        } else {
            into.reserve_exact(MAGAZINE);
            while into.len() < CARVE {
                let Some(region) = self.dirty.last().or(self.open.last()) else { break };
                self.carve(*region, into);
            }
        }
        self.keep.note_fewer(self.idle());
    }

    /// Takes pages of one region for a magazine: those that have memory, if there are any.
    fn carve(&mut self, mut region: Region, into: &mut PageMagazine) {
        let header = region.header();
        let is_zero = header.dirty.is_empty();
        let pages = if is_zero { &header.free } else { &header.dirty };
        let taken = pages.first(CARVE - into.len());
        let count = taken.count();
        header.free.remove(&taken);
        header.dirty.remove(&taken);
        header.in_use += count;
        let before = into.len();
        into.extend(taken.indices().map(|index| Free { page: region.page(index), is_zero }));
        magazine::ascend(&mut into[before..]);
        self.dirty_pages -= if is_zero { 0 } else { count };
        self.relist(region);
    }

    /// Takes a full magazine of a slot, whose pages are all of this depot, and leaves an empty one.
    /// Takes nothing, and returns `None`, if there is no room for it.
    pub(super) fn exchange(&mut self, slot: usize, magazine: &mut PageMagazine) -> Option<Fill> {
        let has_room = self.full.len() < FULL_MAX && self.keep.has_room(self.idle());
        has_room.then(|| {
            let empty = self.empty.pop().unwrap_or_default();
            self.full.push((slot, mem::replace(magazine, empty)));
            self.fill()
        })
    }

    /// Returns the state after pages were received.
    pub(super) fn fill(&self) -> Fill {
        let is_over = self.keep.excess(self.idle(), Kept::Max) > 0;
        Fill { is_over, decays: self.decays() }
    }

    /// Puts all pages that are in magazines into their regions.
    pub(super) fn empty_magazines(&mut self) {
        self.empty = Vec::new();
        for (_, magazine) in mem::take(&mut self.full) {
            self.put(magazine.into_iter());
        }
    }

    /// Takes pages back into their regions, which are of this depot.
    pub(super) fn put(&mut self, pages: impl Iterator<Item = Free>) {
        let mut changed: Option<Region> = None;
        for free in pages {
            let (mut region, index) = Region::of(free.page);
            if let Some(before) = changed.replace(region)
                && before != region
            {
                self.relist(before);
            }
            let header = region.header();
            debug_assert!(!header.free.has(index), "a page was freed twice");
            header.free.set(index);
            header.in_use -= 1;
            if !free.is_zero {
                header.dirty.set(index);
                self.dirty_pages += 1;
            }
        }
        if let Some(region) = changed {
            self.relist(region);
        }
    }

    /// Enters a new region.
    pub(super) fn add(&mut self, region: Region) {
        self.regions += 1;
        self.relist(region);
    }

    /// Takes a region without pages in use, if there is more free memory than `kept`. The caller
    /// unmaps it.
    pub(super) fn take_whole(&mut self, kept: Kept) -> Option<Region> {
        if self.keep.excess(self.idle(), kept) == 0 {
            return None;
        }
        let mut region = *self.whole.last()?;
        let pages = region.header().dirty.count();
        self.forget(region);
        self.keep.note_returned(pages, self.idle());
        Some(region)
    }

    /// Takes all free pages with memory of a region out, if there is more free memory than `kept`.
    /// They count as in use until [`put_void`](Self::put_void).
    pub(super) fn take_dirty(&mut self, kept: Kept) -> Option<Taken> {
        if self.keep.excess(self.idle(), kept) == 0 {
            return None;
        }
        while self.dirty.is_empty() {
            let (_, magazine) = self.full.pop()?;
            self.put(magazine.into_iter());
        }
        let region = *self.dirty.first()?;
        let taken = self.take_resident(region);
        self.keep.note_returned(taken.pages.count(), self.idle());
        Some(taken)
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
