//! Writing a branch: in place where that is allowed, to fresh places otherwise.
//!
//! A block is overwritten in place only if its place is the branch's own (no frozen node has it),
//! and no unconfirmed record holds a checksum of it. Else it gets a fresh place, and the map
//! changes only after the content was written there.

use std::ops::Range;
use std::sync::atomic::Ordering;

use super::{Inner, NewPlace};
use crate::Error;
use crate::disk::device::offset;
use crate::disk::format::{Entry, FANOUT, PLACE_BYTES};
use crate::space::bitmaps::{Purse, Taker};
use crate::state::map::MapNode;

const UNIT: u64 = PLACE_BYTES as u64;
/// Most blocks of a record whose contents have checksums, and so need no flush of their own. Few in
/// tests of this crate, for their batches are small.
pub(super) const CHECKED_MAX: usize = if cfg!(test) { 5 } else { 64 };

/// Blocks of an open batch from which on a writer flushes: 128 MiB.
const BATCH_MAX: usize = 1 << 15;
/// How often a search for a place that must exist is repeated.
const SEARCHES_MAX: u32 = 1000;

/// The part of a write that is in one leaf.
#[derive(Clone, Copy)]
struct Part<'b> {
    start: u64,
    data: &'b [u8],
}

impl<'b> Part<'b> {
    /// Returns the blocks, each with the offset in the block and the range of the data.
    fn blocks(self) -> impl Iterator<Item = (u64, u64, Range<usize>)> {
        let end = self.start + self.data.len() as u64;
        (self.start / UNIT..end.div_ceil(UNIT)).map(move |block| {
            let from = self.start.max(block * UNIT);
            let to = end.min((block + 1) * UNIT);
            (block, from % UNIT, (from - self.start) as usize..(to - self.start) as usize)
        })
    }
}

impl Inner {
    /// Writes `buf` at `start`; the caller has checked the range.
    ///
    /// # Errors
    /// [`Error::Full`], and errors of the device.
    pub(crate) fn write(&self, start: u64, buf: &[u8]) -> Result<(), Error> {
        let purse = Purse::of_branch(&self.shared.space, &self.held);
        self.shared.with_room(|| match self.write_parts(start, buf, &purse) {
            // A checkpoint frees what the branch gave up; then all of it is written again.
            Err(Error::Full) if self.reclaim()? => self.write_parts(start, buf, &purse),
            result => result,
        })?;
        self.bound_batch()
    }

    /// Flushes if the open batch has become large: it is in memory.
    fn bound_batch(&self) -> Result<(), Error> {
        if self.tracked.load(Ordering::Relaxed) < BATCH_MAX { Ok(()) } else { self.flush() }
    }

    /// Writes `buf` at `start`, for which the caller has paid: [`cost`](Self::cost) places for each
    /// block. The rest goes back to the budget.
    ///
    /// # Errors
    /// Errors of the device.
    pub(crate) fn write_paid(&self, start: u64, buf: &[u8], places: u64) -> Result<(), Error> {
        self.write_parts(start, buf, &Purse::new(&self.shared.space.budget, places))?;
        self.bound_batch()
    }

    /// Returns how many places the write of a block may need: its own, and one for each node that
    /// leads to it.
    pub(crate) fn cost(&self) -> u64 {
        self.cost
    }

    fn write_parts(&self, start: u64, buf: &[u8], purse: &Purse<'_>) -> Result<(), Error> {
        self.shared.alive()?;
        let _inside = self.gate.read();
        let leaf_bytes = FANOUT as u64 * UNIT;
        let (mut at, mut rest) = (start, buf);
        while !rest.is_empty() {
            let length = (leaf_bytes - at % leaf_bytes).min(rest.len() as u64) as usize;
            let (data, behind) = rest.split_at(length);
            self.write_part(Part { start: at, data }, purse)?;
            at += length as u64;
            rest = behind;
        }
        Ok(())
    }

    fn write_part(&self, part: Part<'_>, purse: &Purse<'_>) -> Result<(), Error> {
        let lock = self.leaf_lock(part.start / UNIT);
        {
            let _shared = lock.read();
            if let Some(leaf) = self.map().leaf(part.start / UNIT)?
                && part.blocks().all(|(block, ..)| self.is_own(leaf.entry(block)))
                && self.may_overwrite(part)
            {
                let pieces = part
                    .blocks()
                    .map(|(block, from, range)| (offset(leaf.entry(block).place()) + from, range));
                return self.write_pieces(part.data, pieces, &[]);
            }
        }
        let _alone = lock.write();
        self.redirect(part, purse)
    }

    /// Returns whether all own blocks of a part may be overwritten in place, and notes that their
    /// checksums change.
    fn may_overwrite(&self, part: Part<'_>) -> bool {
        if self.tracked.load(Ordering::Acquire) == 0 {
            return true;
        }
        let mut pending = self.pending.lock();
        part.blocks().all(|(block, ..)| {
            if let Some(new) = pending.open.get_mut(&block) {
                new.checksum = None;
            }
            !pending.fragile.contains(&block)
        })
    }

    /// Writes pieces of `data`, those that follow each other there and on the device as one; and
    /// the blocks `others`.
    fn write_pieces(
        &self,
        data: &[u8],
        pieces: impl Iterator<Item = (u64, Range<usize>)>,
        others: &[(u64, Box<[u8]>)],
    ) -> Result<(), Error> {
        let device = &self.shared.disk.device;
        let mut rows: Vec<(u64, Range<usize>)> = Vec::new();
        for (at, range) in pieces {
            match rows.last_mut() {
                Some((first, row)) if row.end == range.start && *first + row.len() as u64 == at => {
                    row.end = range.end;
                }
                _ => rows.push((at, range)),
            }
        }
        let rows = rows.into_iter().map(|(at, range)| (at, &data[range]));
        let others = others.iter().map(|(place, bytes)| (offset(*place), &bytes[..]));
        let writes: Vec<(u64, &[u8])> = rows.chain(others).collect();
        match writes[..] {
            [(at, bytes)] => Ok(device.write_at(at, bytes)?),
            _ => Ok(device.write_many(&writes)?),
        }
    }

    /// Writes a part of which some blocks need fresh places. The caller has the lock of the leaf.
    fn redirect(&self, part: Part<'_>, purse: &Purse<'_>) -> Result<(), Error> {
        let first = part.start / UNIT;
        let path = self.map().path(first)?;
        let leaf = path.leaf();
        let mut given_up = Vec::new();
        let dirty = path.make_dirty(purse, &mut |home: Entry| given_up.push(home));
        {
            let mut pending = self.pending.lock();
            pending.dirty_nodes += given_up.len();
            given_up.into_iter().for_each(|home| self.give_up(&mut pending, home));
        }
        dirty?;
        let fresh: Vec<u64> = {
            let mut pending = self.pending.lock();
            let needs = |block: &u64| {
                if let Some(new) = pending.open.get_mut(block) {
                    new.checksum = None;
                }
                !self.is_own(leaf.entry(*block)) || pending.fragile.contains(block)
            };
            part.blocks().map(|(block, ..)| block).filter(needs).collect()
        };
        let not_own = fresh.iter().copied().filter(|block| !self.is_own(leaf.entry(*block)));
        let prepaid = self.held.take_fixed(not_own);
        let taker = if prepaid > 0 { Taker::Protected } else { Taker::Ordinary };
        let (count, space) = (fresh.len() as u64, &self.shared.space);
        let places = match self.take_places(taker, count, prepaid, purse) {
            Err(Error::Full) if space.is_host_full() && self.held.has_fixed(&fresh) => {
                self.take_places(Taker::Protected, count, prepaid, purse)
            }
            taken => taken,
        };
        let places = match places {
            Ok(places) => places,
            Err(error) => {
                self.held.give_fixed(prepaid);
                return Err(error);
            }
        };
        space.unprotect(prepaid);
        let written = self.write_fresh(part, leaf, &fresh, &places);
        if written.is_err() {
            space.free(&places);
            self.held.give_fixed(prepaid);
            space.protect_freed(prepaid);
            space.give(count - prepaid);
        }
        written
    }

    /// Writes a part whose blocks `fresh` go to `places`, and enters those into the map.
    fn write_fresh(
        &self,
        part: Part<'_>,
        leaf: &MapNode,
        fresh: &[u64],
        places: &[u64],
    ) -> Result<(), Error> {
        let mut next = fresh.iter().zip(places).peekable();
        // Blocks that are not written whole: their former contents are read first.
        let mut merged: Vec<(u64, Box<[u8]>)> = Vec::new();
        let mut targets = Vec::new();
        for (block, from, range) in part.blocks() {
            let new = next.next_if(|(fresh, _)| **fresh == block).map(|(_, place)| *place);
            if let Some(place) = new
                && range.len() < PLACE_BYTES
            {
                let mut whole = vec![0; PLACE_BYTES].into_boxed_slice();
                let old = leaf.entry(block);
                if !old.is_none() {
                    self.shared.disk.device.read_at(offset(old.place()), &mut whole)?;
                }
                whole[from as usize..][..range.len()].copy_from_slice(&part.data[range]);
                merged.push((place, whole));
            } else {
                let place = new.unwrap_or_else(|| leaf.entry(block).place());
                targets.push((offset(place) + from, range, new.map(|_| block)));
            }
        }
        let whole = targets.iter().map(|(at, range, _)| (*at, range.clone()));
        self.write_pieces(part.data, whole, &merged)?;
        let known = |block: u64| {
            let target = targets.iter().find(|(.., fresh)| *fresh == Some(block));
            target.map(|(_, range, _)| crc32c::crc32c(&part.data[range.clone()]))
        };
        let is_small = fresh.len() <= CHECKED_MAX;
        let sums: Vec<_> = fresh.iter().map(|block| is_small.then(|| known(*block))).collect();
        let depth = self.depth.load(Ordering::Relaxed);
        let mut pending = self.pending.lock();
        for ((block, place), checksum) in fresh.iter().zip(places).zip(sums) {
            let old = leaf.replace(*block, Entry::new(*place, depth));
            pending.allocs.push(*place);
            pending.open.insert(*block, NewPlace { place: *place, checksum: checksum.flatten() });
            self.give_up(&mut pending, old);
        }
        self.count_tracked(&pending);
        Ok(())
    }

    /// Takes places, as few rows of them as possible. `prepaid` of them are paid for.
    pub(super) fn take_places(
        &self,
        taker: Taker,
        count: u64,
        prepaid: u64,
        purse: &Purse<'_>,
    ) -> Result<Vec<u64>, Error> {
        let space = &self.shared.space;
        if !purse.take(count - prepaid) {
            return Err(Error::Full);
        }
        let mut searches = 0;
        let mut places: Vec<u64> = Vec::with_capacity(count as usize);
        let mut lease = self.lease.lock();
        while (places.len() as u64) < count {
            match space.take_as(taker, &mut lease, 1, count - places.len() as u64) {
                Ok((first, row)) => places.extend(first..first + row),
                // They are paid for, so they exist: others have taken and freed places around the
                // search.
                Err(Error::Full) if searches < SEARCHES_MAX && !space.is_host_full() => {
                    searches += 1;
                }
                Err(error) => {
                    purse.give(count - prepaid);
                    space.free(&places);
                    return Err(error);
                }
            }
        }
        Ok(places)
    }

    /// Gives up the places of whole blocks. A hint: does nothing if the map can't be changed, nor
    /// where that would take more places than it gives. So rows of a former volume that others have
    /// stay: most of their blocks may never have been written.
    ///
    /// # Errors
    /// Errors of reading and [`Error::Damage`].
    pub(crate) fn discard(&self, mut blocks: Range<u64>) -> Result<(), Error> {
        self.shared.alive()?;
        let _inside = self.gate.read();
        let above = self.own_above.load(Ordering::Relaxed);
        while let Some(block) = self.map().skip(blocks.clone(), above)? {
            let next = (block / FANOUT as u64 + 1) * FANOUT as u64;
            blocks.start = next.min(blocks.end);
            let _alone = self.leaf_lock(block).write();
            self.unmap(block..blocks.start)?;
        }
        Ok(())
    }

    /// Gives up the places of blocks of one leaf. The caller has the lock of the leaf.
    fn unmap(&self, blocks: Range<u64>) -> Result<(), Error> {
        let Some(leaf) = self.map().leaf(blocks.start)? else { return Ok(()) };
        let places = blocks.clone().filter(|block| !leaf.entry(*block).is_none()).count();
        let path = self.map().path(blocks.start)?;
        // Places that others have as well become free with them; copies of nodes are taken now.
        if places <= path.shared(self.own_above.load(Ordering::Relaxed)) {
            return Ok(());
        }
        let mut given_up = Vec::new();
        // With an own place, the nodes are own as well. So a checkpoint gives back more than is
        // spent.
        let space = &self.shared.space;
        let purse = match blocks.clone().any(|block| self.is_own(leaf.entry(block))) {
            true => Purse::of_branch(space, &self.held),
            false => Purse::new(&space.budget, 0),
        };
        let dirty = path.make_dirty(&purse, &mut |home| given_up.push(home));
        let mut pending = self.pending.lock();
        pending.dirty_nodes += given_up.len();
        if dirty.is_ok() {
            for block in blocks {
                given_up.push(leaf.replace(block, Entry::NONE));
                pending.open.remove(&block);
            }
        }
        given_up.into_iter().for_each(|entry| self.give_up(&mut pending, entry));
        self.count_tracked(&pending);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
