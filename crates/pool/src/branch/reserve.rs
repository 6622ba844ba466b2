//! Reservations of the user of a branch: see [`crate::space::reservations`].

use std::ops::Range;

use super::Inner;
use crate::Error;
use crate::disk::format::{FANOUT, PLACE_BYTES};
use crate::state::limit::Asked;
use crate::state::map::levels;

impl Inner {
    /// Returns the most places that writing these blocks takes.
    fn places_of(&self, blocks: u64) -> u64 {
        blocks.saturating_mul(self.cost())
    }

    /// Reserves what writing `blocks` blocks takes, wherever they lie.
    ///
    /// May block for the I/O.
    ///
    /// # Errors
    /// [`Error::Limit`] if it is not urgent, [`Error::Full`], and those of a checkpoint.
    pub(crate) fn reserve(&self, blocks: u64, is_urgent: bool) -> Result<(), Error> {
        self.shared.alive()?;
        let _asked = if is_urgent { None } else { self.ask(blocks)? };
        // Writes of a branch make commits take from their reserve.
        let is_low = || self.shared.is_low() && !is_urgent;
        let (places, space) = (self.places_of(blocks), &self.shared.space);
        let take = || space.take_budget(places, is_urgent);
        self.shared.with_room(|| {
            if is_low() && (!self.give_up_spares()? || is_low()) {
                return Err(Error::Full);
            }
            if take() || self.reclaim()? && take() { Ok(()) } else { Err(Error::Full) }
        })?;
        self.held.promise(places);
        Ok(())
    }

    /// Returns how many places the branch may still get, if it has a limit.
    pub(crate) fn left(&self) -> Option<u64> {
        let most = self.limit.most()?;
        // Before what is written: that is promised until then.
        let reserved = self.held.promised() / self.cost();
        let has = {
            let pending = self.pending.lock();
            self.limit.counted() + pending.growth()
        };
        Some(most.saturating_sub(u64::try_from(has).unwrap_or(0)).saturating_sub(reserved))
    }

    /// Enters a reservation of blocks below the limit. `None` if the branch has none.
    ///
    /// # Errors
    /// [`Error::Limit`] if it is above the limit, even after a checkpoint.
    fn ask(&self, blocks: u64) -> Result<Option<Asked<'_>>, Error> {
        if self.limit.most().is_none() {
            return Ok(None);
        }
        let asked = self.limit.ask(blocks);
        let fits = || {
            // Before what is promised: that is asked for until then.
            let asked = self.limit.asked();
            self.left().is_none_or(|left| asked <= left)
        };
        if fits() || self.recount()? && fits() { Ok(Some(asked)) } else { Err(Error::Limit) }
    }

    /// Makes the places free that the branch has given up, and counts how many it has. Returns
    /// whether that was done.
    #[cold]
    fn recount(&self) -> Result<bool, Error> {
        self.settle()?;
        let state = self.shared.state.lock();
        let Some(record) = state.table.get(self.node()) else { return Ok(false) };
        self.limit.load(&state.table, record);
        Ok(true)
    }

    /// Gives back what was reserved.
    pub(crate) fn unreserve(&self, blocks: u64) {
        self.shared.space.give(self.held.release(self.places_of(blocks)));
    }

    /// Gives back what was reserved, but for up to `most` blocks that nothing has used. Returns how
    /// many these are.
    pub(crate) fn renew(&self, blocks: u64, most: u64) -> u64 {
        let (stay, rest) = self.held.renew(self.places_of(blocks), self.cost(), most);
        self.shared.space.give(rest);
        stay
    }

    /// Reserves what writing the whole blocks in these ranges of bytes takes, for as long as the
    /// branch is open; once.
    ///
    /// May block for the I/O.
    ///
    /// # Errors
    /// [`Error::Full`], and those of reading the map and of a checkpoint.
    pub(crate) fn reserve_fixed(&self, ranges: &[Range<u64>]) -> Result<(), Error> {
        self.shared.alive()?;
        let unit = PLACE_BYTES as u64;
        let rows = ranges.iter().map(|range| range.start.div_ceil(unit)..range.end / unit);
        let rows: Vec<_> = rows.filter(|row| row.start < row.end).collect();
        self.shared.with_room(|| {
            let is_fixed = self.is_fixed(&rows)? || self.reclaim()? && self.is_fixed(&rows)?;
            if is_fixed { Ok(()) } else { Err(Error::Full) }
        })
    }

    /// Makes blocks fixed, unless some are. Returns false if the pool has too little for that.
    fn is_fixed(&self, rows: &[Range<u64>]) -> Result<bool, Error> {
        let _alone = self.gate.write();
        if self.held.fixed() > 0 {
            return Ok(true);
        }
        let (mut blocks, mut left) = (0, 0);
        for block in rows.iter().flat_map(Range::clone) {
            let leaf = self.map().leaf(block)?;
            blocks += 1;
            left += u64::from(!leaf.is_some_and(|leaf| self.is_own(leaf.entry(block))));
        }
        // Each leaf, and the nodes above it: a row begins and ends within one.
        let leaves = (2 * rows.len() as u64 + blocks / FANOUT as u64).min(blocks);
        let nodes = leaves.saturating_mul(levels(self.blocks()).into());
        let space = &self.shared.space;
        if !space.budget.take(left + nodes) {
            return Ok(false);
        }
        if !space.protect(left) {
            space.give(left + nodes);
            return Ok(false);
        }
        self.held.promise(nodes);
        self.held.fix(rows.to_vec(), left);
        Ok(true)
    }

    /// Gives back all that is reserved. No other call of the branch runs concurrently. Waits for no
    /// lock.
    pub(crate) fn end_reservations(&self) {
        self.shared.space.unprotect(self.held.left());
        self.shared.space.give(self.held.end());
    }
}
