//! The available inodes of a group, in memory.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use super::search::{Reach, Search};
use super::zones::{UNKNOWN, Zones};
use crate::format::inode::chunk_of;

/// The available inodes of a group.
#[derive(Clone, Debug, Default)]
pub(super) struct Chunks {
    /// By the first block of a chunk, the mask of its available inodes, never 0. Covers loaded
    /// zones only.
    masks: BTreeMap<u64, u64>,
    /// The zones; the summary of a zone that is not loaded is the number of its available inodes.
    pub(super) zones: Zones,
    /// Number of available inodes, in all zones.
    pub(super) inodes: u64,
    /// Inodes that are free in the tree but claimed by a transaction under way: the chunk, and a
    /// mask. Few.
    claimed: SmallVec<[(u64, u64); 4]>,
    /// Block from which the next zone to be dropped is searched.
    hand: u64,
}

fn count(mask: u64) -> u64 {
    mask.count_ones().into()
}

impl Chunks {
    /// Creates the inodes of a group with these zones, none of which is loaded.
    pub(super) fn new(zones: Zones) -> Self {
        Self { zones, ..Self::default() }
    }

    /// Returns the number of chunks in memory.
    pub(super) fn len(&self) -> usize {
        self.masks.len()
    }

    /// Takes an inode from the chunk that the block `near` is in, or from one not far away. Returns
    /// the chunk's first block, and the inode's index in it.
    pub(super) fn claim(&mut self, near: u64, reach: Reach) -> Search<(u64, u32)> {
        let here = chunk_of(near);
        let zone = self.zones.of(here);
        let may_load = reach != Reach::Loaded;
        if may_load && self.zones.summary(zone).is_some_and(|known| known != 0) {
            return Search::Load(zone);
        }
        let behind = self.masks.range_mut(here..).next();
        let Some((&chunk, mask)) = (match behind {
            None => self.masks.range_mut(..here).next_back(),
            behind => behind,
        }) else {
            let found = if may_load { self.zones.find(zone, |known| known != 0) } else { None };
            return found.map_or(Search::Nothing, Search::Load);
        };
        let bit = mask.trailing_zeros();
        *mask &= !(1 << bit);
        if *mask == 0 {
            self.masks.remove(&chunk);
        }
        self.inodes = self.inodes.saturating_sub(1);
        self.zones.touch(self.zones.of(chunk));
        self.add_claimed(chunk, 1 << bit);
        Search::Taken((chunk, bit))
    }

    fn add_claimed(&mut self, chunk: u64, inodes: u64) {
        match self.claimed.iter_mut().find(|(other, _)| *other == chunk) {
            Some((_, mask)) => *mask |= inodes,
            None => self.claimed.push((chunk, inodes)),
        }
    }

    /// Returns the mask of claimed inodes of a chunk.
    fn claimed(&self, chunk: u64) -> u64 {
        self.claimed.iter().find(|(other, _)| *other == chunk).map_or(0, |(_, mask)| *mask)
    }

    /// Removes inodes of a chunk from the claimed ones, without making them available.
    pub(super) fn forget(&mut self, chunk: u64, inodes: u64) {
        let Some(at) = self.claimed.iter().position(|(other, _)| *other == chunk) else { return };
        self.claimed[at].1 &= !inodes;
        if self.claimed[at].1 == 0 {
            self.claimed.swap_remove(at);
        }
    }

    /// Makes claimed inodes of a chunk available again.
    pub(super) fn unclaim(&mut self, chunk: u64, inodes: u64) {
        self.forget(chunk, inodes);
        self.add(chunk, inodes);
    }

    /// Makes inodes of a chunk available.
    pub(super) fn add(&mut self, chunk: u64, inodes: u64) {
        if inodes == 0 {
            return;
        }
        self.inodes += count(inodes);
        let zone = self.zones.of(chunk);
        match self.zones.summary(zone) {
            None => {
                *self.masks.entry(chunk).or_default() |= inodes;
                self.zones.touch(zone);
            }
            Some(known) => self.set_known(zone, known, u64::from(known) + count(inodes)),
        }
    }

    /// Sets the number of available inodes of a zone that is not loaded, if it was known `before`.
    fn set_known(&mut self, zone: usize, before: u16, now: u64) {
        if before != UNKNOWN {
            // A zone has fewer inodes than that.
            self.zones.set_summary(zone, now.min(u64::from(UNKNOWN) - 1) as u16);
        }
    }

    /// Claims all available inodes of a chunk, if these and those in `also` are all of its inodes.
    /// Inodes in `also` are not available; the others are free in the tree.
    pub(super) fn claim_whole(&mut self, chunk: u64, also: u64) -> Option<u64> {
        let zone = self.zones.of(chunk);
        let free = match self.zones.summary(zone) {
            None => self.masks.get(&chunk).copied().unwrap_or(0),
            Some(_) => !also & !self.claimed(chunk),
        };
        if free | also != u64::MAX {
            return None;
        }
        match self.zones.summary(zone) {
            None => _ = self.masks.remove(&chunk),
            Some(known) => {
                self.set_known(zone, known, u64::from(known).saturating_sub(count(free)));
            }
        }
        self.inodes = self.inodes.saturating_sub(count(free));
        if free != 0 {
            self.add_claimed(chunk, free);
        }
        Some(free)
    }

    /// Loads the zones from `zone` up to `end`; `chunks` lists the inodes that are free in the
    /// tree. Returns false if the counters disagree.
    pub(super) fn load(&mut self, zone: usize, end: usize, chunks: &[(u64, u64)]) -> bool {
        let range = self.zones.first(zone)..self.zones.first(end);
        for &(chunk, free) in chunks {
            let free = free & !self.claimed(chunk);
            if range.contains(&chunk) && free != 0 {
                self.masks.insert(chunk, free);
            }
        }
        (zone..end).for_each(|zone| self.zones.load(zone));
        !self.zones.is_whole()
            || self.masks.values().map(|mask| count(*mask)).sum::<u64>() == self.inodes
    }

    /// Drops a zone that was not touched since the last round. Returns false at the end of a round.
    pub(super) fn drop_zone(&mut self) -> bool {
        let Some((&chunk, _)) = self.masks.range(self.hand..).next() else {
            self.hand = 0;
            return false;
        };
        let zone = self.zones.of(chunk);
        let (first, end) = (self.zones.first(zone), self.zones.first(zone + 1));
        self.hand = end;
        if self.zones.was_touched(zone) {
            return true;
        }
        let mut had = 0;
        while let Some((&chunk, &mask)) = self.masks.range(first..end).next() {
            self.masks.remove(&chunk);
            had += count(mask);
        }
        self.zones.drop(zone, 0);
        self.set_known(zone, 0, had);
        true
    }

    /// Drops all zones and their summaries.
    pub(super) fn unload(&mut self) {
        self.masks.clear();
        self.zones.reset();
    }

    /// Returns the masks of available inodes of the chunks in loaded zones.
    #[cfg(test)]
    pub(super) fn masks(&self) -> &BTreeMap<u64, u64> {
        &self.masks
    }
}
