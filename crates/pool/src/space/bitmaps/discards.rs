//! Discards: the device learns which places are free.
//!
//! # Purpose
//!
//! An image gives the storage of free places back to its file system. On a thin device the places
//! are noted that commits make free, and [`Space::discard_freed`] discards those of them that still
//! are. [`Space::discard_all`] discards all free places on any device, as `FITRIM` of Linux does:
//! also those that were free before the pool was opened.
//!
//! # Invariants
//!
//! * Only free places are discarded: no durable state refers to one, and no reader is inside (I3 of
//!   the crate). A crash afterwards finds no more than if each had been handed out and written.
//! * A run is discarded while its zone is locked. So nobody takes a place of it before the discard
//!   has returned, and a later write of the place is ordered behind that. Others wait for one run.
//! * A discarded place is hollow. As many places keep their storage as are protected.

use std::sync::atomic::Ordering;

use vfscale_block::{Discards, Error as DeviceError, Operation};

use super::{Maps, Space, WORDS, find};
use crate::Error;
use crate::disk::device::offset;
use crate::disk::format::{PLACE_BYTES, ZONE_PLACES};

/// The most places that are discarded together in a zone that is used: 4 MiB.
const RUN_MAX: u64 = 1024;

impl Space {
    /// Notes that a place of a zone has become free.
    pub(super) fn note_freed(&self, zone: usize, maps: &mut Maps, at: u64) {
        if self.is_thin {
            let freed = maps.freed.get_or_insert_with(|| {
                self.freed.lock().insert(zone);
                Box::new([0; WORDS])
            });
            freed[at as usize / 64] |= 1 << (at % 64);
        }
    }

    /// Returns whether places have become free that are to be discarded.
    pub(crate) fn has_freed(&self) -> bool {
        self.is_thin && !self.freed.lock().is_empty()
    }

    /// Discards the places that have become free since the last call, and still are. Returns their
    /// number.
    ///
    /// # Errors
    /// Errors of the device; what is left is not discarded.
    pub(crate) fn discard_freed(&self) -> Result<u64, Error> {
        let next = || self.freed.lock().pop_first();
        let mut count = 0;
        while let (Some(zone), Some(how)) = (next(), self.disk.device.discards()) {
            let mut guard = self.zones.lock(zone);
            let freed = guard.as_mut().and_then(|maps| maps.freed.take());
            drop(guard);
            count += freed.map_or(Ok(0), |freed| self.discard_in(zone, how, Some(&freed)))?;
        }
        Ok(count)
    }

    /// Discards all free places. Returns their number.
    ///
    /// # Errors
    /// [`DeviceError::Unsupported`] if the device can't discard, other errors of it, and those of
    /// reading bitmaps.
    pub(crate) fn discard_all(&self) -> Result<u64, Error> {
        let how = self.how_to_discard()?;
        let zones = (0..self.zone_count()).filter(|zone| !self.is_whole(*zone));
        zones.map(|zone| self.discard_in(zone, how, None)).sum()
    }

    fn how_to_discard(&self) -> Result<Discards, Error> {
        let (device, operation) = (&self.disk.device, Operation::Discard);
        let (name, why) = (device.name().into(), "it does not support discards");
        let unsupported = DeviceError::Unsupported { device: name, operation, why };
        Ok(device.discards().ok_or(unsupported)?)
    }

    /// Discards the free places of a zone: those that are `among` these and have storage, or all.
    /// Returns their number.
    fn discard_in(
        &self,
        zone: usize,
        how: Discards,
        among: Option<&[u64; WORDS]>,
    ) -> Result<u64, Error> {
        let least = u64::from(how.granularity).div_ceil(PLACE_BYTES as u64).max(1);
        let (mut from, mut total) = (0, 0);
        while from < ZONE_PLACES {
            let mut guard = self.zones.lock(zone);
            let (mut words, most) = match &*guard {
                Some(maps) => (maps.used.clone(), RUN_MAX),
                None => (self.read(zone)?, ZONE_PLACES),
            };
            if let (Some(among), Some(maps)) = (among, &*guard) {
                let others = among.iter().zip(maps.hollow.iter()).map(|(of, hollow)| !of | hollow);
                words.iter_mut().zip(others).for_each(|(word, other)| *word |= other);
            }
            let Some((at, count)) = find(&words, from, least, most) else { break };
            if !self.discard_run(zone, guard.as_mut(), (at, count))? {
                break;
            }
            total += count;
            from = at + count;
        }
        Ok(total)
    }

    /// Discards a run of free places of a zone, which the caller has locked. Returns false, and
    /// discards nothing, if too few others have storage.
    fn discard_run(
        &self,
        zone: usize,
        maps: Option<&mut Maps>,
        (at, count): (u64, u64),
    ) -> Result<bool, Error> {
        let bits = || (at..at + count).map(|bit| (bit as usize / 64, 1 << (bit % 64)));
        let hollow = maps.filter(|_| self.is_thin).map(|maps| &mut maps.hollow);
        let backed = hollow.as_ref().map_or(0, |hollow| {
            bits().filter(|(word, bit)| hollow[*word] & bit == 0).count() as u64
        });
        let left = self.backed.fetch_sub(backed, Ordering::SeqCst).saturating_sub(backed);
        if backed > 0 && left < self.protected.load(Ordering::SeqCst) {
            self.backed.fetch_add(backed, Ordering::SeqCst);
            return Ok(false);
        }
        let start = offset(self.disk.layout().range(zone).start + at);
        let discarded = self.disk.device.discard(start, offset(count)).map_err(Error::from);
        // A device may find out here that it can't.
        if let Err(error) = discarded.and_then(|()| self.how_to_discard()) {
            self.backed.fetch_add(backed, Ordering::SeqCst);
            return Err(error);
        }
        if let Some(hollow) = hollow {
            bits().for_each(|(word, bit)| hollow[word] |= bit);
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests;
