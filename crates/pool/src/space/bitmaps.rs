//! Which places are free.
//!
//! # Purpose
//!
//! Each zone has two bitmaps in memory. *Committed*: the places that the last commit refers to,
//! which is what the device has. *Used*: those, and the ones that were handed out since. A place
//! that is given up stays in both until a commit without it is durable and its readers have gone.
//!
//! # Storage of a sparse image
//!
//! On a thin device ([`vfscale_block::Discards::is_thin`]) a place that was never written may have
//! no storage. Such a place is *hollow* until the file system of the image has allocated it, 64
//! places at a time, which happens before it is handed out. If that file system is full, the pool
//! is as if it were full: whoever takes a hollow place gets [`Error::Full`] before anything is
//! written, and the others go on. Some places that have storage are *protected*: commits, and
//! blocks that were reserved by their numbers, take from these when nothing else is left, so that
//! logs go on, and files and branches can be removed.
//!
//! # Invariants
//!
//! * A place is handed out only if it is in neither bitmap.
//! * [`Space::budget`] counts the free places less a reserve for commits, so whoever has taken from
//!   it finds a place.
//! * Bitmaps are changed only by commits, and written to the copy that is not valid.
//! * A zone without a bitmap on the device is free, but one of a former volume
//!   ([`crate::disk::layout`]) is in use.
//!
//! # Locks
//!
//! `PoolZone` guards one zone. A [`Lease`] tells a branch where it took its last place: branches
//! prefer zones that no other branch prefers, so siblings take no common lock in a pool with as
//! many zones.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::slice::from_ref;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use vfscale_sync::Mutex;
use vfscale_sync::percpu::{Budget, CachePadded};

use crate::Error;
use crate::disk::device::{Disk, offset};
use crate::disk::format::{self, BITMAP, BitmapBlock, Bytes, ZONE_PLACES, ZONES_MAX};
use crate::disk::layout::Layout;
use crate::space::reservations::Held;

mod discards;
mod growth;
mod zones;

use zones::{Locked, Zones};

vfscale_sync::lock_class! {
    /// Which bitmaps are valid.
    pub(crate) PoolCopies = ("pool_copies", 64072);
    /// The zones with places that are to be discarded.
    pub(crate) PoolFreed = ("pool_freed", 64075);
}

pub(crate) const WORDS: usize = ZONE_PLACES as usize / 64;

/// A bit for each place of a zone.
pub(crate) type Bits = [u64; WORDS];

/// The bitmaps of a zone.
struct Maps {
    committed: Box<[u64; WORDS]>,
    used: Box<[u64; WORDS]>,
    /// Free places that may have no storage.
    hollow: Box<[u64; WORDS]>,
    /// Places that have become free and were not discarded; they may be in use again.
    freed: Option<Box<[u64; WORDS]>>,
    free: u64,
    /// Whether its bitmaps have storage; nothing is taken before they have.
    is_backed: bool,
}

/// Which of two bitmaps of each zone is valid, as a superblock tells it.
type Copies = [u8; 3840];

/// Where a branch takes places.
#[derive(Debug, Default)]
pub(crate) struct Lease {
    zone: Option<usize>,
    cursor: u64,
}

/// The places of a pool.
pub(crate) struct Space {
    disk: Disk,
    zones: Zones<Maps>,
    copies: Mutex<Box<Copies>, PoolCopies>,
    /// Zones from this one on have no bitmap on the device.
    made: AtomicU64,
    /// Free places less the reserve, in units of one place.
    pub(crate) budget: Budget,
    /// Whether places may be hollow.
    is_thin: bool,
    /// Free places of loaded zones that have storage, and how many of these are protected.
    backed: CachePadded<AtomicU64>,
    protected: CachePadded<AtomicU64>,
    /// The word, counted through all zones, from which on hollow places are looked for.
    hollow_from: AtomicUsize,
    /// Whether the last allocation has found the file system of the image full.
    is_host_full: AtomicBool,
    /// The zones that have places to discard.
    freed: Mutex<BTreeSet<usize>, PoolFreed>,
    /// The size of the urgent part, and how much of it is there.
    urgent_max: u64,
    urgent: AtomicU64,
}

/// The part of the places that only urgent reservations get.
const URGENT_SHARE: u64 = 32;
/// Its most places: 32 MiB.
const URGENT_MAX: u64 = 8192;
/// Pools of fewer places have no such part: 32 MiB.
const URGENT_FROM: u64 = 8192;

/// Pays for places: from the budget of a pool, or first from what was taken from it before.
#[derive(Debug)]
pub(crate) struct Purse<'s> {
    budget: &'s Budget,
    /// The reservations of the branch, for the time when the budget is empty.
    held: Option<(&'s Space, &'s Held)>,
    left: Cell<u64>,
}

impl<'s> Purse<'s> {
    /// Makes a purse that has `left` places, which are taken from the budget already.
    pub(crate) fn new(budget: &'s Budget, left: u64) -> Self {
        Self { budget, held: None, left: Cell::new(left) }
    }

    /// Makes an empty purse that spends what a branch has reserved when the budget is empty.
    pub(crate) fn of_branch(space: &'s Space, held: &'s Held) -> Self {
        Self { budget: &space.budget, held: Some((space, held)), left: Cell::new(0) }
    }

    /// Pays for `count` places. Returns false, and pays nothing, if there are fewer.
    pub(crate) fn take(&self, count: u64) -> bool {
        let Some(left) = self.left.get().checked_sub(count) else {
            return self.budget.take(count) || self.held.is_some_and(|(_, held)| held.spend(count));
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
        let left = self.left.get();
        match self.held {
            Some((space, held)) => space.give(held.refill(left)),
            None => self.budget.give(left),
        }
    }
}

/// The reason why places are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taker {
    /// Data and metadata of a branch.
    Ordinary,
    /// Commits, and blocks that were reserved by their numbers.
    Protected,
}

/// The most places that are protected for commits: 4 MiB.
const PROTECTED_MAX: u64 = 1024;
/// The most places that are allocated together, in words of the bitmaps: 4 MiB.
const BACKED_WORDS_MAX: usize = 16;
/// The most refusals of the file system of the image in one call, each of 64 places: of 256 MiB.
const REFUSALS_MAX: u32 = 1024;

/// How many places a commit may need that nobody has taken from the budget.
pub(crate) fn reserve(places: u64) -> u64 {
    (places / 50).clamp(12, 4096)
}

/// Returns how many places of a pool may be taken that are not reserved for commits.
fn budget_of(layout: &Layout) -> u64 {
    layout.places.saturating_sub(layout.fixed() + reserve(layout.places))
}

/// Returns the numbers of the two bits that a zone of a former volume has in a superblock: whether
/// it has a bitmap, and which.
fn bits_of_former(former: u64) -> (u64, u64) {
    let last = ZONES_MAX - 1 - 2 * former;
    (last, last - 1)
}

impl Space {
    /// Makes the space of a pool whose superblock has `copies` and `made`. Nothing is taken from
    /// the budget yet.
    pub(crate) fn new(disk: &Disk, copies: &[u8], made: u64, slots: usize) -> Self {
        let layout = disk.layout();
        let budget = Budget::new(budget_of(&layout), slots);
        let mut valid = Box::new([0; 3840]);
        valid.copy_from_slice(copies);
        let is_large = layout.places >= URGENT_FROM;
        let urgent_max = if is_large { (layout.places / URGENT_SHARE).min(URGENT_MAX) } else { 0 };
        let is_thin = disk.device.discards().is_some_and(|how| how.is_thin);
        Self {
            disk: disk.clone(),
            zones: Zones::new(),
            copies: Mutex::new(valid),
            made: made.into(),
            budget,
            is_thin,
            backed: CachePadded::new(AtomicU64::new(0)),
            protected: CachePadded::new(AtomicU64::new(0)),
            hollow_from: AtomicUsize::new(layout.former_zones() as usize * WORDS),
            is_host_full: AtomicBool::new(false),
            freed: Mutex::default(),
            urgent_max,
            urgent: AtomicU64::new(0),
        }
    }

    /// Protects what commits need, as far as the file system of the image has room.
    pub(crate) fn protect_commits(&self) {
        self.protect(reserve(self.disk.layout().places).min(PROTECTED_MAX));
    }

    /// Protects `count` more places. Returns false, and protects none, if the file system of the
    /// image is full. A bitmap that can't be read is left to those who need it.
    pub(crate) fn protect(&self, count: u64) -> bool {
        if !self.is_thin {
            return true;
        }
        let wanted = self.protected.fetch_add(count, Ordering::AcqRel) + count;
        let is_refused = self.back_until(wanted, count.max(PROTECTED_MAX));
        // A pool that is full itself has what its budget says.
        let is_protected = !is_refused || self.backed.load(Ordering::Acquire) >= wanted;
        if !is_protected {
            self.is_host_full.store(true, Ordering::Relaxed);
            self.unprotect(count);
        }
        is_protected
    }

    /// Has the file system of the image allocate hollow places, about `count` at a time, until
    /// `wanted` places have storage. If it is full, it may still have allocated some of them
    /// before: goes on with the next ones, up to a number of refusals. Starts where the last call
    /// has ended. Returns whether there was a refusal.
    fn back_until(&self, wanted: u64, count: u64) -> bool {
        let zones = self.zone_count();
        let first = self.hollow_from.load(Ordering::Relaxed);
        let mut refusals = 0;
        let must_go_on =
            |refusals| refusals < REFUSALS_MAX && self.backed.load(Ordering::Acquire) < wanted;
        // The last step is for the words of the first zone before the first word.
        for step in 0..=zones {
            if !must_go_on(refusals) {
                break;
            }
            let zone = (first / WORDS + step) % zones;
            let mut word = if step == 0 { first % WORDS } else { 0 };
            self.hollow_from.store(zone * WORDS + word, Ordering::Relaxed);
            if self.is_whole(zone) {
                continue;
            }
            let Ok(mut guard) = self.loaded(zone) else { continue };
            let Some(maps) = guard.as_mut() else { continue };
            if !self.has_bitmaps(zone, maps) {
                refusals += 1;
                continue;
            }
            while must_go_on(refusals)
                && let Some(next) = maps.hollow[word..].iter().position(|word| *word != 0)
            {
                word += next;
                if !self.back(zone, maps, word, count) {
                    refusals += 1;
                    word += 1;
                }
                self.hollow_from.store(zone * WORDS + word, Ordering::Relaxed);
            }
        }
        refusals > 0
    }

    /// Protects `count` places that have just become free, and so have storage.
    pub(crate) fn protect_freed(&self, count: u64) {
        if self.is_thin {
            self.protected.fetch_add(count, Ordering::AcqRel);
        }
    }

    /// Returns whether the file system of the image is full, as far as is known.
    pub(crate) fn is_host_full(&self) -> bool {
        self.is_host_full.load(Ordering::Relaxed)
    }

    /// Ends the protection of `count` places, which were taken or are not needed any more.
    pub(crate) fn unprotect(&self, count: u64) {
        if self.is_thin {
            let less = |there: u64| Some(there.saturating_sub(count));
            let _ = self.protected.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
        }
    }

    /// Has the file system of the image allocate the hollow places of a zone from a word of its
    /// bitmaps on, about `count` of them. Returns whether those of this word have storage then.
    fn back(&self, zone: usize, maps: &mut Maps, word: usize, count: u64) -> bool {
        let most = if self.is_host_full() { 1 } else { BACKED_WORDS_MAX };
        let words = (count.div_ceil(64) as usize).clamp(1, most).min(WORDS - word);
        let range = self.disk.layout().range(zone);
        let start = range.start + word as u64 * 64;
        let end = range.end.min(start + words as u64 * 64);
        let range = offset(start)..offset(end);
        let allocated = self.disk.device.reserve_ranges(from_ref(&range));
        if allocated.is_err_and(|error| error.is_no_space()) {
            self.is_host_full.store(true, Ordering::Relaxed);
            return words > 1 && self.back(zone, maps, word, 1);
        }
        // Any other refusal is that of a device that allocates nothing.
        self.is_host_full.store(false, Ordering::Relaxed);
        let hollow = &mut maps.hollow[word..word + words];
        let backed: u64 = hollow.iter().map(|word| u64::from(word.count_ones())).sum();
        hollow.fill(0);
        self.backed.fetch_add(backed, Ordering::AcqRel);
        true
    }

    /// Has storage for places that are about to be handed out, and enough left that is protected.
    /// Returns false if the file system of the image is full.
    fn backs(&self, zone: usize, maps: &mut Maps, run: (u64, u64), taker: Taker) -> bool {
        let (at, count) = run;
        for word in at as usize / 64..=(at + count - 1) as usize / 64 {
            if maps.hollow[word] != 0 && !self.back(zone, maps, word, at + count - word as u64 * 64)
            {
                return false;
            }
        }
        let is_enough = || {
            let (backed, protected) = (&self.backed, &self.protected);
            backed.load(Ordering::Acquire) >= protected.load(Ordering::Acquire) + count
        };
        // A pool that is full itself keeps no more than its budget says.
        while taker == Taker::Ordinary && !is_enough() {
            match maps.hollow.iter().position(|word| *word != 0) {
                Some(word) if self.back(zone, maps, word, count) => {}
                _ => return !self.is_host_full(),
            }
        }
        true
    }

    /// Gives places to the budget; the urgent part is filled first.
    pub(crate) fn give(&self, count: u64) {
        let fill = |there: u64| {
            (there < self.urgent_max).then(|| there.saturating_add(count).min(self.urgent_max))
        };
        let filled = match self.urgent.load(Ordering::Acquire) < self.urgent_max {
            true => self.urgent.fetch_update(Ordering::AcqRel, Ordering::Acquire, fill),
            false => Err(0),
        };
        let kept = filled.map_or(0, |there| (self.urgent_max - there).min(count));
        self.budget.give(count - kept);
    }

    /// Takes the urgent part from the budget, as far as that has it.
    pub(crate) fn fill_urgent(&self) {
        let some = self.urgent_max.min(self.budget.available());
        if self.budget.take(some) {
            self.give(some);
        }
    }

    /// Takes places from the budget; if that has too few and `is_urgent`, from the urgent part.
    pub(crate) fn take_budget(&self, count: u64, is_urgent: bool) -> bool {
        let less = |there: u64| there.checked_sub(count);
        self.budget.take(count)
            || is_urgent
                && self.urgent.fetch_update(Ordering::AcqRel, Ordering::Acquire, less).is_ok()
    }

    /// Makes the bitmaps of a zone, which could not be read, of the places that the last commit
    /// refers to.
    pub(crate) fn rebuild(&self, zone: usize, used: &[u64]) {
        let mut words = Box::new([0_u64; WORDS]);
        for place in used {
            let (_, at) = self.disk.layout().locate(*place);
            words[at as usize / 64] |= 1 << (at % 64);
        }
        self.mark_fixed(zone, &mut words);
        *self.zones.lock(zone) = Some(self.maps(zone, words));
    }

    /// Locks a zone whose bitmaps are in memory.
    fn loaded(&self, zone: usize) -> Result<Locked<'_, Maps>, Error> {
        let mut guard = self.zones.lock(zone);
        if guard.is_none() {
            *guard = Some(self.maps(zone, self.read(zone)?));
        }
        Ok(guard)
    }

    /// Returns which bitmap of a zone on the device is valid, if it has one. The caller has locked
    /// the zone, or the right to commit.
    fn copy(&self, zone: usize) -> Option<bool> {
        let (layout, copies) = (self.disk.layout(), self.copies.lock());
        let bit = |bit: u64| copies[bit as usize / 8] >> (bit % 8) & 1 != 0;
        match layout.former(zone) {
            None => {
                let zone = layout.new_zone(zone);
                (zone < self.made.load(Ordering::Relaxed)).then(|| bit(zone))
            }
            Some(former) => {
                let (has, which) = bits_of_former(former);
                bit(has).then(|| bit(which))
            }
        }
    }

    fn set_copy(&self, zone: usize, copy: bool) {
        let (layout, mut copies) = (self.disk.layout(), self.copies.lock());
        let mut set = |bit: u64, value: bool| {
            let (byte, mask) = (bit as usize / 8, 1 << (bit % 8));
            copies[byte] = if value { copies[byte] | mask } else { copies[byte] & !mask };
        };
        match layout.former(zone) {
            None => set(layout.new_zone(zone), copy),
            Some(former) => {
                let (has, which) = bits_of_former(former);
                set(has, true);
                set(which, copy);
            }
        }
    }

    fn zone_count(&self) -> usize {
        self.disk.layout().zones()
    }

    /// Reads the places of a zone that are in use, or are never handed out.
    fn read(&self, zone: usize) -> Result<Box<[u64; WORDS]>, Error> {
        let mut words = Box::new([0_u64; WORDS]);
        let layout = &self.disk.layout();
        if let Some(copy) = self.copy(zone) {
            let place = layout.bitmap(zone, copy);
            let block: BitmapBlock = self.disk.read(BITMAP, place)?;
            let (owner, number) = identity(layout, zone);
            if block.header.number.get() != number || block.header.owner.get() != owner {
                return Err(Error::Damage { place, what: "the bitmap of another zone" });
            }
            for (word, disk) in words.iter_mut().zip(&block.words) {
                *word = disk.get();
            }
        } else if layout.former(zone).is_some() {
            words.fill(u64::MAX);
        }
        self.mark_fixed(zone, &mut words);
        Ok(words)
    }

    /// Marks the places of a zone that are never handed out, or are behind its end.
    fn mark_fixed(&self, zone: usize, words: &mut [u64; WORDS]) {
        let layout = &self.disk.layout();
        let range = layout.range(zone);
        for at in 0..ZONE_PLACES {
            let place = range.start + at;
            if layout.is_fixed(place) || place >= range.end {
                words[at as usize / 64] |= 1 << (at % 64);
            }
        }
    }

    /// Makes the bitmaps of a zone of which these places are not free.
    fn maps(&self, zone: usize, words: Box<[u64; WORDS]>) -> Maps {
        let free = words.iter().map(|word| u64::from(word.count_zeros())).sum();
        let mut hollow = Box::new([0; WORDS]);
        if self.is_thin {
            hollow.iter_mut().zip(words.iter()).for_each(|(hollow, used)| *hollow = !used);
        }
        let is_backed = !self.is_thin;
        let (committed, used, freed) = (words.clone(), words, None);
        let mut maps = Maps { committed, used, hollow, freed, free, is_backed };
        self.has_bitmaps(zone, &mut maps);
        maps
    }

    /// Has the file system of the image allocate the bitmaps of a zone, unless they have storage.
    /// Returns false if it is full: then searches and reservations try again.
    fn has_bitmaps(&self, zone: usize, maps: &mut Maps) -> bool {
        if !maps.is_backed {
            let layout = &self.disk.layout();
            let bitmaps = offset(layout.bitmap(zone, false))..offset(layout.bitmap(zone, true) + 1);
            let allocated = self.disk.device.reserve_ranges(from_ref(&bitmaps));
            maps.is_backed = !allocated.is_err_and(|error| error.is_no_space());
            self.is_host_full.store(!maps.is_backed, Ordering::Relaxed);
        }
        maps.is_backed
    }

    /// Takes up to `most` consecutive places, at least `least`. The caller has taken as many from
    /// the budget as it may keep, and gives back the rest; or takes from the reserve.
    ///
    /// # Errors
    /// [`Error::Full`] if no zone has `least` consecutive places, and errors of reading bitmaps if
    /// none has whose bitmap can be read.
    pub(crate) fn take(
        &self,
        lease: &mut Lease,
        least: u64,
        most: u64,
    ) -> Result<(u64, u64), Error> {
        self.take_as(Taker::Protected, lease, least, most)
    }

    /// Takes places as [`take`](Self::take) does, for a `taker`.
    ///
    /// # Errors
    /// [`Error::Full`] also if the file system of the image is full.
    pub(crate) fn take_as(
        &self,
        taker: Taker,
        lease: &mut Lease,
        least: u64,
        most: u64,
    ) -> Result<(u64, u64), Error> {
        let (count, mut failed) = (self.zone_count(), Error::Full);
        if let Some(zone) = lease.zone {
            match self.take_in(taker, zone, lease, least, most) {
                Ok(Some(found)) => return Ok(found),
                Ok(None) => {}
                Err(error) => failed = error,
            }
        }
        // The zones of a former volume come last: most have nothing free.
        let former = self.disk.layout().former_zones() as usize;
        let first = lease.zone.map_or(former, |zone| zone + 1);
        // First zones that nobody prefers, then any.
        for shared in [false, true] {
            for zone in (first..first + count).map(|zone| zone % count) {
                if !shared && self.zones.lessees(zone).load(Ordering::Relaxed) > 0 {
                    continue;
                }
                let mut next = Lease { zone: Some(zone), cursor: 0 };
                match self.take_in(taker, zone, &mut next, least, most) {
                    Ok(Some(found)) => {
                        self.zones.lessees(zone).fetch_add(1, Ordering::Relaxed);
                        self.end(lease);
                        *lease = next;
                        return Ok(found);
                    }
                    Ok(None) => {}
                    Err(error) => failed = error,
                }
            }
        }
        if self.has_room_again() { self.take_as(taker, lease, least, most) } else { Err(failed) }
    }

    /// Returns whether the file system of the image, which was full, has room for the bitmaps of
    /// one more zone. Tries one.
    fn has_room_again(&self) -> bool {
        let backs = |zone: usize| {
            let mut guard = self.zones.lock(zone);
            let maps = guard.as_mut().filter(|maps| !maps.is_backed)?;
            Some(self.has_bitmaps(zone, maps))
        };
        self.is_host_full() && (0..self.zone_count()).find_map(backs).unwrap_or(false)
    }

    /// Ends a lease. Takes no lock.
    pub(crate) fn end(&self, lease: &mut Lease) {
        if let Some(zone) = lease.zone.take() {
            self.zones.lessees(zone).fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn take_in(
        &self,
        taker: Taker,
        zone: usize,
        lease: &mut Lease,
        least: u64,
        most: u64,
    ) -> Result<Option<(u64, u64)>, Error> {
        if self.is_whole(zone) {
            return Ok(None);
        }
        let mut guard = self.loaded(zone)?;
        let Some(maps) = guard.as_mut().filter(|maps| maps.free >= least) else {
            return Ok(None);
        };
        if !maps.is_backed && (self.is_host_full() || !self.has_bitmaps(zone, maps)) {
            return Ok(None);
        }
        let search = |words: &[u64; WORDS]| {
            find(words, lease.cursor, least, most).or_else(|| find(words, 0, least, most))
        };
        let mut found = search(&maps.used);
        if self.is_thin
            && let Some((at, count)) = found
            && !self.backs(zone, maps, (at, count), taker)
        {
            let pairs = maps.used.iter().zip(maps.hollow.iter());
            let mut words = [0; WORDS];
            words.iter_mut().zip(pairs).for_each(|(word, (used, hollow))| *word = used | hollow);
            found = search(&words).filter(|run| self.backs(zone, maps, *run, taker));
        }
        let Some((at, count)) = found else { return Ok(None) };
        for bit in at..at + count {
            maps.used[bit as usize / 64] |= 1 << (bit % 64);
        }
        maps.free -= count;
        self.use_backed(count);
        lease.cursor = at + count;
        Ok(Some((self.disk.layout().range(zone).start + at, count)))
    }

    /// Notes that places with storage were taken.
    fn use_backed(&self, count: u64) {
        if self.is_thin {
            let less = |there: u64| Some(there.saturating_sub(count));
            let _ = self.backed.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
        }
    }

    /// Returns whether a zone of a former volume is in use, and in memory nothing else is known.
    pub(crate) fn is_whole(&self, zone: usize) -> bool {
        let is_former = self.disk.layout().former(zone).is_some();
        is_former && {
            let guard = self.zones.lock(zone);
            guard.is_none() && self.copy(zone).is_none()
        }
    }

    /// Marks a place as handed out that the log of a branch refers to. Returns whether it was free.
    pub(crate) fn claim(&self, place: u64) -> Result<bool, Error> {
        let (zone, at) = self.disk.layout().locate(place);
        let mut guard = self.loaded(zone)?;
        let Some(maps) = guard.as_mut() else { return Ok(false) };
        let (word, bit) = (at as usize / 64, 1 << (at % 64));
        let is_free = maps.used[word] & bit == 0;
        if maps.hollow[word] & bit != 0 {
            maps.hollow[word] &= !bit;
        } else if is_free {
            self.use_backed(1);
        }
        maps.used[word] |= bit;
        maps.free -= u64::from(is_free);
        Ok(is_free)
    }

    /// Makes places free that no durable state refers to. The caller gives back as many.
    pub(crate) fn free(&self, places: &[u64]) {
        for place in places {
            let (zone, at) = self.disk.layout().locate(*place);
            let mut guard = self.zones.lock(zone);
            // A zone without bitmaps in memory has handed out nothing.
            let Some(maps) = guard.as_mut() else { continue };
            maps.used[at as usize / 64] &= !(1 << (at % 64));
            maps.free += 1;
            self.backed.fetch_add(u64::from(self.is_thin), Ordering::AcqRel);
            self.note_freed(zone, maps, at);
        }
    }

    /// Leaves out the places of zones whose bitmaps can't be read: they stay in use, until a repair
    /// makes the bitmaps of what the maps say.
    pub(crate) fn retain_known(&self, places: &mut Vec<u64>) {
        let mut known = BTreeMap::new();
        places.retain(|place| {
            let (zone, _) = self.disk.layout().locate(*place);
            *known.entry(zone).or_insert_with(|| self.loaded(zone).is_ok())
        });
    }

    /// Enters the changes of a commit into the committed bitmaps, and returns the blocks of all
    /// bitmaps that it changed, and those of `zones`, for the copies that are not valid.
    ///
    /// # Errors
    /// Errors of reading bitmaps, and [`Error::Damage`] for a place that is given up and was not in
    /// use; the bitmaps in memory are wrong then.
    pub(crate) fn commit(
        &self,
        sets: &[u64],
        clears: &[u64],
        mut zones: BTreeSet<usize>,
        generation: u64,
    ) -> Result<Vec<(u64, Box<Bytes>)>, Error> {
        let changes = sets.iter().map(|place| (*place, true));
        for (place, set) in changes.chain(clears.iter().map(|place| (*place, false))) {
            let (zone, at) = self.disk.layout().locate(place);
            zones.insert(zone);
            let mut guard = self.loaded(zone)?;
            let Some(maps) = guard.as_mut() else { continue };
            let (word, bit) = (at as usize / 64, 1 << (at % 64));
            if (maps.committed[word] & bit != 0) == set {
                return Err(Error::Damage { place, what: "it is used twice, or given up twice" });
            }
            maps.committed[word] ^= bit;
        }
        // A zone below one with a bitmap has one too.
        let made = self.made.load(Ordering::Relaxed);
        let (layout, former) = (self.disk.layout(), self.disk.layout().former_zones());
        let last = zones.range(former as usize..).next_back();
        let end = last.map_or(0, |zone| layout.new_zone(*zone) + 1);
        zones.extend((made..end).map(|zone| (former + zone) as usize));
        self.made.fetch_max(end, Ordering::Relaxed);
        zones.into_iter().map(|zone| self.block(zone, generation)).collect()
    }

    /// Returns the block of a bitmap for the copy that is not valid, which becomes the valid one.
    fn block(&self, zone: usize, generation: u64) -> Result<(u64, Box<Bytes>), Error> {
        let guard = self.loaded(zone)?;
        let copy = !self.copy(zone).unwrap_or(true);
        self.set_copy(zone, copy);
        let place = self.disk.layout().bitmap(zone, copy);
        let mut block: BitmapBlock = format::zeroed();
        let (owner, number) = identity(&self.disk.layout(), zone);
        block.header = format::header(self.disk.expect(BITMAP, place), generation, owner, number);
        if let Some(maps) = &*guard {
            for (disk, word) in block.words.iter_mut().zip(maps.committed.iter()) {
                disk.set(*word);
            }
        }
        Ok((place, format::seal(&block)))
    }

    /// Writes which bitmaps are valid into `copies`, and returns how many zones have one.
    pub(crate) fn describe(&self, copies: &mut [u8]) -> u64 {
        copies.copy_from_slice(&**self.copies.lock());
        self.made.load(Ordering::Relaxed)
    }

    /// Returns the places of a zone that the last commit refers to, and those that are not handed
    /// out again.
    pub(crate) fn bits(&self, zone: usize) -> Result<(Box<Bits>, Box<Bits>), Error> {
        let free = || Box::new([0; WORDS]);
        let guard = self.loaded(zone)?;
        let copied = guard.as_ref().map(|maps| (maps.committed.clone(), maps.used.clone()));
        Ok(copied.unwrap_or_else(|| (free(), free())))
    }

    /// Returns whether the last commit refers to a place, and whether it is free to be handed out.
    pub(crate) fn status(&self, place: u64) -> Result<(bool, bool), Error> {
        let (zone, at) = self.disk.layout().locate(place);
        let guard = self.loaded(zone)?;
        let has = |words: &[u64; WORDS]| words[at as usize / 64] >> (at % 64) & 1 != 0;
        Ok(guard.as_ref().map_or((false, false), |m| (has(&m.committed), !has(&m.used))))
    }
}

/// Returns owner and number in the header of the bitmap of a zone.
fn identity(layout: &Layout, zone: usize) -> (u64, u64) {
    layout.former(zone).map_or_else(|| (0, layout.new_zone(zone)), |former| (1, former))
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
            .field("zones", &self.zone_count())
            .field("free", &self.budget.available())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
