//! What the owner of a log knows of it from elsewhere: from its superblock.
//!
//! # Purpose
//!
//! A log says of itself where it ends, but not whether it is the one that its owner wrote last: half of a
//! mirror that was away, or a copy that was put back, is whole. And to find its end it has to be read as a
//! whole. So the owner remembers, outside of the log, how far that was when it was opened or closed last.
//!
//! # Why an older log is refused, and no other
//!
//! The owner writes down a record when it is durable. No later state of that log ends before it:
//! epochs and places only grow. It may end anywhere behind it, for what is logged later is not written down.
//!
//! # Why a log that was closed need not be read
//!
//! A new epoch begins right behind the last record, and its opening record is durable before anything
//! else of the epoch is written. So if the record that closed the log is there, and no whole
//! record of a later epoch behind it, then either nothing was written since, or an opening record that
//! is torn, behind which there is nothing; both are logs that end with the closing record. If the log was
//! filled once more since then, the closing record was written over before the place behind it was. An
//! owner who opens a log says so before he logs anything ([`Known::is_closed`]), so that an opening record
//! which rots does not make the log look closed either. Whatever is not as it should be, the whole log
//! is read.

use vfscale_block::Device;

use crate::lsn::{Geometry, LOG_BLOCK_BYTES};
use crate::record::{self, FEATURES_KNOWN, RecordHeader, RecordKind};
use crate::recovery::{self, Found};
use crate::{Error, Lsn, Result, VolumeId};

/// What the owner of a log knows of it. `Default`: nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// The epoch that it has reached at least; 0 if that is not known.
    pub epoch: u64,
    /// A record that it has reached at least.
    pub last: Lsn,
    /// The number of its last checkpoint, at least.
    pub checkpoint: u64,
    /// It was closed with that record, and not opened since.
    pub is_closed: bool,
    /// The id of the device that it is on; zero if it has none.
    pub device: [u8; 16],
}

/// How many cycles, and epochs, a new log keeps from all that is known of the one whose place it takes: by
/// far more than a log can have gone on since its owner wrote down how far it was.
const APART: u32 = 1 << 16;

impl Known {
    /// What a log is that its owner makes for the first time. The first cycle is 1, so that no record has the
    /// place that stands for none.
    pub(crate) const FIRST: Self =
        Self { epoch: 1, last: Lsn::new(1, 0), checkpoint: 0, is_closed: true, device: [0; 16] };

    /// Places from this cycle on are late: half of what can be counted.
    pub const CYCLE_LATE: u32 = 1 << 31;

    /// Returns what a new log on `device` is to be ([`Journal::renew`](crate::Journal::renew)) that takes
    /// the place of one which may have reached the epoch `epoch` and the place `newest`. Both are behind it
    /// by so much that nothing of the former log, wherever a part of it comes back from, is ever taken for
    /// a part of the new one. A [late](Self::CYCLE_LATE) place is not counted on: its owner forgets such
    /// places.
    #[must_use]
    pub fn renewed(epoch: u64, newest: Lsn, device: [u8; 16]) -> Self {
        let cycle = newest.cycle().min(Self::CYCLE_LATE) + APART;
        let epoch = epoch.min(u64::MAX / 2) + u64::from(APART);
        Self { epoch, last: Lsn::new(cycle, 0), checkpoint: 0, is_closed: true, device }
    }

    /// That a log which ends so can be the one that is known.
    fn check(&self, device: &dyn Device, found: &Found) -> Result<()> {
        let name = || device.name().into();
        let (epoch, last) = (found.epoch, found.last.lsn);
        if (epoch, last) < (self.epoch, self.last) {
            let (known_epoch, known) = (self.epoch, self.last);
            return Err(Error::Stale { device: name(), epoch, last, known_epoch, known });
        }
        let is_other = |header: &RecordHeader| {
            let ids = [header.device, self.device];
            ids[0] != ids[1] && !ids.contains(&[0; 16])
        };
        if is_other(&found.last) {
            return Err(Error::OtherLog { device: name() });
        }
        let features = found.live.iter().fold(0, |bits, header| bits | header.features);
        match features & !FEATURES_KNOWN {
            0 => Ok(()),
            bits => Err(Error::Features { device: name(), bits }),
        }
    }

    /// The log, if it ends as its owner has closed it. Reads two blocks.
    fn closed(&self, device: &dyn Device, geometry: Geometry, volume: VolumeId) -> Option<Found> {
        if !self.is_closed || self.last.block() >= geometry.blocks {
            return None;
        }
        let record_at = |position: u64| {
            let mut bytes = vec![0; LOG_BLOCK_BYTES];
            device.read_at(geometry.device_offset(position), &mut bytes).ok()?;
            // An opening or a closing record has one block. What claims more is not looked at.
            let claimed = record::claimed_blocks(&bytes, volume);
            let header = (claimed == Some(1)).then(|| {
                let block = geometry.lsn(position).block();
                record::decode(&bytes, volume, block, geometry.blocks)
            });
            Some(header.flatten())
        };
        let position = geometry.position(self.last);
        let last = record_at(position)??;
        let is_it = last.kind == RecordKind::Unmount
            && (last.epoch, last.lsn) == (self.epoch, self.last)
            && last.tail_lsn == last.lsn;
        let behind = record_at(position + 1)?;
        let is_last = behind.is_none_or(|behind| behind.epoch <= self.epoch);
        (is_it && is_last).then(|| Found {
            epoch: last.epoch,
            live: vec![last],
            last,
            unconnected: 0,
            checkpoint: self.checkpoint,
        })
    }
}

/// Finds the end of a log of which so much is known: reads as little of it as that permits.
///
/// # Errors
/// As [`recovery::find`]; [`Error::Stale`], [`Error::OtherLog`], [`Error::Features`].
pub(crate) fn find(
    device: &dyn Device,
    geometry: Geometry,
    volume: VolumeId,
    known: &Known,
) -> Result<Found> {
    let found = match known.closed(device, geometry, volume) {
        Some(found) => found,
        None => recovery::find(device, geometry, volume)?,
    };
    known.check(device, &found)?;
    Ok(found)
}

#[cfg(all(test, not(shuttle)))]
mod tests;
