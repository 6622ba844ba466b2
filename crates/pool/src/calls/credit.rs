//! Space that is reserved before it is needed.
//!
//! Any write to a branch may need a place, also one to a block that has been written before: a fork
//! may have made the place another one's. So whoever must not fail later, such as a journal whose
//! blocks go home, takes a credit first, where it can still refuse the call that would need it.

use std::sync::Arc;

use vfscale_block::Device;

use crate::branch::Inner;
use crate::disk::format::PLACE_BYTES;
use crate::{Branch, Error};

/// Space for writes to some blocks of a branch. Dropping it gives back what was not spent.
///
/// Price: a block counts with its place and one for each node of the map that leads to it, three to
/// five in all, until it is written. Then all but what was needed is given back.
#[derive(Debug)]
#[must_use = "a credit that is dropped is given back"]
pub struct Credit {
    inner: Arc<Inner>,
    blocks: u64,
}

impl Branch {
    /// Takes a credit for writing `blocks` blocks of 4096 bytes, however often the branch is
    /// flushed and forked before.
    ///
    /// May block for the I/O: a pool that is full gives up its spare logs.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::Refused`] for a branch that can only be read, [`Error::Closed`],
    /// and errors of the device.
    pub fn credit(&self, blocks: u64) -> Result<Credit, Error> {
        let inner = self.inner()?;
        if inner.is_read_only() {
            let name = self.name().into();
            return Err(Error::Refused { name, why: "it can only be read" });
        }
        let places = blocks.checked_mul(inner.cost()).ok_or(Error::Full)?;
        let take = || inner.shared.space.budget.take(places);
        if !(take() || inner.give_up_spares()? && take()) {
            return Err(Error::Full);
        }
        Ok(Credit { inner: inner.clone(), blocks })
    }

    /// Writes as [`Device::write_at`] does, and spends one block of `credit` for each block that
    /// the range touches, also if it fails. It never fails because the pool is full.
    ///
    /// Blocks for the I/O.
    ///
    /// # Errors
    /// [`Error::Refused`] if the credit is too small or for another branch; nothing was done.
    /// [`Error::Device`].
    pub fn write_with(&self, credit: &mut Credit, offset: u64, buf: &[u8]) -> Result<(), Error> {
        let inner = self.inner()?;
        self.check_write(offset, buf.len() as u64)?;
        let unit = PLACE_BYTES as u64;
        let blocks = (offset + buf.len() as u64).div_ceil(unit) - offset / unit;
        if !Arc::ptr_eq(inner, &credit.inner) || blocks > credit.blocks {
            let name = self.name().into();
            return Err(Error::Refused { name, why: "the credit is too small, or for another" });
        }
        credit.blocks -= blocks;
        inner.write_paid(offset, buf, blocks * inner.cost())
    }
}

impl Credit {
    /// Returns the number of blocks that are left.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Takes `blocks` blocks off, as a credit of their own; all that are left if there are fewer.
    pub fn split(&mut self, blocks: u64) -> Credit {
        let blocks = blocks.min(self.blocks);
        self.blocks -= blocks;
        Credit { inner: self.inner.clone(), blocks }
    }
}

impl Drop for Credit {
    fn drop(&mut self) {
        self.inner.shared.space.give(self.blocks * self.inner.cost());
    }
}
