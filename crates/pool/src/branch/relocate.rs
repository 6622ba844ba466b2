//! Moving blocks away from places that get another use.

use super::Inner;
use crate::Error;
use crate::disk::device::offset;
use crate::disk::format::{Bytes, Entry};
use crate::space::bitmaps::{Purse, Taker};
use std::sync::atomic::Ordering;

impl Inner {
    /// Gives a block a fresh place with this content. The former place is not given up: it is never
    /// handed out. The caller makes a checkpoint, and nobody else uses the branch.
    ///
    /// # Errors
    /// [`Error::Full`], and errors of the device.
    pub(crate) fn relocate(&self, block: u64, content: &Bytes) -> Result<(), Error> {
        let purse = Purse::new(&self.shared.space.budget, 0);
        let path = self.map().path(block)?;
        // A row has no nodes that would give up a place.
        path.make_dirty(&purse, &mut |_| ())?;
        for place in self.take_places(Taker::Ordinary, 1, 0, &purse)? {
            self.shared.disk.device.write_at(offset(place), content)?;
            path.leaf().replace(block, Entry::new(place, self.depth.load(Ordering::Relaxed)));
            self.pending.lock().allocs.push(place);
        }
        Ok(())
    }
}
