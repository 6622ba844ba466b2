//! Reservations of the user of a branch: see [`crate::held`].

use vfscale_block::Demand;

use super::Inner;
use crate::Error;
use crate::format::FANOUT;
use crate::map::levels;

impl Inner {
    /// Returns the most places that writing these blocks takes.
    fn places_of(&self, demand: Demand) -> u64 {
        let Demand { blocks, rows } = demand;
        let leaves = (2 * rows).saturating_add(blocks / FANOUT as u64).min(blocks);
        blocks.saturating_add(leaves.saturating_mul(levels(self.blocks()).into()))
    }

    /// Reserves what writing these blocks takes.
    ///
    /// May block for the I/O.
    ///
    /// # Errors
    /// [`Error::Full`], and those of a checkpoint.
    pub(crate) fn reserve(&self, demand: Demand, is_urgent: bool) -> Result<(), Error> {
        self.shared.alive()?;
        let (places, space) = (self.places_of(demand), &self.shared.space);
        let take = || space.take_budget(places, is_urgent);
        if !(take() || self.reclaim()? && take()) {
            return Err(Error::Full);
        }
        self.held.promise(places);
        Ok(())
    }

    /// Gives back what was reserved.
    pub(crate) fn unreserve(&self, demand: Demand) {
        self.shared.space.give(self.held.release(self.places_of(demand)));
    }

    /// Gives back all that is reserved. No other call of the branch runs concurrently. Takes no
    /// lock.
    pub(crate) fn end_reservations(&self) {
        self.shared.space.give(self.held.end());
    }
}
