//! The growth of a pool.
//!
//! The device becomes larger first; then one commit says the new size. Zones that were never used
//! have no bitmaps, so nothing else is written, whatever the size. A power cut leaves the former
//! size, perhaps on a larger device, or the new one.

use vfscale_block::Error as DeviceError;

use crate::disk::device::offset;
use crate::disk::format::PLACE_BYTES;
use crate::disk::layout::Layout;
use crate::state::commit::{Change, Shared, check_layout, clear_copies};
use crate::{Error, Pool};

impl Pool {
    /// Makes the pool larger: `size` bytes, rounded down to blocks of 4096, or all of its device,
    /// as far as a pool can be. A smaller device is enlarged. Does nothing if the pool has that
    /// size already. Branches go on meanwhile, and keep their sizes. Returns the size.
    ///
    /// Blocks for the I/O: two flushes.
    ///
    /// # Errors
    /// [`Error::Size`], also for a smaller size than the pool has, and errors of the device, in
    /// particular if its size is fixed.
    pub fn grow(&self, size: Option<u64>) -> Result<u64, Error> {
        let layout = self.shared.disk.layout();
        let on_device = self.shared.disk.device.size() / PLACE_BYTES as u64;
        let places = match size {
            Some(size) => size / PLACE_BYTES as u64,
            None => on_device.min(layout.places_max()),
        };
        if places < layout.places {
            return Err(Error::Size("it is larger already: it does not shrink"));
        }
        self.shared.grow(places)?;
        Ok(self.usage().size)
    }
}

impl Shared {
    /// Makes the pool larger, for a branch that grows by so many blocks: by twice as many places,
    /// or less if the device can't grow or a pool can't be as large. Does nothing if there are no
    /// blocks.
    ///
    /// # Errors
    /// Errors of the device.
    pub(crate) fn grow_with(&self, blocks: u64) -> Result<(), Error> {
        if blocks == 0 {
            return Ok(());
        }
        let layout = self.disk.layout();
        let on_device = self.disk.device.size() / PLACE_BYTES as u64;
        let wanted = layout.places.saturating_add(2 * blocks).max(on_device);
        match self.grow(wanted.min(layout.places_max())) {
            Err(Error::Device(DeviceError::Unsupported { .. })) => {
                self.grow(on_device.min(layout.places_max()))
            }
            grown => grown,
        }
    }

    /// Makes the pool larger, unless it has that size.
    fn grow(&self, places: u64) -> Result<(), Error> {
        let mut state = self.state.lock();
        self.alive()?;
        let former = self.disk.layout();
        if places <= former.places {
            return Ok(());
        }
        check_layout(&Layout { places, ..former })?;
        if self.disk.device.size() < offset(places) {
            self.disk.device.set_size(offset(places))?;
        }
        let zones = self.space.begin_growth(places)?;
        clear_copies(&self.disk, former.places..places)?;
        state.places = places;
        self.commit(&mut state, Change { zones, ..Change::default() }, || ())?;
        self.space.grow(places);
        Ok(())
    }
}
