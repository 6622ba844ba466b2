//! The in-core log buffer, and the head of the log. Counterpart of the iclogs of XFS (`struct
//! xlog_in_core`).
//!
//! # Invariants
//!
//! * There is one [`Writer`], and only the thread that holds it writes the log. Records are written
//!   in the order of their LSNs, each linked with the one before by LSN and checksum.
//! * A record is never written at or past the tail that the latest durable record names. This is
//!   checked before every write.
//! * Within a checkpoint no order is needed. Recovery accepts a record only if every record from
//!   its tail to it is whole and linked, so a commit record whose predecessors did not arrive does
//!   not count. One flush after the commit record makes the whole checkpoint durable.

use std::slice::from_ref;
use std::sync::Arc;

use vfscale_block::{AlignedBuf, Device};

use crate::disk::record::{self, FLAG_COMMIT, FLAG_START, RecordHeader, RecordKind, payload_of};
use crate::disk::recovery::LogEnd;
use crate::lsn::{Geometry, LOG_BLOCK_BYTES, Position};
use crate::{Error, Known, Lsn, Result, VolumeId};

/// Number of blocks of a log for which storage is reserved at once: 64 MiB, all of most logs.
const RESERVED_AHEAD: u64 = 1 << 14;

/// The target of log writes, and the link of the next record to the one before.
pub(crate) struct Writer {
    device: Arc<dyn Device>,
    geometry: Geometry,
    volume: VolumeId,
    /// Id of the device, if the log has a device of its own.
    device_id: [u8; 16],
    epoch: u64,
    /// Kind of the record that was written last.
    last_kind: RecordKind,
    /// Position of the next record.
    head: Position,
    prev_lsn: Lsn,
    prev_crc: u32,
    /// The record that is being filled. Aligned, or a device with direct I/O would copy each one.
    buffer: AlignedBuf,
    /// Bytes of payload in it.
    filled: usize,
    /// The end of the records that have storage, and the end of a record that has more reserved.
    reserved: Position,
    reserves_at: Position,
    /// Number of writes and flushes of the device so far.
    pub(crate) writes: u64,
    pub(crate) flushes: u64,
}

/// The header fields of a record that its writer chooses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordContents {
    pub(crate) kind: RecordKind,
    pub(crate) flags: u8,
    pub(crate) features: u32,
    pub(crate) tail_lsn: Lsn,
    pub(crate) sync_lsn: Lsn,
    pub(crate) checkpoint: u64,
    pub(crate) stream_offset: u64,
}

impl RecordContents {
    /// Creates the contents of a record without payload.
    pub(crate) fn plain(kind: RecordKind, tail_lsn: Lsn, sync_lsn: Lsn) -> Self {
        Self { kind, flags: 0, features: 0, tail_lsn, sync_lsn, checkpoint: 0, stream_offset: 0 }
    }
}

impl Writer {
    pub(crate) fn new(
        device: Arc<dyn Device>,
        geometry: Geometry,
        volume: VolumeId,
        epoch: u64,
        end: LogEnd,
        record_blocks: usize,
        device_id: [u8; 16],
    ) -> Self {
        Self {
            device,
            geometry,
            volume,
            device_id,
            epoch,
            last_kind: RecordKind::Open,
            head: end.head,
            prev_lsn: end.last_lsn,
            prev_crc: end.last_crc,
            buffer: AlignedBuf::zeroed(record_blocks * LOG_BLOCK_BYTES),
            filled: 0,
            reserved: 0,
            reserves_at: 0,
            writes: 0,
            flushes: 0,
        }
    }

    /// Writes the record that opens the epoch, and makes it durable. The records before are.
    pub(crate) fn begin_epoch(&mut self) -> Result<()> {
        // The record before it is the only one that the opening record can refer to.
        let contents = RecordContents::plain(RecordKind::Open, self.head_lsn(), self.prev_lsn);
        self.write(contents, self.head + 1)?;
        self.flush()
    }

    /// Returns the position of the next record.
    pub(crate) fn head(&self) -> Position {
        self.head
    }

    /// Returns the LSN of the next record.
    pub(crate) fn head_lsn(&self) -> Lsn {
        self.geometry.lsn(self.head)
    }

    /// Returns the state of the log for its owner to record. All of the log is durable.
    pub(crate) fn known(&self, checkpoint: u64) -> Known {
        let is_closed = self.last_kind == RecordKind::Unmount;
        let (epoch, last, device) = (self.epoch, self.prev_lsn, self.device_id);
        Known { epoch, last, checkpoint, is_closed, is_new: false, device }
    }

    /// Copies as much of `bytes` into the record as fits, and returns the rest.
    fn fill<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        let mut rest = bytes;
        let room = payload_of(self.buffer.len() / LOG_BLOCK_BYTES);
        while !rest.is_empty() && self.filled < room {
            let space = record::payload_room(&mut self.buffer, self.filled);
            let len = space.len().min(rest.len());
            space[..len].copy_from_slice(&rest[..len]);
            self.filled += len;
            rest = &rest[len..];
        }
        rest
    }

    /// Writes the filled record; it is durable only after the next [`flush`](Self::flush). `limit`
    /// is the first position that must not be written.
    pub(crate) fn write(&mut self, contents: RecordContents, limit: Position) -> Result<Lsn> {
        let blocks = record::blocks_of(self.filled);
        let (head, geometry) = (self.head, self.geometry);
        let end = head + blocks as u64;
        if end > limit {
            let block = LOG_BLOCK_BYTES as u64;
            return Err(Error::Underrun {
                sequence: contents.checkpoint,
                needed: (end - head) * block,
                reserved: limit.saturating_sub(head) * block,
            });
        }
        if end > self.reserves_at {
            self.reserve(end);
        }
        let lsn = geometry.lsn(head);
        if geometry.lsn(end).cycle() == u32::MAX {
            return Err(Error::WornOut);
        }
        let used = &mut self.buffer[..blocks * LOG_BLOCK_BYTES];
        clear_rest(used, self.filled);
        let header = RecordHeader {
            kind: contents.kind,
            flags: contents.flags,
            epoch: self.epoch,
            lsn,
            tail_lsn: contents.tail_lsn,
            sync_lsn: contents.sync_lsn,
            prev_lsn: self.prev_lsn,
            prev_crc: self.prev_crc,
            blocks: u32::try_from(blocks).unwrap_or(u32::MAX),
            payload_bytes: u32::try_from(self.filled).unwrap_or(u32::MAX),
            log_blocks: geometry.blocks,
            checkpoint: contents.checkpoint,
            stream_offset: contents.stream_offset,
            crc: 0,
            features: contents.features,
            device: self.device_id,
        };
        let cycle_of = |index: usize| geometry.lsn(head + index as u64).cycle();
        let crc = record::encode(used, &header, self.volume, cycle_of);
        let (used, device) = (&*used, &self.device);
        let mut writes = 0;
        geometry.pieces(head, blocks, |offset, bytes| {
            writes += 1;
            device.write_at(offset, &used[bytes])
        })?;
        self.writes += writes;
        (self.head, self.prev_lsn, self.prev_crc, self.filled) = (end, lsn, crc, 0);
        self.last_kind = contents.kind;
        Ok(lsn)
    }

    /// Reserves storage for the records after `end`, so the log goes on for a while when a sparse
    /// image can't get more: changes that free something are written, and what is not written home
    /// stays in the log. A refusal counts when a record itself is refused. Other devices have their
    /// owner reserve the log.
    #[cold]
    fn reserve(&mut self, end: Position) {
        if self.device.must_reserve() {
            self.reserves_at = Position::MAX;
            return;
        }
        let all = u64::from(self.geometry.blocks);
        let (from, len) = (self.head.max(self.reserved), all.min(RESERVED_AHEAD));
        let reserved = self.geometry.pieces(from, len as usize, |offset, bytes| {
            let range = offset..offset + bytes.len() as u64;
            self.device.reserve_ranges(from_ref(&range))
        });
        match reserved {
            Ok(()) if len == all => self.reserves_at = Position::MAX,
            Ok(()) => (self.reserved, self.reserves_at) = (from + len, from + len / 2),
            Err(error) => {
                tracing::debug!(%error, "no storage for the log");
                self.reserves_at = end + RESERVED_AHEAD / 64;
            }
        }
    }

    /// Makes all records durable.
    pub(crate) fn flush(&mut self) -> Result<()> {
        self.device.flush()?;
        self.flushes += 1;
        Ok(())
    }
}

/// Zeroes the rest of the record after the payload, which is written as well.
fn clear_rest(record: &mut [u8], filled: usize) {
    let blocks = record.len() / LOG_BLOCK_BYTES;
    if filled < payload_of(blocks) {
        record::payload_room(record, filled).fill(0);
    }
}

/// A stream that is being written in records.
pub(crate) struct Stream<'w, F> {
    writer: &'w mut Writer,
    /// Returns tail, last durable record and limit for each record.
    limits: F,
    checkpoint: u64,
    features: u32,
    /// Length of the stream, and number of its bytes in records that are written.
    bytes: u64,
    written: u64,
    before_commit: Option<Box<dyn FnOnce() -> Result<()> + 'w>>,
    first: Lsn,
    last: Lsn,
    pub(crate) records: u64,
    pub(crate) tail_lsn: Lsn,
}

/// The state of the log that is read when a record is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteLimits {
    pub(crate) tail_lsn: Lsn,
    pub(crate) sync_lsn: Lsn,
    pub(crate) limit: Position,
}

impl<'w, F: Fn() -> WriteLimits> Stream<'w, F> {
    /// Creates the stream of `checkpoint`, its number and the features of its records, `bytes`
    /// long. `before_commit` runs before its last record is written.
    pub(crate) fn new(
        writer: &'w mut Writer,
        (checkpoint, features): (u64, u32),
        bytes: u64,
        limits: F,
        before_commit: impl FnOnce() -> Result<()> + 'w,
    ) -> Self {
        let first = writer.head_lsn();
        Self {
            writer,
            limits,
            checkpoint,
            features,
            bytes,
            written: 0,
            before_commit: Some(Box::new(before_commit)),
            first,
            last: first,
            records: 0,
            tail_lsn: first,
        }
    }

    /// Appends to the stream. Writes the record when it is full, and at the end of the stream.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            rest = self.writer.fill(rest);
            let is_last = self.written + self.writer.filled as u64 == self.bytes;
            if !rest.is_empty() || is_last {
                self.seal(is_last)?;
            }
        }
        Ok(())
    }

    fn seal(&mut self, is_last: bool) -> Result<()> {
        let mut flags = 0;
        if self.written == 0 {
            flags |= FLAG_START;
        }
        if is_last {
            flags |= FLAG_COMMIT;
            if let Some(before_commit) = self.before_commit.take() {
                before_commit()?;
            }
        }
        let WriteLimits { tail_lsn, sync_lsn, limit } = (self.limits)();
        let payload = self.writer.filled as u64;
        let contents = RecordContents {
            kind: RecordKind::Data,
            flags,
            features: self.features,
            tail_lsn,
            sync_lsn,
            checkpoint: self.checkpoint,
            stream_offset: self.written,
        };
        self.last = self.writer.write(contents, limit)?;
        self.written += payload;
        self.records += 1;
        self.tail_lsn = tail_lsn;
        Ok(())
    }

    /// Returns the LSNs of the first and the last record.
    pub(crate) fn lsns(&self) -> (Lsn, Lsn) {
        (self.first, self.last)
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests;
