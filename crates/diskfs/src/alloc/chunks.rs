//! Inodes of a group that can be had, in memory.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use super::search::{Reach, Search};
use super::zones::{UNKNOWN, Zones};
use crate::format::inode::chunk_of;

/// Inodes that can be had.
#[derive(Clone, Debug, Default)]
pub(super) struct Chunks {
    /// By the first block of a chunk, which of its inodes can be had; none without any. Of the
    /// zones that are loaded.
    masks: BTreeMap<u64, u64>,
    /// The summary of a zone that is not loaded says how many can be had there.
    pub(super) zones: Zones,
    /// How many can be had, in all zones.
    pub(super) inodes: u64,
    /// Inodes that are free in the tree and can't be had, by chunk: a transaction under way has
    /// claimed them. They are few.
    claimed: SmallVec<[(u64, u64); 4]>,
    /// Where the next zone to be dropped is looked for.
    hand: u64,
}

fn count(mask: u64) -> u64 {
    mask.count_ones().into()
}

impl Chunks {
    /// Makes those of a group with these zones, none of which is loaded.
    pub(super) fn new(zones: Zones) -> Self {
        Self { zones, ..Self::default() }
    }

    /// Returns how many chunks are in memory.
    pub(super) fn len(&self) -> usize {
        self.masks.len()
    }

    /// Takes an inode, of the chunk that the block `near` is in or of one not far away: the chunk's
    /// first block, and which of its inodes.
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

    /// Returns which inodes of a chunk are claimed.
    fn claimed(&self, chunk: u64) -> u64 {
        self.claimed.iter().find(|(other, _)| *other == chunk).map_or(0, |(_, mask)| *mask)
    }

    /// Takes these inodes of a chunk for claimed no more, and not free in the tree.
    pub(super) fn forget(&mut self, chunk: u64, inodes: u64) {
        let Some(at) = self.claimed.iter().position(|(other, _)| *other == chunk) else { return };
        self.claimed[at].1 &= !inodes;
        if self.claimed[at].1 == 0 {
            self.claimed.swap_remove(at);
        }
    }

    /// Lets these inodes of a chunk be had again, which were claimed.
    pub(super) fn unclaim(&mut self, chunk: u64, inodes: u64) {
        self.forget(chunk, inodes);
        self.add(chunk, inodes);
    }

    /// Lets these inodes of a chunk be had, which could not be.
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

    /// Sets how many inodes of a zone that is not loaded can be had, if it was known `before`.
    fn set_known(&mut self, zone: usize, before: u16, now: u64) {
        if before != UNKNOWN {
            // A zone has fewer.
            self.zones.set_summary(zone, now.min(u64::from(UNKNOWN) - 1) as u16);
        }
    }

    /// Claims all inodes of a chunk that can be had, if these and those in `also` are all it has.
    /// Those in `also` can't be had; the others are free in the tree.
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

    /// Loads the zones from `zone` up to `end`, where these inodes are free in the tree, by chunk.
    /// False if that does not go with what was counted.
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

    /// Drops a zone that was not touched since the last round. False at the end of a round.
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

    /// Drops all zones, as if nothing had ever been known of them.
    pub(super) fn unload(&mut self) {
        self.masks.clear();
        self.zones.reset();
    }

    /// Returns which inodes of each chunk can be had, of the zones that are loaded.
    #[cfg(test)]
    pub(super) fn masks(&self) -> &BTreeMap<u64, u64> {
        &self.masks
    }
}
