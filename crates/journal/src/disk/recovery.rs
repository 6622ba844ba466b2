//! Recovery: finding the end of a log after a crash, and replaying its checkpoints.
//!
//! # How the end is found
//!
//! Unless its owner knows where the log was closed (`disk/known.rs`), the whole log is read once,
//! which its largest size bounds (2 GiB), and every whole record in it is noted: its checksum is
//! right, and its header gives the very LSN where it was read. Of these only records of the largest
//! *epoch* count. A record is *acceptable* as the last one if every record from its tail to it was
//! found, each linked with the one before by LSN and checksum. The last record is the acceptable
//! record with the largest LSN.
//!
//! # Why that is the right one
//!
//! Let `D` be the last record that a flush has covered.
//!
//! * `D` is acceptable: everything from its tail to it is durable and has not been overwritten,
//!   since no write passes the tail of the record that is the last durable one at its time, and
//!   tails only move forward.
//! * An acceptable `Y` after `D` reaches back to `D`: its tail is no later than the durable end was
//!   when it was written. So all records between `D` and `Y` arrived whole, though no caller had
//!   waited for them, and taking them is as good as a crash a moment later.
//! * Records after the chosen one are not connected with it, and never will be: see below.
//! * Each record names the last durable one of its time. If any of them names an LSN after the end
//!   that was found, durable records are lost: that is damage, not a crash, and it is reported
//!   instead of dropping promised changes.
//!
//! # Unreadable blocks
//!
//! A read that failed proves nothing: the block may be a record that was synced, and the device may
//! be able to read it another day. Every record begins where the one before ends. So it matters
//! only what is right behind the last record:
//!
//! * If the block there was read, and begins no record with the LSN of that place, no record
//!   follows that was durable. Whatever can't be read elsewhere is not needed, and is overwritten
//!   in time.
//! * If that block can't be read, or a part of the record that it begins, a durable record may be
//!   there, and others behind it. Recovery returns the error of the device
//!   ([`Error::EndUnread`]). A write that a power failure cut off may have left such a block, which
//!   the device can't read until it is written again; only a person can tell. So a repair may end
//!   the log there ([`Options::may_cut`](crate::Options::may_cut)): it overwrites all blocks that
//!   can't be read, since they would be behind the new end. One that only reads may go on as well.
//!
//! A block in the middle of the needed part is revealed by the links and the promised LSN. Then
//! recovery returns the error of the device, too.
//!
//! # Why old records after the end are never taken for new ones
//!
//! Records of a former cycle have a smaller cycle number, and their link leads to a record of their
//! own cycle, which is overwritten before the new ones reach them. But some records may have been
//! written just before the crash, after one that did not arrive, with the LSNs that new ones are
//! going to have. So each opening of the log begins an epoch, one above the largest on disk, with a
//! record of its own that is durable before anything else of the epoch is written; and before that
//! record is written, a flush makes the records durable that it follows. So:
//!
//! * if any record of an epoch is found, all records before the epoch are durable, and only the
//!   opening record itself and its successors count from then on;
//! * a record of a former epoch never counts again, wherever it is;
//! * if the opening record did not arrive, nothing else of its epoch was ever written, and the next
//!   opening may use the same epoch. It finds the same end, or a later one: the opening record was
//!   written where a record may be that had not arrived whole, and if it is torn, the part of it
//!   that arrived can be just what that record lacked (the zeros after a short payload). Then that
//!   record is whole, by its checksum, and with it the records that follow it: more changes that
//!   were never promised, and nothing has happened in between that could contradict them.
//!
//! Nothing must be rewritten or cleared.
//!
//! # Replay
//!
//! Checkpoints between tail and end are replayed in order if their last record was found. A
//! checkpoint whose first record is before the tail is already written back. A first pass collects
//! cancellations: an item is replayed only if no later operation cancels its key. Replaying twice
//! has the effect of replaying once, since items contain contents, not changes; a sink that
//! compares LSNs may skip items whose on-disk version is newer. When the sink has finished, all of
//! it is written back and durable, and only then is the opening record written, with itself as the
//! tail.

use std::collections::{BTreeMap, HashMap};

use vfscale_block::Device;

use crate::disk::checkpoint::{Malformed, Operation, Operations};
use crate::disk::record::{self, FLAG_COMMIT, FLAG_START, RecordHeader, RecordKind};
use crate::lsn::{Geometry, LOG_BLOCK_BYTES, LOG_BLOCKS_MAX, LOG_BLOCKS_MIN, Position};
use crate::{Error, LogKey, Lsn, Region, Result, VolumeId};

/// The receiver of the items that a recovery replays.
pub trait RecoverySink {
    /// Begins a replay of a log whose last record is at `last`: no item on disk can have a later
    /// LSN. Called before any item is replayed.
    ///
    /// # Errors
    /// Any error; the opening fails with it, and can be tried again.
    fn begin(&mut self, last: Lsn) -> Result<()> {
        let _ = last;
        Ok(())
    }

    /// Replays the item `key`, which had these contents at `lsn` (with which its
    /// [`push`](crate::LogItem::push) would have been called). Items arrive in the order in which
    /// they were logged. If the version on disk has a later LSN, the sink may skip the item.
    ///
    /// # Errors
    /// Any error; the opening fails with it, and can be tried again.
    fn replay(&mut self, key: LogKey, bytes: &[u8], lsn: Lsn) -> Result<()>;

    /// Ends the replay: all items that were replayed must be written back and durable when this
    /// returns.
    ///
    /// # Errors
    /// Any error; the opening fails with it, and can be tried again.
    fn finish(&mut self) -> Result<()>;
}

/// The result of a recovery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Whether the log was closed, so that there was nothing to do.
    pub was_clean: bool,
    /// Number of checkpoints that were replayed.
    pub checkpoints: u64,
    /// Number of items that were replayed.
    pub items: u64,
    /// Number of items that were not replayed because of a later cancellation.
    pub cancelled: u64,
    /// LSN of the tail.
    pub tail: Lsn,
    /// LSN of the last record.
    pub last: Lsn,
    /// Number of whole records of this epoch that were not connected with the end.
    pub unconnected: u64,
    /// The epoch that has begun.
    pub epoch: u64,
    /// Where the log was ended because it could not be read from there on: changes that were synced
    /// may be missing. `None` unless the caller permits that.
    pub cut: Option<Lsn>,
}

/// Number of blocks that one read fetches.
const CHUNK_BLOCKS: usize = 256;

/// Returns the geometry of a log in `region`.
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
        _ => return refuse("it is not inside the device"),
    }
    match u32::try_from(region.length / block) {
        Ok(blocks) if blocks < LOG_BLOCKS_MIN => refuse("it is too small"),
        Ok(blocks) if blocks <= LOG_BLOCKS_MAX => Ok(Geometry { offset: region.offset, blocks }),
        _ => refuse("it is too large"),
    }
}

/// Reads `blocks` blocks of the log from block `first` on, wrapping around its end if necessary.
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

/// Blocks that the device can't read, with its errors.
type Unread = BTreeMap<u32, vfscale_block::Error>;

/// Reads blocks like [`read_blocks`], with zeros for blocks that the device can't read: these do
/// not count as blocks of a record.
fn read_some(
    device: &dyn Device,
    geometry: Geometry,
    (first, blocks): (u32, usize),
    out: &mut Vec<u8>,
    unread: &mut Unread,
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
                unread.insert(geometry.lsn(block).block(), error);
            }
            read => read?,
        }
    }
    Ok(())
}

/// The result of reading the whole log.
#[derive(Debug)]
pub(crate) struct Scanned {
    /// Every whole record, of any epoch, in the order of their blocks.
    pub(crate) records: Vec<RecordHeader>,
    unread: Unread,
    /// Records of which the first block was read, and another one can't be read.
    torn: Vec<(Lsn, vfscale_block::Error)>,
}

impl Scanned {
    /// Finds the end of the log. If `may_cut`, the log ends where it can't be read any further.
    ///
    /// # Errors
    /// [`Error::NotALog`] and [`Error::Damaged`]; the error of the device instead, if a block could
    /// not be read, which may be the cause. [`Error::EndUnread`] unless `may_cut`.
    pub(crate) fn find_end(
        &self,
        device: &dyn Device,
        geometry: Geometry,
        may_cut: bool,
    ) -> Result<Found> {
        let not_a_log = || Error::NotALog { device: device.name().into(), offset: geometry.offset };
        let found = find_end(geometry, &self.records).and_then(|found| found.ok_or_else(not_a_log));
        let mut found = found.map_err(|error| self.or_unread(error))?;
        let behind = geometry.lsn(found.end(geometry).head);
        let torn = || self.torn.iter().find(|(lsn, _)| *lsn == behind).map(|(_, error)| error);
        if let Some(error) = self.unread.get(&behind.block()).or_else(torn) {
            if !may_cut {
                return Err(Error::EndUnread { error: error.clone(), lsn: behind });
            }
            tracing::error!(%error, %behind, "the log can't be read from there on: what it has is missing");
            found.cut = Some(behind);
            let is_free = |block: &u32| !found.is_used(geometry, *block);
            found.unread = self.unread.keys().copied().filter(is_free).collect();
        }
        Ok(found)
    }

    /// Returns whether a block can't be read.
    pub(crate) fn is_unread(&self, block: u32) -> bool {
        self.unread.contains_key(&block)
    }

    /// Returns the error of the device, if a block can't be read, which may be the cause of
    /// `error`; otherwise `error`.
    pub(crate) fn or_unread(&self, error: Error) -> Error {
        self.unread.values().next().cloned().map_or(error, Error::Device)
    }
}

/// Reads the whole log of `volume`.
pub(crate) fn scan(device: &dyn Device, geometry: Geometry, volume: VolumeId) -> Result<Scanned> {
    let (mut records, mut chunk, mut apart) = (Vec::new(), Vec::new(), Vec::new());
    let (mut at, mut unread, mut torn) = (0, Unread::new(), Vec::new());
    while at < geometry.blocks {
        let here = CHUNK_BLOCKS.min((geometry.blocks - at) as usize);
        read_some(device, geometry, (at, here), &mut chunk, &mut unread)?;
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
                    read_some(device, geometry, (block, blocks), &mut apart, &mut unread)?;
                    &apart
                }
            };
            if let Some(header) = record::decode(bytes, volume, block, geometry.blocks) {
                records.push(header);
                // The blocks of a whole record belong to no other record.
                index += blocks - 1;
            } else if !unread.is_empty() {
                let places = (u64::from(block)..).take(blocks);
                let error = places.filter_map(|at| unread.get(&geometry.lsn(at).block())).next();
                torn.extend(error.map(|error| (record::claimed_lsn(bytes), error.clone())));
            }
        }
        // A record that reaches into the next chunk has only blocks there that are not first
        // blocks.
        at += u32::try_from(here).unwrap_or(u32::MAX);
    }
    Ok(Scanned { records, unread, torn })
}

/// The end of a log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogEnd {
    pub(crate) head: Position,
    pub(crate) last_lsn: Lsn,
    pub(crate) last_crc: u32,
}

/// A log as a crash left it.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) epoch: u64,
    /// Records from the tail to the last one.
    pub(crate) live: Vec<RecordHeader>,
    pub(crate) last: RecordHeader,
    pub(crate) unconnected: u64,
    /// Largest sequence number of a checkpoint.
    pub(crate) checkpoint: u64,
    /// The place behind the last record, if what follows it can't be read.
    pub(crate) cut: Option<Lsn>,
    /// All other blocks that can't be read, if the log was cut.
    pub(crate) unread: Vec<u32>,
}

impl Found {
    /// Returns a log of which everything is known that matters.
    pub(crate) fn whole(live: Vec<RecordHeader>, last: RecordHeader, checkpoint: u64) -> Self {
        let (epoch, cut, unread) = (last.epoch, None, Vec::new());
        Self { epoch, live, last, unconnected: 0, checkpoint, cut, unread }
    }

    /// Returns the result of a recovery that had nothing to do, of a log that was closed.
    pub(crate) fn replayed_nothing(&self) -> Recovered {
        let (tail, last) = (self.last.tail_lsn, self.last.lsn);
        Recovered { was_clean: true, tail, last, ..Recovered::default() }
    }

    /// Returns whether a block is between the tail and the end.
    fn is_used(&self, geometry: Geometry, block: u32) -> bool {
        let (tail, head) = (geometry.position(self.last.tail_lsn), self.end(geometry).head);
        let blocks = u64::from(geometry.blocks);
        (u64::from(block) + blocks - tail % blocks) % blocks < head - tail
    }

    /// Returns the end at which the log continues.
    pub(crate) fn end(&self, geometry: Geometry) -> LogEnd {
        let head = geometry.position(self.last.lsn) + u64::from(self.last.blocks);
        LogEnd { head, last_lsn: self.last.lsn, last_crc: self.last.crc }
    }
}

/// Returns whether `next` was written right after `prev`.
fn is_linked(geometry: Geometry, prev: &RecordHeader, next: &RecordHeader) -> bool {
    next.prev_lsn == prev.lsn
        && next.prev_crc == prev.crc
        && geometry.position(prev.lsn) + u64::from(prev.blocks) == geometry.position(next.lsn)
}

/// Finds the end among whole records. Returns `None` if there are none.
pub(crate) fn find_end(geometry: Geometry, records: &[RecordHeader]) -> Result<Option<Found>> {
    let Some(epoch) = records.iter().map(|record| record.epoch).max() else { return Ok(None) };
    let mut records: Vec<_> = records.iter().filter(|r| r.epoch == epoch).copied().collect();
    records.sort_unstable_by_key(|record| record.lsn);
    // Index of the first record of the connected run of each record.
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
    let checkpoint = records.iter().map(|record| record.checkpoint).max().unwrap_or(0);
    let found = Found::whole(records[tail..=last].to_vec(), records[last], checkpoint);
    Ok(Some(Found { unconnected: (records.len() - 1 - last) as u64, ..found }))
}

/// Overwrites the blocks of a log that was [cut](Found::cut) that can't be read: behind its new end
/// they would be taken for records again.
pub(crate) fn clear_unread(device: &dyn Device, geometry: Geometry, found: &Found) -> Result<()> {
    for block in &found.unread {
        device.write_at(geometry.device_offset((*block).into()), &[0; LOG_BLOCK_BYTES])?;
    }
    Ok(())
}

/// A checkpoint that was read from the log.
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

/// Passes every whole checkpoint to `each` that is among `live` (consecutive records), in order.
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
        // A checkpoint without its first record is before the tail, and written back.
        let Some((lsn, sequence)) = open else { continue };
        if header.checkpoint != sequence || header.stream_offset != stream.len() as u64 {
            return Err(Error::BadCheckpoint { lsn, why: "a part of it is missing" });
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

/// The last cancellation of a key: a checkpoint, and an operation of it.
type When = (u64, u64);

/// Replays the checkpoints of `found` into `sink`.
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
        cut: found.cut,
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
