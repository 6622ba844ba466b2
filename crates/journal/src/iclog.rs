//! The in-core log buffer, and the head of the log.
//!
//! # Invariants
//!
//! * There is one [`Writer`], and whoever holds it is the only one who writes the log. Records are written in
//!   the order of their places, each linked with the one before by place and checksum.
//! * A record is never written over what the latest durable record calls its tail, or behind it:
//!   that is looked at before every write.
//! * Nothing needs to be ordered inside of a checkpoint. Recovery accepts a record only if every
//!   record from its tail to it is whole and linked, so that a commit record whose predecessors did
//!   not arrive does not count. One flush, behind the commit record, makes the whole of it durable.

use std::sync::Arc;

use vfscale_block::Device;

use crate::lsn::{Geometry, LOG_BLOCK_BYTES, Position};
use crate::record::{
    self, FEATURES_KNOWN, FLAG_COMMIT, FLAG_START, RecordHeader, RecordKind, payload_of,
};
use crate::{Error, Known, Lsn, Options, Result, VolumeId};

/// Where the log is written, and what its next record is linked with.
pub(crate) struct Writer {
    device: Arc<dyn Device>,
    geometry: Geometry,
    volume: VolumeId,
    /// That of the device, if it is one of the log's own.
    device_id: [u8; 16],
    epoch: u64,
    /// The kind of the record that was written last.
    last_kind: RecordKind,
    /// Where the next record goes.
    head: Position,
    prev_lsn: Lsn,
    prev_crc: u32,
    /// The record that is being filled.
    buffer: Box<[u8]>,
    /// Bytes of payload in it.
    filled: usize,
    /// Writes and flushes of the device so far.
    pub(crate) writes: u64,
    pub(crate) flushes: u64,
}

/// What a record says beside its place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Contents {
    pub(crate) kind: RecordKind,
    pub(crate) flags: u8,
    pub(crate) tail_lsn: Lsn,
    pub(crate) sync_lsn: Lsn,
    pub(crate) checkpoint: u64,
    pub(crate) stream_offset: u64,
}

impl Contents {
    /// Of a record without payload.
    pub(crate) fn plain(kind: RecordKind, tail_lsn: Lsn, sync_lsn: Lsn) -> Self {
        Self { kind, flags: 0, tail_lsn, sync_lsn, checkpoint: 0, stream_offset: 0 }
    }
}

/// Where a log ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    pub(crate) head: Position,
    pub(crate) last_lsn: Lsn,
    pub(crate) last_crc: u32,
}

impl Writer {
    pub(crate) fn new(
        device: Arc<dyn Device>,
        geometry: Geometry,
        volume: VolumeId,
        epoch: u64,
        end: End,
        options: &Options,
    ) -> Self {
        let record_blocks = options.record_blocks();
        Self {
            device,
            geometry,
            volume,
            device_id: options.known.device,
            epoch,
            last_kind: RecordKind::Open,
            head: end.head,
            prev_lsn: end.last_lsn,
            prev_crc: end.last_crc,
            buffer: vec![0; record_blocks * LOG_BLOCK_BYTES].into_boxed_slice(),
            filled: 0,
            writes: 0,
            flushes: 0,
        }
    }

    /// Where the next record goes.
    pub(crate) fn head(&self) -> Position {
        self.head
    }

    /// Its place.
    pub(crate) fn head_lsn(&self) -> Lsn {
        self.geometry.lsn(self.head)
    }

    /// What is known of the log by what was written. All of it is durable.
    pub(crate) fn known(&self, checkpoint: u64) -> Known {
        let is_closed = self.last_kind == RecordKind::Unmount;
        let (epoch, last, device) = (self.epoch, self.prev_lsn, self.device_id);
        Known { epoch, last, checkpoint, is_closed, device }
    }

    /// Copies as much of `bytes` into the record as fits, and gives back the rest.
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

    /// Writes the record that was filled; nothing of it is durable before the next
    /// [`flush`](Self::flush). `limit` is the first position that must not be written.
    pub(crate) fn write(&mut self, contents: Contents, limit: Position) -> Result<Lsn> {
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
            features: FEATURES_KNOWN,
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

    /// Makes all records durable.
    pub(crate) fn flush(&mut self) -> Result<()> {
        self.device.flush()?;
        self.flushes += 1;
        Ok(())
    }
}

/// Returns the only record of an empty log of which this is known: it was closed with it, and there is
/// nothing in it.
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
        features: FEATURES_KNOWN,
        device,
    };
    record::encode(&mut block, &header, volume, |_| lsn.cycle());
    block
}

/// Zeroes what a block has behind the payload: it is written, too.
fn clear_rest(record: &mut [u8], filled: usize) {
    let blocks = record.len() / LOG_BLOCK_BYTES;
    if filled < payload_of(blocks) {
        record::payload_room(record, filled).fill(0);
    }
}

/// A stream on its way into records.
pub(crate) struct Stream<'w, F> {
    writer: &'w mut Writer,
    /// Gives tail and last durable record, and the limit, for each record.
    ends: F,
    checkpoint: u64,
    /// The length of the stream, and how much of it is in records that are written.
    bytes: u64,
    written: u64,
    before_commit: Option<Box<dyn FnOnce() -> Result<()> + 'w>>,
    first: Lsn,
    last: Lsn,
    pub(crate) records: u64,
    pub(crate) tail_lsn: Lsn,
}

/// What a record needs to know at the time of its writing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends {
    pub(crate) tail_lsn: Lsn,
    pub(crate) sync_lsn: Lsn,
    pub(crate) limit: Position,
}

impl<'w, F: Fn() -> Ends> Stream<'w, F> {
    /// Of the checkpoint `checkpoint`, `bytes` long. `before_commit` runs before its last record is written.
    pub(crate) fn new(
        writer: &'w mut Writer,
        checkpoint: u64,
        bytes: u64,
        ends: F,
        before_commit: impl FnOnce() -> Result<()> + 'w,
    ) -> Self {
        let first = writer.head_lsn();
        Self {
            writer,
            ends,
            checkpoint,
            bytes,
            written: 0,
            before_commit: Some(Box::new(before_commit)),
            first,
            last: first,
            records: 0,
            tail_lsn: first,
        }
    }

    /// Appends to the stream; writes the record when it is full, and when the stream is at its end.
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
        let Ends { tail_lsn, sync_lsn, limit } = (self.ends)();
        let payload = self.writer.filled as u64;
        let contents = Contents {
            kind: RecordKind::Data,
            flags,
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

    /// The first and the last record.
    pub(crate) fn places(&self) -> (Lsn, Lsn) {
        (self.first, self.last)
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests;
