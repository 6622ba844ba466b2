//! The state of a log that its owner has recorded outside of it: in its superblock.
//!
//! # Purpose
//!
//! A log shows where it ends, but not whether it is the log that its owner wrote last: half of a
//! mirror that was detached, or a restored copy, is whole as well. And finding its end requires
//! reading all of it. So the owner records outside of the log the LSN that it had reached when it
//! was last opened or closed.
//!
//! # Why an older log is refused, and no other
//!
//! The owner records an LSN when its record is durable. No later state of that log ends before it:
//! epochs and LSNs only grow. The log may end anywhere after it, for later records are not noted.
//!
//! # Why a log that was closed need not be read
//!
//! A new epoch begins right after the last record, and its opening record is durable before
//! anything else of the epoch is written. So if the record that closed the log is found, and no
//! whole record of a later epoch follows it, there are two cases: nothing was written since, or an
//! opening record is torn, and nothing follows that. Both are logs that end with the closing
//! record. If the log was filled once more since then, the closing record was overwritten before
//! the block after it was. An owner that opens a log records that before it logs anything
//! ([`Known::is_closed`]), so that an opening record which rots does not make the log look closed
//! either. If any of this does not hold, the whole log is read.
//!
//! So a record that closed the log is not needed for what it says: if it is damaged, but still has
//! its LSN, the log is closed. If it can't be read, this may be another log, and only a repair
//! takes it for closed.
//!
//! Such a log need not be written either before something is to be logged
//! ([`Options::opens_late`](crate::Options::opens_late)): it stays closed, and the record of its
//! owner stays right. The first transaction begins the epoch, in the order above: a flush, the
//! opening record, a flush, the record of its owner; then whatever the transaction logs.
//!
//! # Why a new log is always read
//!
//! A new log that lies where another one was must not be written before its owner knows it: the
//! other one is valid until then. So it begins without a record, and the state that the owner has
//! recorded describes the one before the first ([`Known::is_new`]). That is used only if the region
//! has no record with the id of the log. No other log has that id, so nothing was logged then.
//!
//! The owner need not record that the first epoch has begun, since what it recorded before does not
//! say that nothing was logged: whoever opens such a log reads all of it, and never stops at a
//! record that closes it. Nothing that was synced depends on the opening record, for if that rots
//! and a later record does not, the later one has no tail, which is damage. A checkpoint can be
//! lost without a word only if all records rot from it on; that holds for every log, since a record
//! that rots at the end looks like one that a crash has torn. Until the log is closed once, its
//! opening takes the time that its length takes: that of a copy is short, and a whole volume has
//! such a log only if it was made in a copy.

use vfscale_block::Device;

use crate::disk::record::{self, FEATURES_KNOWN, RecordHeader, RecordKind};
use crate::disk::recovery::{self, Found, Scanned};
use crate::lsn::{Geometry, LOG_BLOCK_BYTES};
use crate::{Error, Lsn, Result, VolumeId};

/// The state of a log that its owner has recorded. `Default`: nothing is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// Epoch that the log has reached at least; 0 if not known.
    pub epoch: u64,
    /// LSN that the log has reached at least.
    pub last: Lsn,
    /// Number of its last checkpoint, at least.
    pub checkpoint: u64,
    /// Whether it was closed with that record, and not opened since.
    pub is_closed: bool,
    /// Whether, if it is closed, that record is the first one of a log whose
    /// [`VolumeId`] no other log has. The record may be missing then: a region without any record
    /// of the log has one that is empty ([`successor`](Self::successor)). And the log may have been
    /// opened since: its owner need not record that.
    pub is_new: bool,
    /// Id of the device that it is on; zero if it has none.
    pub device: [u8; 16],
}

/// Distance in cycles and in epochs between a new log and the recorded state of the log that it
/// replaces. It exceeds by far what a log can have advanced since its owner recorded its state.
const APART: u32 = 1 << 16;

impl Known {
    /// State of a log that is created for the first time. The first cycle is 1, so that no record
    /// has the LSN [`Lsn::NONE`].
    pub(crate) const FIRST: Self = Self {
        epoch: 1,
        last: Lsn::new(1, 0),
        checkpoint: 0,
        is_closed: true,
        is_new: false,
        device: [0; 16],
    };

    /// First cycle that counts as late: half of what can be counted.
    pub const CYCLE_LATE: u32 = 1 << 31;

    /// Returns the state of a new log on `device` ([`Journal::renew`](crate::Journal::renew)) that
    /// replaces one which may have reached the epoch `epoch` and the LSN `newest`. The new log
    /// begins so far after both that no part of the former log, wherever it may reappear from, is
    /// ever taken for a part of the new one. A cycle later than [`CYCLE_LATE`](Self::CYCLE_LATE)
    /// counts as that cycle: the owner discards such LSNs.
    #[must_use]
    pub fn renewed(epoch: u64, newest: Lsn, device: [u8; 16]) -> Self {
        let cycle = newest.cycle().min(Self::CYCLE_LATE) + APART;
        let epoch = epoch.min(u64::MAX / 2) + u64::from(APART);
        let last = Lsn::new(cycle, 0);
        Self { epoch, last, checkpoint: 0, is_closed: true, is_new: false, device }
    }

    /// Returns the state of a new, empty log that follows one which ended at `last` and has nothing
    /// to replay. All its LSNs are later. It has a [`VolumeId`] that no other log has, so it may
    /// lie in the region of the former one, which need not be erased.
    ///
    /// The owner records this state before anything is written to the log. From then on the log
    /// exists, without any record.
    ///
    /// # Errors
    /// [`Error::WornOut`] if no log can begin after `last`.
    pub fn successor(last: Lsn) -> Result<Self> {
        let cycle = last.cycle().checked_add(1).filter(|cycle| *cycle < u32::MAX);
        let last = Lsn::new(cycle.ok_or(Error::WornOut)?, 0);
        Ok(Self { last, is_new: true, ..Self::FIRST })
    }

    /// Returns the log that this state describes, if it is a new one: it has one record.
    fn of_new(&self, geometry: Geometry, volume: VolumeId) -> Option<Found> {
        if !(self.is_new && self.is_closed && self.last.block() == 0 && self.checkpoint == 0) {
            return None;
        }
        let last = self.closing(geometry, volume)?;
        Some(Found::whole(vec![last], last, 0))
    }

    /// Returns a record that closes a log with this state. What the one on disk says beside that is
    /// of no account.
    fn closing(&self, geometry: Geometry, volume: VolumeId) -> Option<RecordHeader> {
        let record = first_record(geometry, volume, self);
        record::decode(&record, volume, self.last.block(), geometry.blocks)
    }

    /// Checks that a log with the end `found` can be the recorded one.
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

    /// Returns whether the log was closed with a record that can't be read now. Nothing was logged
    /// behind that.
    fn lacks_closing(&self, scanned: &Scanned) -> bool {
        self.is_closed && !self.is_new && scanned.is_unread(self.last.block())
    }

    /// Returns the log if it ends as its owner has closed it. Reads two blocks.
    fn closed(&self, device: &dyn Device, geometry: Geometry, volume: VolumeId) -> Option<Found> {
        if !self.is_closed || self.is_new || self.last.block() >= geometry.blocks {
            return None;
        }
        // An opening or a closing record has one block. A block that claims more is ignored.
        let record_at = |position: u64| {
            let mut bytes = vec![0; LOG_BLOCK_BYTES];
            device.read_at(geometry.device_offset(position), &mut bytes).ok()?;
            let claimed = record::claimed_blocks(&bytes, volume);
            let block = geometry.lsn(position).block();
            let header = || record::decode(&bytes, volume, block, geometry.blocks);
            (claimed == Some(1)).then(|| (record::claimed_lsn(&bytes), header()))
        };
        let position = geometry.position(self.last);
        let last = match record_at(position)? {
            (_, Some(last)) => last,
            // Its owner knows all of it.
            (lsn, None) if lsn == self.last => self.closing(geometry, volume)?,
            (_, None) => return None,
        };
        let is_it = last.kind == RecordKind::Unmount
            && (last.epoch, last.lsn) == (self.epoch, self.last)
            && last.tail_lsn == last.lsn;
        // If it can't be read, it may be an opening record, and nothing was logged behind that.
        let behind = record_at(position + 1).and_then(|(_, header)| header);
        let is_last = behind.is_none_or(|behind| behind.epoch <= self.epoch);
        (is_it && is_last).then(|| Found::whole(vec![last], last, self.checkpoint))
    }
}

/// Returns the only record of an empty log whose state is `known`: the record that closes it.
pub(crate) fn first_record(geometry: Geometry, volume: VolumeId, known: &Known) -> Vec<u8> {
    let (lsn, epoch, device) = (known.last, known.epoch, known.device);
    let mut block = vec![0; LOG_BLOCK_BYTES];
    let header = RecordHeader {
        kind: RecordKind::Unmount,
        flags: 0,
        epoch,
        lsn,
        tail_lsn: lsn,
        sync_lsn: Lsn::NONE,
        prev_lsn: Lsn::NONE,
        prev_crc: 0,
        blocks: 1,
        payload_bytes: 0,
        log_blocks: geometry.blocks,
        checkpoint: 0,
        stream_offset: 0,
        crc: 0,
        features: 0,
        device,
    };
    record::encode(&mut block, &header, volume, |_| lsn.cycle());
    block
}

/// Finds the end of a log whose recorded state is `known`, and reads as little of it as that
/// permits. If `may_cut`, the log ends where it can't be read any further.
///
/// # Errors
/// Errors of [`Scanned::find_end`]; [`Error::Stale`],
/// [`Error::OtherLog`], [`Error::Features`].
pub(crate) fn find(
    device: &dyn Device,
    geometry: Geometry,
    volume: VolumeId,
    known: &Known,
    may_cut: bool,
) -> Result<Found> {
    if let Some(found) = known.closed(device, geometry, volume) {
        known.check(device, &found)?;
        return Ok(found);
    }
    let scanned = recovery::scan(device, geometry, volume)?;
    let found = match scanned.find_end(device, geometry, may_cut) {
        Err(Error::NotALog { device, offset }) => {
            known.of_new(geometry, volume).ok_or(Error::NotALog { device, offset })?
        }
        found => found?,
    };
    match known.check(device, &found) {
        Err(Error::Stale { .. }) if may_cut && known.lacks_closing(&scanned) => {
            let last = known.closing(geometry, volume).ok_or(Error::WornOut)?;
            Ok(Found { cut: Some(known.last), ..Found::whole(vec![last], last, known.checkpoint) })
        }
        Err(error @ Error::Stale { .. }) => Err(scanned.or_unread(error)),
        checked => checked.map(|()| found),
    }
}

/// Finds the end of a log that may be opened late. Returns also whether it is closed, as `known`
/// says. Reads two blocks then, but all of a new log that is not `unused`.
///
/// # Errors
/// The errors of [`find`].
pub(crate) fn find_late(
    device: &dyn Device,
    geometry: Geometry,
    volume: VolumeId,
    known: &Known,
    unused: bool,
    may_cut: bool,
) -> Result<(Found, bool)> {
    let closed = match known.is_new {
        true => known.of_new(geometry, volume).filter(|_| unused),
        false => known.closed(device, geometry, volume),
    };
    if let Some(found) = closed {
        known.check(device, &found)?;
        return Ok((found, true));
    }
    let found = find(device, geometry, volume, known, may_cut)?;
    let is_as_known = found.last.kind == RecordKind::Unmount
        && (found.epoch, found.last.lsn) == (known.epoch, known.last);
    Ok((found, known.is_new && is_as_known))
}

#[cfg(all(test, not(shuttle)))]
mod tests;
