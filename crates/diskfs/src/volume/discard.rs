//! Discards: the device learns which blocks are free.
//!
//! # Purpose
//!
//! An image file gives the blocks of removed files back to its file system, a disk of flash memory
//! need not copy them. [`Volume::trim`] discards what is free now, as `FITRIM` of Linux does. A
//! volume that is opened with discards also notes what its transactions free (`volume/freed.rs`),
//! and discards that in the background (`data/discarder.rs`) and when it is closed. It does so by
//! default if the device is thinly provisioned
//! ([`Discards::is_thin`](vfscale_block::Discards::is_thin)).
//!
//! # Invariants
//!
//! * A block is discarded only after the transaction that freed it is durable: a crash before that
//!   would give the block back to its former owner. The indexes of the groups have no other blocks,
//!   and the runs are claimed there ([`Groups::claim_within`](crate::alloc::Groups::claim_within)).
//!   A block of metadata is no different from one of data: its cancellation is part of the same
//!   transaction, so no recovery writes an earlier version of it, and its last write-back had ended
//!   before the commit.
//! * Nobody can get a run from before its discard begins until it has returned: it is claimed for
//!   that time. A later write of the block is therefore ordered behind the discard.
//! * What is claimed is reserved as well ([`Space::borrow`](crate::alloc::space::Space::borrow)),
//!   so a thread that has reserved blocks finds as many. A quarter of the available blocks is
//!   borrowed at most. A thread that lacks space waits for the discard under way
//!   ([`Volume::await_discard`]).

use std::ops::Range;

use vfscale_block::Discards;
use vfscale_sync::atomic::Ordering;

use super::Volume;
use super::freed::{FreedRegions, TrimRange};
use crate::alloc::FreeRuns;
use crate::base::fault::Fault;
use crate::format::{BLOCK_BYTES, BlockRange, byte_of_block};

/// The most blocks that are claimed for a discard: 64 MiB.
const CLAIM_BLOCKS_MAX: u64 = 16 << 10;
/// The share of the available blocks that a discard may claim.
const CLAIM_SHARE: u64 = 4;
/// The shortest run that is discarded in the background, in bytes, if nobody gets the space.
const BACKGROUND_BYTES_MIN: u64 = 64 << 10;

impl Volume {
    /// Discards the free blocks of a range, as `FITRIM` of Linux: those that are free when their
    /// turn comes. Returns the number of bytes that were discarded, blocks that had been discarded
    /// before among them. They are durable with the next flush of the device.
    ///
    /// Blocks for the I/O; other calls on the volume continue during that time.
    ///
    /// # Errors
    /// [`Fault::ReadOnly`]; [`Unsupported`](vfscale_block::Error::Unsupported) if the device can't
    /// discard; the errors of the log, if that is shut down; the errors of the device, and damage.
    /// A part may be discarded then.
    pub fn trim(&self, range: TrimRange) -> Result<u64, Fault> {
        self.changeable()?;
        let shortest = range.minlen.div_ceil(BLOCK_BYTES as u64);
        let how = self.device.discards().ok_or_else(|| cant_discard(self))?;
        let shortest = shortest.max(blocks_of(how.granularity.into()));
        let end = range.start.saturating_add(range.len) / BLOCK_BYTES as u64;
        let mut left = range.start.div_ceil(BLOCK_BYTES as u64)..end.min(self.geometry().blocks());
        let mut bytes = 0;
        while !left.is_empty() {
            let (blocks, next) = self.discard_free(left.clone(), shortest)?;
            bytes += blocks * BLOCK_BYTES as u64;
            left.start = next;
        }
        if self.device.discards().is_none() {
            return Err(cant_discard(self));
        }
        Ok(bytes)
    }

    /// Begins a pass of discards in the background. Returns whether there is something to discard
    /// with [`discard_next`](Self::discard_next): what was freed before the pass before this one.
    pub(crate) fn begin_discards(&self) -> bool {
        let freed = self.metadata.shared().freed.as_ref();
        freed.is_some_and(FreedRegions::begin_pass) && self.discards_in_background().is_some()
    }

    /// Discards what is free in the next regions that are due. Returns false if none are, or if
    /// nothing can be discarded any more. Blocks for the I/O.
    ///
    /// # Errors
    /// The errors of [`trim`](Self::trim); nothing is discarded in the background from now on.
    pub(crate) fn discard_next(&self) -> Result<bool, Fault> {
        let (Some(freed), Some(how)) =
            (&self.metadata.shared().freed, self.discards_in_background())
        else {
            return Ok(false);
        };
        if self.is_read_only() {
            return Ok(false);
        }
        let Some(range) = freed.take() else { return Ok(false) };
        let unit = if how.is_thin { 1 } else { BACKGROUND_BYTES_MIN };
        let shortest = blocks_of(u64::from(how.granularity).max(unit));
        // A run that begins or ends outside is discarded up to the end of an aligned unit.
        let mut left = range.start.saturating_sub(shortest - 1)
            ..range.end.saturating_add(shortest - 1).min(self.geometry().blocks());
        while !left.is_empty() {
            match self.discard_free(left.clone(), shortest) {
                Ok((_, next)) => left.start = next,
                Err(Fault::ReadOnly) => {
                    // The volume was sealed in the meantime.
                    freed.note(std::iter::once(BlockRange::new(
                        range.start,
                        (range.end - range.start) as u32,
                    )));
                    return Ok(false);
                }
                Err(fault) => {
                    self.discards.has_failed.store(true, Ordering::Relaxed);
                    return Err(fault);
                }
            }
        }
        Ok(true)
    }

    /// Discards everything that was freed and is durable, for the end of the volume, or because the
    /// device is full. An error is reported and has no further effect.
    pub(super) fn discard_all_freed(&self) {
        let Some(freed) = &self.metadata.shared().freed else { return };
        // First the regions that are due, then those that were noted since.
        for _ in 0..2 {
            freed.begin_pass();
            let discarded = loop {
                match self.discard_next() {
                    Ok(true) => {}
                    ended => break ended,
                }
            };
            if let Err(fault) = discarded {
                let device = self.device.name();
                tracing::warn!(device, %fault, "freed blocks were not discarded");
                return;
            }
        }
    }

    /// Waits until the discard under way has ended and its blocks are available, if there is one.
    pub(crate) fn await_discard(&self) {
        drop(self.discards.turn.lock());
    }

    /// Returns how to discard in the background; `None` if nothing is to be discarded any more.
    fn discards_in_background(&self) -> Option<Discards> {
        let has_failed = self.discards.has_failed.load(Ordering::Relaxed);
        self.device.discards().filter(|_| !has_failed)
    }

    /// Discards the free runs of at least `shortest` blocks at the start of a range. Returns the
    /// number of their blocks, and the block at which to continue.
    fn discard_free(&self, range: Range<u64>, shortest: u64) -> Result<(u64, u64), Fault> {
        let _turn = self.discards.turn.lock();
        // A thread that seals the volume has waited for its turn.
        self.writable()?;
        let (space, end) = (self.space(), range.end);
        let most = (space.figures().available / CLAIM_SHARE).clamp(1, CLAIM_BLOCKS_MAX);
        if !space.borrow(most) {
            // The last blocks are for those who write.
            return Ok((0, end));
        }
        let claimed = self.groups().claim_within(&self.reader(), range, (shortest, most));
        let blocks = claimed.as_ref().map_or(0, FreeRuns::blocks);
        space.come_back(most - blocks);
        let found = claimed.map_err(Fault::local)?;
        let discard = |run: &BlockRange| {
            self.device.discard(byte_of_block(run.start), run.len() * BLOCK_BYTES as u64)
        };
        let discarded = found.runs.iter().try_for_each(discard);
        found.runs.iter().for_each(|run| self.groups().unclaim(*run));
        space.come_back(blocks);
        discarded?;
        Ok((blocks, found.next))
    }
}

fn blocks_of(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK_BYTES as u64).max(1)
}

fn cant_discard(volume: &Volume) -> Fault {
    let (device, operation) = (volume.device.name().into(), vfscale_block::Operation::Discard);
    vfscale_block::Error::Unsupported { device, operation, why: "it does not support discards" }
        .into()
}

#[cfg(test)]
mod tests;
