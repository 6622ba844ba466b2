//! Giving the storage of free places back ([`crate::space::bitmaps`] says which).

use crate::disk::format::PLACE_BYTES;
use crate::state::commit::Notice;
use crate::{Error, Pool};

impl Pool {
    /// Has `call` called after each commit that has made places free, if the device is thin
    /// ([`vfscale_block::Discards::is_thin`]): [`discard_freed`](Self::discard_freed) is due then.
    /// `call` must not use the pool or wait. Only the first call of this method counts.
    pub fn on_freed(&self, call: impl Fn() + Send + Sync + 'static) {
        let _ = self.shared.freed.set(Notice(Box::new(call)));
    }

    /// Discards the places that commits have made free since the last call, unless they are in use
    /// again: a sparse image gives them back to its file system. Does nothing on a device that is
    /// not thin. Returns the bytes.
    ///
    /// Blocks for the I/O. Commits wait for the discard of up to 4 MiB.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn discard_freed(&self) -> Result<u64, Error> {
        self.shared.alive()?;
        Ok(self.shared.space.discard_freed()? * PLACE_BYTES as u64)
    }

    /// Makes free what open branches have given up, and discards all free places, also those that
    /// have been discarded before. Returns the bytes, which are durable with the next flush.
    ///
    /// Blocks for the I/O. Commits wait for the discard of up to 124 MiB.
    ///
    /// # Errors
    /// [`Unsupported`](vfscale_block::Error::Unsupported) if the device can't discard; its other
    /// errors, and those of reading bitmaps. A part may be discarded then.
    pub fn trim(&self) -> Result<u64, Error> {
        self.shared.alive()?;
        let open: Vec<_> = self.open.lock().values().cloned().collect();
        open.iter().try_for_each(|branch| branch.settle())?;
        Ok(self.shared.space.discard_all()? * PLACE_BYTES as u64)
    }
}
