//! Which places are free.
//!
//! # Purpose
//!
//! Each zone has two bitmaps in memory. *Committed*: the places that the last commit refers to,
//! which is what the device has. *Used*: those, and the ones that were handed out since. A place
//! that is given up stays in both until a commit without it is durable and its readers have gone.
//!
//! # Invariants
//!
//! * A place is handed out only if it is in neither bitmap.
//! * [`Space::budget`] counts the free places less a reserve for commits, so whoever has taken from
//!   it finds a place.
//! * Bitmaps are changed only by commits, and written to the copy that is not valid.
//!
//! # Locks
//!
//! `PoolZone` guards one zone. A [`Lease`] tells a branch where it took its last place: branches
//! prefer zones that no other branch prefers, so siblings take no common lock in a pool with as
//! many zones.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use vfscale_sync::percpu::Budget;
use vfscale_sync::{Mutex, MutexGuard};

use crate::Error;
use crate::disk::Disk;
use crate::format::{self, BITMAP, BitmapBlock, Bytes, ZONE_PLACES, bitmap_place, is_fixed};

vfscale_sync::lock_class! {
    /// The free places of one zone.
    pub(crate) PoolZone = ("pool_zone", 64070) sleeping;
}

const WORDS: usize = ZONE_PLACES as usize / 64;

/// The bitmaps of a zone.
struct Maps {
    committed: Box<[u64; WORDS]>,
    used: Box<[u64; WORDS]>,
    free: u64,
}

struct Zone {
    /// `None` before the zone is needed.
    maps: Option<Maps>,
    /// Whether it has a bitmap on the device, and which.
    copy: Option<bool>,
}

/// Where a branch takes places.
#[derive(Debug, Default)]
pub(crate) struct Lease {
    zone: Option<usize>,
    cursor: u64,
}

/// The places of a pool.
pub(crate) struct Space {
    disk: Disk,
    zones: Box<[Mutex<Zone, PoolZone>]>,
    /// How many leases prefer each zone.
    lessees: Box<[AtomicU32]>,
    /// Zones from this one on have no bitmap on the device.
    made: AtomicU64,
    /// Free places less the reserve, in units of one place.
    pub(crate) budget: Budget,
}

/// Pays for places: from the budget of a pool, or first from what was taken from it before.
#[derive(Debug)]
pub(crate) struct Purse<'s> {
    budget: &'s Budget,
    left: Cell<u64>,
}

impl<'s> Purse<'s> {
    /// Makes a purse that has `left` places, which are taken from the budget already.
    pub(crate) fn new(budget: &'s Budget, left: u64) -> Self {
        Self { budget, left: Cell::new(left) }
    }

    /// Pays for `count` places. Returns false, and pays nothing, if there are fewer.
    pub(crate) fn take(&self, count: u64) -> bool {
        let Some(left) = self.left.get().checked_sub(count) else {
            return self.budget.take(count);
        };
        self.left.set(left);
        true
    }

    /// Gives back what was paid.
    pub(crate) fn give(&self, count: u64) {
        self.left.set(self.left.get() + count);
    }
}

impl Drop for Purse<'_> {
    fn drop(&mut self) {
        self.budget.give(self.left.get());
    }
}

/// How many places a commit may need that nobody has taken from the budget.
pub(crate) fn reserve(places: u64) -> u64 {
    (places / 50).clamp(12, 4096)
}

/// Returns how many places of a pool are never handed out.
pub(crate) fn fixed(places: u64) -> u64 {
    let zones = places.div_ceil(ZONE_PLACES);
    let heads = (1..zones).map(|zone| (places - zone * ZONE_PLACES).min(3)).sum::<u64>();
    let copies = (10..=27).map(|bit| 1 << bit).filter(|place| *place < places);
    format::HEAD_PLACES + heads + copies.filter(|place| place % ZONE_PLACES >= 3).count() as u64
}

impl Space {
    /// Makes the space of a pool whose superblock has `copies` and `made`. Nothing is taken from
    /// the budget yet.
    pub(crate) fn new(disk: &Disk, copies: &[u8], made: u64, slots: usize) -> Self {
        let zones = disk.places.div_ceil(ZONE_PLACES);
        let copy = |zone: u64| {
            let bit = copies[zone as usize / 8] >> (zone % 8) & 1 != 0;
            (zone < made).then_some(bit)
        };
        let zone = |zone| Mutex::new(Zone { maps: None, copy: copy(zone) });
        let total = disk.places.saturating_sub(fixed(disk.places) + reserve(disk.places));
        let budget = Budget::new(total, slots);
        let lessees = (0..zones).map(|_| AtomicU32::new(0)).collect();
        let zones = (0..zones).map(zone).collect();
        Self { disk: disk.clone(), zones, lessees, made: made.into(), budget }
    }

    /// Locks a zone whose bitmaps are in memory.
    fn loaded(&self, zone: usize) -> Result<MutexGuard<'_, Zone, PoolZone>, Error> {
        let mut guard = self.zones[zone].lock();
        if guard.maps.is_none() {
            guard.maps = Some(self.load(zone as u64, guard.copy)?);
        }
        Ok(guard)
    }

    fn load(&self, zone: u64, copy: Option<bool>) -> Result<Maps, Error> {
        let mut words = Box::new([0_u64; WORDS]);
        let start = zone * ZONE_PLACES;
        if let Some(copy) = copy {
            let place = bitmap_place(zone, copy);
            let block: BitmapBlock = self.disk.read(BITMAP, place)?;
            if block.header.number.get() != zone {
                return Err(Error::Damage { place, what: "the bitmap of another zone" });
            }
            for (word, disk) in words.iter_mut().zip(&block.words) {
                *word = disk.get();
            }
        }
        for at in 0..ZONE_PLACES {
            if is_fixed(start + at) || start + at >= self.disk.places {
                words[at as usize / 64] |= 1 << (at % 64);
            }
        }
        let free = words.iter().map(|word| u64::from(word.count_zeros())).sum();
        Ok(Maps { committed: words.clone(), used: words, free })
    }

    /// Takes up to `most` consecutive places, at least `least`. The caller has taken as many from
    /// the budget as it may keep, and gives back the rest; or takes from the reserve.
    ///
    /// # Errors
    /// [`Error::Full`] if no zone has `least` consecutive places.
    pub(crate) fn take(
        &self,
        lease: &mut Lease,
        least: u64,
        most: u64,
    ) -> Result<(u64, u64), Error> {
        let count = self.zones.len();
        if let Some(zone) = lease.zone
            && let Some(found) = self.take_in(zone, lease, least, most)?
        {
            return Ok(found);
        }
        let first = lease.zone.map_or(0, |zone| zone + 1);
        // First zones that nobody prefers, then any.
        for shared in [false, true] {
            for zone in (first..first + count).map(|zone| zone % count) {
                if !shared && self.lessees[zone].load(Ordering::Relaxed) > 0 {
                    continue;
                }
                let mut next = Lease { zone: Some(zone), cursor: 0 };
                if let Some(found) = self.take_in(zone, &mut next, least, most)? {
                    self.lessees[zone].fetch_add(1, Ordering::Relaxed);
                    self.end(lease);
                    *lease = next;
                    return Ok(found);
                }
            }
        }
        Err(Error::Full)
    }

    /// Ends a lease. Takes no lock.
    pub(crate) fn end(&self, lease: &mut Lease) {
        if let Some(zone) = lease.zone.take() {
            self.lessees[zone].fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn take_in(
        &self,
        zone: usize,
        lease: &mut Lease,
        least: u64,
        most: u64,
    ) -> Result<Option<(u64, u64)>, Error> {
        let mut guard = self.loaded(zone)?;
        let Some(maps) = guard.maps.as_mut().filter(|maps| maps.free >= least) else {
            return Ok(None);
        };
        let found = find(&maps.used, lease.cursor, least, most)
            .or_else(|| find(&maps.used, 0, least, most));
        let Some((at, count)) = found else { return Ok(None) };
        for bit in at..at + count {
            maps.used[bit as usize / 64] |= 1 << (bit % 64);
        }
        maps.free -= count;
        lease.cursor = at + count;
        Ok(Some((zone as u64 * ZONE_PLACES + at, count)))
    }

    /// Marks a place as handed out that the log of a branch refers to. Returns whether it was free.
    pub(crate) fn claim(&self, place: u64) -> Result<bool, Error> {
        let mut guard = self.loaded((place / ZONE_PLACES) as usize)?;
        let Some(maps) = guard.maps.as_mut() else { return Ok(false) };
        let (word, bit) = ((place % ZONE_PLACES) as usize / 64, 1 << (place % ZONE_PLACES % 64));
        let is_free = maps.used[word] & bit == 0;
        maps.used[word] |= bit;
        maps.free -= u64::from(is_free);
        Ok(is_free)
    }

    /// Makes places free that no durable state refers to, and gives them back to the budget.
    pub(crate) fn release(&self, places: &[u64]) {
        for place in places {
            let mut guard = self.zones[(place / ZONE_PLACES) as usize].lock();
            // A zone without bitmaps in memory has handed out nothing.
            let Some(maps) = guard.maps.as_mut() else { continue };
            let bit = 1 << (place % ZONE_PLACES % 64);
            maps.used[(place % ZONE_PLACES) as usize / 64] &= !bit;
            maps.free += 1;
        }
        self.budget.give(places.len() as u64);
    }

    /// Enters the changes of a commit into the committed bitmaps, and returns the blocks of all
    /// bitmaps that it changed, for the copies that are not valid.
    ///
    /// # Errors
    /// Errors of reading bitmaps, and [`Error::Damage`] for a place that is given up and was not in
    /// use; the bitmaps in memory are wrong then.
    pub(crate) fn commit(
        &self,
        sets: &[u64],
        clears: &[u64],
        generation: u64,
    ) -> Result<Vec<(u64, Box<Bytes>)>, Error> {
        let mut zones = std::collections::BTreeSet::new();
        let changes = sets.iter().map(|place| (*place, true));
        for (place, set) in changes.chain(clears.iter().map(|place| (*place, false))) {
            let zone = (place / ZONE_PLACES) as usize;
            zones.insert(zone);
            let mut guard = self.loaded(zone)?;
            let Some(maps) = guard.maps.as_mut() else { continue };
            let (word, bit) =
                ((place % ZONE_PLACES) as usize / 64, 1 << (place % ZONE_PLACES % 64));
            if (maps.committed[word] & bit != 0) == set {
                return Err(Error::Damage { place, what: "it is used twice, or given up twice" });
            }
            maps.committed[word] ^= bit;
        }
        // A zone below one with a bitmap has one too.
        let made = self.made.load(Ordering::Relaxed);
        let end = zones.last().map_or(0, |zone| *zone as u64 + 1);
        zones.extend((made..end).map(|zone| zone as usize));
        self.made.fetch_max(end, Ordering::Relaxed);
        zones.into_iter().map(|zone| self.block(zone, generation)).collect()
    }

    /// Returns the block of a bitmap for the copy that is not valid, which becomes the valid one.
    fn block(&self, zone: usize, generation: u64) -> Result<(u64, Box<Bytes>), Error> {
        let mut guard = self.loaded(zone)?;
        let copy = !guard.copy.unwrap_or(true);
        guard.copy = Some(copy);
        let place = bitmap_place(zone as u64, copy);
        let mut block: BitmapBlock = format::zeroed();
        block.header = format::header(self.disk.expect(BITMAP, place), generation, 0, zone as u64);
        if let Some(maps) = &guard.maps {
            for (disk, word) in block.words.iter_mut().zip(maps.committed.iter()) {
                disk.set(*word);
            }
        }
        Ok((place, format::seal(&block)))
    }

    /// Writes which bitmaps are valid into `copies`, and returns how many zones have one.
    pub(crate) fn describe(&self, copies: &mut [u8]) -> u64 {
        for (number, zone) in self.zones.iter().enumerate() {
            let bit = u8::from(zone.lock().copy == Some(true)) << (number % 8);
            copies[number / 8] = copies[number / 8] & !(1 << (number % 8)) | bit;
        }
        self.made.load(Ordering::Relaxed)
    }

    /// Returns whether the last commit refers to a place, and whether it is free to be handed out.
    pub(crate) fn status(&self, place: u64) -> Result<(bool, bool), Error> {
        let guard = self.loaded((place / ZONE_PLACES) as usize)?;
        let has = |words: &[u64; WORDS]| {
            words[(place % ZONE_PLACES) as usize / 64] >> (place % ZONE_PLACES % 64) & 1 != 0
        };
        Ok(guard.maps.as_ref().map_or((false, false), |m| (has(&m.committed), !has(&m.used))))
    }
}

/// Finds up to `most` zero bits in a row from `from` on; the first row that has at least `least`.
fn find(words: &[u64; WORDS], from: u64, least: u64, most: u64) -> Option<(u64, u64)> {
    let is_used = |at: u64| words[at as usize / 64] >> (at % 64) & 1 != 0;
    let mut at = from;
    while at < ZONE_PLACES {
        if at.is_multiple_of(64) && words[at as usize / 64] == u64::MAX {
            at += 64;
            continue;
        }
        let count = (at..ZONE_PLACES).take(most as usize).take_while(|bit| !is_used(*bit)).count();
        if count as u64 >= least {
            return Some((at, count as u64));
        }
        at += count as u64 + 1;
    }
    None
}

impl std::fmt::Debug for Space {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Space")
            .field("zones", &self.zones.len())
            .field("free", &self.budget.available())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
