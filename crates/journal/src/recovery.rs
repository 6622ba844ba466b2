//! Finding the end of a log after a crash, and replaying what it has.
//!
//! # How the end is found
//!
//! Unless its owner knows where the log was closed (`known.rs`), the whole of it is read once, which
//! its largest size bounds (2 GiB), and every whole record in it
//! is noted: its checksum is right, and its header gives the very place where it lies. Of these
//! only those of the largest *epoch* count. A record is *acceptable* as the last one if every
//! record from its tail to it is there, each linked with the one before by place and checksum. The
//! last one is the acceptable record with the largest place.
//!
//! # Why that is the right one
//!
//! Let `D` be the last record that a flush has covered.
//!
//! * `D` is acceptable: everything from its tail to it is durable, and nobody has written over
//!   that, since no write goes behind the tail of the last durable record at its time, and tails
//!   only move forward.
//! * An acceptable `Y` behind `D` reaches back to `D`: its tail is no later than what was durable
//!   when it was written. So all records between `D` and `Y` arrived whole, though nobody had waited
//!   for them, and taking them is as good as a crash a moment later.
//! * What lies behind the one that is taken is not connected with it, and never will be: see below.
//! * Each record names the last durable one of its time. If any of them names a place behind the
//!   end that was found, what was durable is gone: that is damage, not a crash, and said so instead
//!   of dropping what was promised.
//!
//! # What can't be read
//!
//! A write that power cut off may leave a block that the device can't read until it is written again, and
//! a disk may lose one where nothing is needed any more. Such a block is no block of a record, as if it had
//! not arrived: if it lies where the log has nothing, or where the last crash came, nothing is missing, and
//! the log writes over it in time. If it lies in the middle of what is needed, the links and the promised
//! place say so, and then the error is that of the device, for it may be able to read the block another day.
//!
//! # Why old records behind the end are never taken for new ones
//!
//! Records of a former round have a smaller cycle, and their link leads to a record of their own
//! round, which is overwritten by the time the new ones reach them. But some records may have been
//! written just before the crash, behind one that did not arrive, with the places and the cycle
//! that new ones are going to have. So each opening of the log begins an epoch, one above the
//! largest on disk, with a record of its own that is durable before anything else of the epoch is
//! written; and before that one is written, a flush makes durable what it follows. So:
//!
//! * if any record of an epoch is there, all that was there before it is durable, and only the
//!   opening record itself and what follows count from now on;
//! * a record of a former epoch never counts again, wherever it lies;
//! * if the opening record did not arrive, nothing else of its epoch was ever written, and the next
//!   opening may use the same epoch. It finds the same end, or a later one: the opening record was
//!   written where a record may lie that had not arrived whole, and if it is torn, what is there of
//!   it can be just what that one lacked (the zeros behind a short payload). That record is whole
//!   then, by its checksum, and with it those that follow it: more of what nobody was promised, and
//!   nothing has happened in between that could contradict it.
//!
//! Nothing has to be rewritten or cleared.
//!
//! # Replay
//!
//! Checkpoints between tail and end are replayed in order if their last record is there. One whose
//! first record is before the tail is home already. A first pass collects what was cancelled: an
//! item is replayed only if nothing later cancels its key. Replaying twice does the same as once,
//! since items hold contents, not changes; a sink that compares places may skip what is newer. When
//! the sink says that it is done, all of it is home and durable, and only then is the opening
//! record written, with itself as the tail.

use std::collections::HashMap;

use vfscale_block::Device;

use crate::checkpoint::{Malformed, Operation, Operations};
use crate::iclog::End;
use crate::lsn::{Geometry, LOG_BLOCK_BYTES, LOG_BLOCKS_MAX, LOG_BLOCKS_MIN};
use crate::record::{self, FLAG_COMMIT, FLAG_START, RecordHeader, RecordKind};
use crate::{Error, LogKey, Lsn, Region, Result, VolumeId};

/// Where a recovery delivers what it finds.
pub trait RecoverySink {
    /// What follows is all that a log has whose last record is at `last`: nothing that is home can be from a
    /// later place. Called before anything is replayed.
    ///
    /// # Errors
    /// Any; the opening fails with it, and can be tried again.
    fn begin(&mut self, last: Lsn) -> Result<()> {
        let _ = last;
        Ok(())
    }

    /// The item `key` had these contents at `lsn` (what its [`push`](crate::LogItem::push) would
    /// have been called with). Items come in the order in which they were logged. If what is home
    /// is from a later place, it may be kept.
    ///
    /// # Errors
    /// Any; the opening fails with it, and can be tried again.
    fn replay(&mut self, key: LogKey, bytes: &[u8], lsn: Lsn) -> Result<()>;

    /// There is no more: everything that was replayed has to be home, and durable, when this returns.
    ///
    /// # Errors
    /// Any; the opening fails with it, and can be tried again.
    fn finish(&mut self) -> Result<()>;
}

/// What an opening found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// The log was closed: there was nothing to do.
    pub was_clean: bool,
    /// Checkpoints that were replayed.
    pub checkpoints: u64,
    /// Items that were replayed.
    pub items: u64,
    /// Items that were not, because of a later cancellation.
    pub cancelled: u64,
    /// Where the tail was.
    pub tail: Lsn,
    /// The last record.
    pub last: Lsn,
    /// Whole records of this epoch that were not connected with the end.
    pub unconnected: u64,
    /// The epoch that has begun.
    pub epoch: u64,
}

/// How much is read at once.
const CHUNK_BLOCKS: usize = 256;

/// The geometry of a log in `region`.
pub(crate) fn geometry(device: &dyn Device, region: Region) -> Result<Geometry> {
    let block = LOG_BLOCK_BYTES as u64;
    let refuse = |why| Err(Error::Region { device: device.name().into(), region, why });
    if !region.offset.is_multiple_of(block) || !region.length.is_multiple_of(block) {
        return refuse("it is not in blocks of 4096 bytes");
    }
    if u64::from(device.block_size()) > block {
        return refuse("the blocks of the device are larger than those of a log");
    }
    match region.offset.checked_add(region.length) {
        Some(end) if end <= device.size() => {}
        _ => return refuse("it is not inside of the device"),
    }
    match u32::try_from(region.length / block) {
        Ok(blocks) if blocks < LOG_BLOCKS_MIN => refuse("it is too small"),
        Ok(blocks) if blocks <= LOG_BLOCKS_MAX => Ok(Geometry { offset: region.offset, blocks }),
        _ => refuse("it is too large"),
    }
}

/// Reads `blocks` blocks of the log from block `first` on, over its end if need be.
fn read_blocks(
    device: &dyn Device,
    geometry: Geometry,
    first: u32,
    blocks: usize,
    out: &mut Vec<u8>,
) -> Result<()> {
    out.resize(blocks * LOG_BLOCK_BYTES, 0);
    geometry.pieces(u64::from(first), blocks, |offset, bytes| {
        Ok(device.read_at(offset, &mut out[bytes])?)
    })
}

/// Reads blocks as [`read_blocks`] does, with zeros for those that the device can't read: they are no blocks
/// of a record then. Notes in `unreadable` why the first of them can't be read.
fn read_some(
    device: &dyn Device,
    geometry: Geometry,
    (first, blocks): (u32, usize),
    out: &mut Vec<u8>,
    unreadable: &mut Option<vfscale_block::Error>,
) -> Result<()> {
    match read_blocks(device, geometry, first, blocks, out) {
        Err(Error::Device(vfscale_block::Error::Io { .. })) => {}
        read => return read,
    }
    for (block, bytes) in (u64::from(first)..).zip(out.chunks_exact_mut(LOG_BLOCK_BYTES)) {
        match device.read_at(geometry.device_offset(block), bytes) {
            Err(error @ vfscale_block::Error::Io { .. }) => {
                tracing::warn!(%error, "a block of the log can't be read");
                bytes.fill(0);
                unreadable.get_or_insert(error);
            }
            read => read?,
        }
    }
    Ok(())
}

/// What a look at the whole log has found.
#[derive(Debug)]
pub(crate) struct Scanned {
    /// Every whole record, of whatever epoch, in the order of their blocks.
    pub(crate) records: Vec<RecordHeader>,
    /// Why some block can't be read.
    pub(crate) unreadable: Option<vfscale_block::Error>,
}

impl Scanned {
    /// The end of the log.
    ///
    /// # Errors
    /// [`Error::NotALog`] and [`Error::Damaged`]; that of the device, if one may follow from what it could
    /// not read.
    pub(crate) fn find_end(&self, device: &dyn Device, geometry: Geometry) -> Result<Found> {
        let not_a_log = || Error::NotALog { device: device.name().into(), offset: geometry.offset };
        let found = find_end(geometry, &self.records).and_then(|found| found.ok_or_else(not_a_log));
        found.map_err(|error| self.unreadable.clone().map_or(error, Error::Device))
    }
}

/// Looks at the whole log of `volume`.
pub(crate) fn scan(device: &dyn Device, geometry: Geometry, volume: VolumeId) -> Result<Scanned> {
    let (mut found, mut chunk, mut apart) = (Vec::new(), Vec::new(), Vec::new());
    let (mut at, mut unreadable) = (0, None);
    while at < geometry.blocks {
        let here = CHUNK_BLOCKS.min((geometry.blocks - at) as usize);
        read_some(device, geometry, (at, here), &mut chunk, &mut unreadable)?;
        let mut index = 0;
        while index < here {
            let start = index * LOG_BLOCK_BYTES;
            let block = at + u32::try_from(index).unwrap_or(0);
            index += 1;
            let Some(blocks) = record::claimed_blocks(&chunk[start..], volume) else { continue };
            let end = start + blocks * LOG_BLOCK_BYTES;
            let bytes = match chunk.get(start..end) {
                Some(bytes) => bytes,
                None => {
                    read_some(device, geometry, (block, blocks), &mut apart, &mut unreadable)?;
                    &apart
                }
            };
            if let Some(header) = record::decode(bytes, volume, block, geometry.blocks) {
                found.push(header);
                // The blocks of a whole record belong to nothing else.
                index += blocks - 1;
            }
        }
        // A record that reaches into the next chunk leaves it blocks that are no first ones.
        at += u32::try_from(here).unwrap_or(u32::MAX);
    }
    Ok(Scanned { records: found, unreadable })
}

/// A log as a crash left it.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) epoch: u64,
    /// From the tail to the last one.
    pub(crate) live: Vec<RecordHeader>,
    pub(crate) last: RecordHeader,
    pub(crate) unconnected: u64,
    /// The largest number of a checkpoint.
    pub(crate) checkpoint: u64,
}

impl Found {
    /// Where the log goes on.
    pub(crate) fn end(&self, geometry: Geometry) -> End {
        let head = geometry.position(self.last.lsn) + u64::from(self.last.blocks);
        End { head, last_lsn: self.last.lsn, last_crc: self.last.crc }
    }
}

/// Whether `next` was written right behind `prev`.
fn is_linked(geometry: Geometry, prev: &RecordHeader, next: &RecordHeader) -> bool {
    next.prev_lsn == prev.lsn
        && next.prev_crc == prev.crc
        && geometry.position(prev.lsn) + u64::from(prev.blocks) == geometry.position(next.lsn)
}

/// Finds the end among whole records. `None`: there is none.
pub(crate) fn find_end(geometry: Geometry, records: &[RecordHeader]) -> Result<Option<Found>> {
    let Some(epoch) = records.iter().map(|record| record.epoch).max() else { return Ok(None) };
    let mut records: Vec<_> = records.iter().filter(|r| r.epoch == epoch).copied().collect();
    records.sort_unstable_by_key(|record| record.lsn);
    // Where the connected run of each record begins.
    let mut runs: Vec<usize> = Vec::with_capacity(records.len());
    for (index, record) in records.iter().enumerate() {
        let linked = index > 0 && is_linked(geometry, &records[index - 1], record);
        let run = if linked { runs[index - 1] } else { index };
        runs.push(run);
    }
    let tail_of = |index: usize| {
        let tail = records[index].tail_lsn;
        let tail = records.binary_search_by_key(&tail, |record| record.lsn).ok()?;
        (tail >= runs[index]).then_some(tail)
    };
    let last = (0..records.len()).rev().find_map(|index| Some((index, tail_of(index)?)));
    let promised = records.iter().map(|record| record.sync_lsn).max().unwrap_or(Lsn::NONE);
    let Some((last, tail)) = last.filter(|(last, _)| records[*last].lsn >= promised) else {
        let found = last.map_or(Lsn::NONE, |(last, _)| records[last].lsn);
        let promised = promised.max(records[0].lsn);
        return Err(Error::Damaged { promised, found });
    };
    Ok(Some(Found {
        epoch,
        live: records[tail..=last].to_vec(),
        last: records[last],
        unconnected: (records.len() - 1 - last) as u64,
        checkpoint: records.iter().map(|record| record.checkpoint).max().unwrap_or(0),
    }))
}

/// Reads the log and finds its end.
pub(crate) fn find(device: &dyn Device, geometry: Geometry, volume: VolumeId) -> Result<Found> {
    scan(device, geometry, volume)?.find_end(device, geometry)
}

/// A checkpoint as it was read.
#[derive(Debug)]
pub(crate) struct Assembled<'a> {
    pub(crate) lsn: Lsn,
    pub(crate) sequence: u64,
    pub(crate) stream: &'a [u8],
}

impl Assembled<'_> {
    fn operations(&self) -> Result<Operations<'_>> {
        Operations::new(self.stream, self.sequence).map_err(|why| self.bad(why))
    }

    pub(crate) fn bad(&self, why: Malformed) -> Error {
        Error::BadCheckpoint { lsn: self.lsn, why }
    }
}

/// Gives every whole checkpoint among `live` (consecutive records) to `each`, in order.
pub(crate) fn checkpoints(
    device: &dyn Device,
    geometry: Geometry,
    volume: VolumeId,
    live: &[RecordHeader],
    mut each: impl FnMut(&Assembled<'_>) -> Result<()>,
) -> Result<()> {
    let (mut bytes, mut stream) = (Vec::new(), Vec::new());
    let mut open: Option<(Lsn, u64)> = None;
    for header in live.iter().filter(|header| header.kind == RecordKind::Data) {
        let is_start = header.flags & FLAG_START != 0;
        if is_start {
            open = Some((header.lsn, header.checkpoint));
            stream.clear();
        }
        // Without its first record it is before the tail, and home.
        let Some((lsn, sequence)) = open else { continue };
        if header.checkpoint != sequence || header.stream_offset != stream.len() as u64 {
            return Err(Error::BadCheckpoint { lsn, why: "a piece of it is missing" });
        }
        let block = header.lsn.block();
        read_blocks(device, geometry, block, header.blocks as usize, &mut bytes)?;
        if record::decode(&bytes, volume, block, geometry.blocks).as_ref() != Some(header) {
            return Err(Error::Damaged { promised: header.lsn, found: lsn });
        }
        record::payload_into(&bytes, header.payload_bytes as usize, &mut stream);
        if header.flags & FLAG_COMMIT != 0 {
            each(&Assembled { lsn, sequence, stream: &stream })?;
            open = None;
        }
    }
    Ok(())
}

/// When a key was cancelled last: a checkpoint, and an operation of it.
type When = (u64, u64);

/// Replays what `found` has into `sink`.
pub(crate) fn replay(
    device: &dyn Device,
    geometry: Geometry,
    volume: VolumeId,
    found: &Found,
    sink: &mut dyn RecoverySink,
) -> Result<Recovered> {
    sink.begin(found.last.lsn)?;
    let mut cancels: HashMap<LogKey, When> = HashMap::new();
    let mut number = 0;
    checkpoints(device, geometry, volume, &found.live, |checkpoint| {
        number += 1;
        for (index, operation) in (0..).zip(checkpoint.operations()?) {
            if let Operation::Cancel { key } = operation.map_err(|why| checkpoint.bad(why))? {
                cancels.insert(key, (number, index));
            }
        }
        Ok(())
    })?;
    let mut recovered = Recovered {
        was_clean: found.last.kind == RecordKind::Unmount,
        tail: found.last.tail_lsn,
        last: found.last.lsn,
        unconnected: found.unconnected,
        ..Recovered::default()
    };
    checkpoints(device, geometry, volume, &found.live, |checkpoint| {
        recovered.checkpoints += 1;
        for (index, operation) in (0..).zip(checkpoint.operations()?) {
            let Operation::Item { key, bytes } = operation.map_err(|why| checkpoint.bad(why))?
            else {
                continue;
            };
            if cancels.get(&key).is_some_and(|when| *when > (recovered.checkpoints, index)) {
                recovered.cancelled += 1;
                continue;
            }
            sink.replay(key, bytes, checkpoint.lsn)?;
            recovered.items += 1;
        }
        Ok(())
    })?;
    sink.finish()?;
    Ok(recovered)
}

#[cfg(all(test, not(shuttle)))]
mod tests;
