//! Reading a branch.

use std::ops::Range;

use super::Inner;
use crate::Error;
use crate::disk::device::offset;
use crate::disk::format::{Entry, PLACE_BYTES};

const UNIT: u64 = PLACE_BYTES as u64;

impl Inner {
    /// Fills `buf` with the bytes from `start` on; the caller has checked the range.
    ///
    /// # Errors
    /// Errors of the device and [`Error::Damage`].
    pub(crate) fn read(&self, start: u64, buf: &mut [u8]) -> Result<(), Error> {
        let _inside = self.readers.read();
        let mut reads: Vec<(u64, &mut [u8])> = Vec::new();
        let (mut at, mut rest) = (start, buf);
        while !rest.is_empty() {
            let block = at / UNIT;
            let entry = self.map().find(block)?;
            // As many bytes as lie in a row on the device.
            let mut end = (block + 1) * UNIT;
            while end < at + rest.len() as u64 && self.follows(entry, end / UNIT - block, end)? {
                end += UNIT;
            }
            let length = (end - at).min(rest.len() as u64) as usize;
            let (part, behind) = rest.split_at_mut(length);
            if entry.is_none() {
                part.fill(0);
            } else {
                reads.push((offset(entry.place()) + at % UNIT, part));
            }
            at += length as u64;
            rest = behind;
        }
        match &mut reads[..] {
            [] => Ok(()),
            [(at, buf)] => Ok(self.shared.disk.device.read_at(*at, buf)?),
            _ => Ok(self.shared.disk.device.read_many(&mut reads)?),
        }
    }

    /// Returns whether all of these blocks have the same places in both branches.
    ///
    /// # Errors
    /// Errors of reading and [`Error::Damage`].
    pub(crate) fn shares(&self, other: &Inner, blocks: Range<u64>) -> Result<bool, Error> {
        let entries = |inner: &Inner| -> Result<Vec<Entry>, Error> {
            let _inside = inner.readers.read();
            blocks.clone().map(|block| inner.map().find(block)).collect()
        };
        // One after the other: the locks of readers have no order.
        Ok(entries(self)? == entries(other)?)
    }

    /// Returns the blocks that have other places in another branch, if both can only be read: their
    /// maps don't change, so no lock of readers is needed.
    ///
    /// # Errors
    /// Errors of reading and [`Error::Damage`].
    pub(crate) fn differing(&self, other: &Inner) -> Result<Vec<Range<u64>>, Error> {
        match self.node() == other.node() {
            true => Ok(Vec::new()),
            false => self.map().differing(other.map()),
        }
    }

    /// Returns the rows of places that blocks have, each with its length.
    ///
    /// # Errors
    /// Errors of reading and [`Error::Damage`].
    pub(crate) fn places(&self, blocks: Range<u64>) -> Result<Vec<(u64, Option<u64>)>, Error> {
        let _inside = self.readers.read();
        let mut rows: Vec<(u64, Option<u64>)> = Vec::new();
        for block in blocks {
            let entry = self.map().find(block)?;
            let place = (!entry.is_none()).then(|| entry.place());
            if place.is_some_and(|place| place >= self.shared.disk.layout().places) {
                let (place, what) = (entry.place(), "the place is outside of the pool");
                return Err(Error::Damage { place, what });
            }
            match rows.last_mut() {
                Some((length, first)) if first.map(|first| first + *length) == place => {
                    *length += 1;
                }
                _ => rows.push((1, place)),
            }
        }
        Ok(rows)
    }

    /// Returns whether the block at byte `at` lies `distance` places after `first`, or has no place
    /// either.
    fn follows(&self, first: Entry, distance: u64, at: u64) -> Result<bool, Error> {
        let entry = self.map().find(at / UNIT)?;
        Ok(match first.is_none() {
            true => entry.is_none(),
            false => !entry.is_none() && entry.place() == first.place() + distance,
        })
    }
}
