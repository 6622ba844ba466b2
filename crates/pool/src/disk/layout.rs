//! Where a pool has its zones and bitmaps, and which places it never hands out.
//!
//! A pool that was made on an empty device begins at place 0. One that a volume has become begins
//! behind the volume, at *first*. The places before it have the volume's blocks, each the block
//! with its own number: an entry may stand for a *row* of them. They are handed out again when no
//! branch has them any more, so they have zones too. In memory these are counted first, since the
//! others become more when the pool grows. Such a zone has no bitmap before a place of it becomes
//! free; until then all of it is in use.

use std::ops::Range;

use crate::disk::format::{Entry, HEAD_PLACES, ZONE_PLACES, ZONES_MAX};

/// Fewest places of a pool, or of the part behind a volume: half a mebibyte.
pub(crate) const PLACES_MIN: u64 = 128;

/// The division of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// The place where the pool begins: 0, or the size of the volume that it was.
    pub(crate) first: u64,
    /// Where that volume had the copies of its superblock: there, and at twice that place. 0 if
    /// there was none.
    pub(crate) group: u64,
    /// The size of the pool, with the volume.
    pub(crate) places: u64,
}

impl Layout {
    /// Returns the layout of a pool on a device of its own.
    pub(crate) fn whole(places: u64) -> Self {
        Self { first: 0, group: 0, places }
    }

    /// Returns whether a pool can have this layout.
    pub(crate) fn is_valid(&self) -> bool {
        let (first, group) = (self.first, self.group);
        let has_places = (first == 0) == (group == 0)
            && (first == 0 || group.is_power_of_two() && group <= 1 << 26 && 2 * group < first)
            && first <= 1 << 32
            && self.places <= 1 << 35;
        has_places
            && self.places >= first + PLACES_MIN + 2 * self.former_zones()
            && self.new_zones() + 2 * self.former_zones() <= ZONES_MAX
    }

    /// Returns the number of zones from `first` on.
    pub(crate) fn new_zones(&self) -> u64 {
        (self.places - self.first).div_ceil(ZONE_PLACES)
    }

    /// Returns the number of zones of the volume that the pool was.
    pub(crate) fn former_zones(&self) -> u64 {
        self.first.div_ceil(ZONE_PLACES)
    }

    /// Returns the number of all zones. The former ones are the first.
    pub(crate) fn zones(&self) -> usize {
        (self.new_zones() + self.former_zones()) as usize
    }

    /// Returns the number of a zone among the former ones.
    pub(crate) fn former(&self, zone: usize) -> Option<u64> {
        Some(zone as u64).filter(|zone| *zone < self.former_zones())
    }

    /// Returns the number of a zone among those from `first` on.
    pub(crate) fn new_zone(&self, zone: usize) -> u64 {
        zone as u64 - self.former_zones()
    }

    /// Returns the most places that the pool may have.
    pub(crate) fn places_max(&self) -> u64 {
        self.first + ZONES_MAX.saturating_sub(2 * self.former_zones()) * ZONE_PLACES
    }

    /// Returns the zone of a place, and its position there.
    pub(crate) fn locate(&self, place: u64) -> (usize, u64) {
        let (zone, at) = match place.checked_sub(self.first) {
            Some(place) => (self.former_zones() + place / ZONE_PLACES, place % ZONE_PLACES),
            None => (place / ZONE_PLACES, place % ZONE_PLACES),
        };
        (zone as usize, at)
    }

    /// Returns the places of a zone.
    pub(crate) fn range(&self, zone: usize) -> Range<u64> {
        let (start, end) = match self.former(zone) {
            None => (self.first + self.new_zone(zone) * ZONE_PLACES, self.places),
            Some(former) => (former * ZONE_PLACES, self.first),
        };
        start..end.min(start + ZONE_PLACES)
    }

    /// Returns the place of bitmap `copy` of a zone.
    pub(crate) fn bitmap(&self, zone: usize, copy: bool) -> u64 {
        let place = match self.former(zone) {
            None => self.new_zone(zone) * ZONE_PLACES + 1,
            Some(former) => HEAD_PLACES + 2 * former,
        };
        self.first + place + u64::from(copy)
    }

    /// Returns the places of the two superblocks.
    pub(crate) fn superblocks(&self) -> [u64; 2] {
        [self.first + 8, self.first + 16]
    }

    /// Returns the place of the copy of the first block.
    pub(crate) fn copy_of_lead(&self) -> u64 {
        self.first + 24
    }

    /// Returns the place of the copy of a superblock.
    pub(crate) fn copy_of_superblock(&self, place: u64) -> u64 {
        place + 4
    }

    /// Returns whether a place is never handed out: the head of the pool, the bitmaps of zones, and
    /// the addresses at which programs look for copies of the superblock of a volume.
    pub(crate) fn is_fixed(&self, place: u64) -> bool {
        let Some(own) = place.checked_sub(self.first) else { return self.is_lead(place) };
        let looks_like_copy = place.is_power_of_two() && (1 << 10..=1 << 27).contains(&place);
        let head = HEAD_PLACES + 2 * self.former_zones();
        own < head || own % ZONE_PLACES < 3 || looks_like_copy
    }

    /// Returns whether a place had the volume's superblock or a copy of it.
    fn is_lead(&self, place: u64) -> bool {
        place == 0 || place == self.group || place == 2 * self.group
    }

    /// Returns whether the pool has a place, and may hand it out.
    pub(crate) fn has(&self, place: u64) -> bool {
        place < self.places && !self.is_fixed(place)
    }

    /// Returns how many places are never handed out.
    pub(crate) fn fixed(&self) -> u64 {
        let head = HEAD_PLACES + 2 * self.former_zones();
        let heads = (1..self.new_zones()).map(|zone| {
            let range = self.range((self.former_zones() + zone) as usize);
            (range.end - range.start).min(3)
        });
        let copies = (10..=27).map(|bit| 1 << bit).filter(|place| *place < self.places);
        let is_other = |place: &u64| match place.checked_sub(self.first) {
            Some(own) => own >= head && own % ZONE_PLACES >= 3,
            None => false,
        };
        let leads = if self.first == 0 { 0 } else { 3 };
        head + heads.sum::<u64>() + copies.filter(is_other).count() as u64 + leads
    }

    /// Returns what is wrong with an entry that was read, for a reader at depth `depth`. It is none
    /// of a row.
    pub(crate) fn complaint(&self, entry: Entry, depth: u32) -> Option<&'static str> {
        if entry.is_none() {
            None
        } else if entry.is_row() {
            Some("an entry for a row of blocks where there can be none")
        } else if !self.has(entry.place()) {
            Some("an entry leads out of the pool, or to a place that is never handed out")
        } else if entry.birth() == 0 || entry.birth() > depth {
            Some("an entry was born later than its reader")
        } else {
            None
        }
    }

    /// Returns what is wrong with an entry of the tree of the branch table.
    pub(crate) fn complaint_of_table(&self, entry: Entry) -> Option<&'static str> {
        let is_outside = entry.is_twice() && !self.has(entry.place() + 1);
        self.complaint(entry, 2).or(is_outside.then_some("a copy is not in the pool"))
    }

    /// Returns what is wrong with a row of blocks, each of which has the place with its own number.
    pub(crate) fn complaint_of_row(&self, row: Range<u64>) -> Option<&'static str> {
        let has_lead = [0, self.group, 2 * self.group].iter().any(|lead| row.contains(lead));
        let is_inside = row.start < self.first;
        (!is_inside || has_lead).then_some("a row of blocks that the volume did not have")
    }
}

#[cfg(test)]
mod tests;
