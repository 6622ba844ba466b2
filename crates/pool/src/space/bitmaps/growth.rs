//! The places by which a pool grows.
//!
//! The commit that says the new size also has the bitmap of the last zone, whose bits behind the
//! former end had no meaning. The zones behind it need none. Only when it is durable are places of
//! them handed out.

use std::collections::BTreeSet;

use super::{Maps, Space, budget_of};
use crate::Error;
use crate::disk::layout::Layout;

impl Space {
    /// Returns the bits by which the last zone becomes longer when the pool has `places`.
    fn added(&self, places: u64) -> (usize, Vec<u64>) {
        let former = self.disk.layout();
        let (layout, last) = (Layout { places, ..former }, former.zones() - 1);
        let (old, new) = (former.range(last), layout.range(last));
        let added = (old.end..new.end).filter(|place| layout.has(*place));
        (last, added.map(|place| place - new.start).collect())
    }

    /// Prepares the commit by which the pool gets `places`, more than it has. Returns the zones
    /// whose bitmaps are part of that.
    ///
    /// # Errors
    /// Errors of reading the bitmap of the last zone; nothing has changed then.
    pub(crate) fn begin_growth(&self, places: u64) -> Result<BTreeSet<usize>, Error> {
        let (last, added) = self.added(places);
        if let Some(maps) = self.loaded(last)?.as_mut() {
            added.iter().for_each(|at| maps.committed[*at as usize / 64] &= !(1 << (at % 64)));
        }
        Ok(self.copy(last).map(|_| last).into_iter().collect())
    }

    /// Hands out the places by which the pool has grown: the commit that says so is durable. No
    /// commit is under way.
    pub(crate) fn grow(&self, places: u64) {
        let (last, added) = self.added(places);
        let mut guard = self.zones.lock(last);
        if let Some(Maps { used, hollow, free, .. }) = guard.as_mut() {
            for at in &added {
                let (word, bit) = (*at as usize / 64, 1 << (at % 64));
                used[word] &= !bit;
                hollow[word] |= if self.is_thin { bit } else { 0 };
            }
            *free += added.len() as u64;
        }
        // With the lock: whoever loads the bitmaps of the zone next does so for the new size.
        self.disk.set_places(places);
        drop(guard);
        // A growth by a few places may be all for commits, or for bitmaps.
        let total = budget_of(&self.disk.layout()).max(self.budget.total());
        // More is not less than what is taken.
        let _ = self.budget.resize(total);
    }
}
