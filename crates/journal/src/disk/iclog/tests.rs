#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::atomic::{AtomicU64, Ordering};

use vfscale_block::{MemoryDevice, Operation, OsError};
use vfscale_testkit::{Fault, FaultyDevice};

use super::*;
use crate::disk::record::FEATURE_SHORT;

const GEOMETRY: Geometry = Geometry { offset: 4096, blocks: 256 };
const VOLUME: VolumeId = VolumeId([1; 16]);

fn writer(head: Position, record_blocks: usize) -> (Arc<dyn Device>, Writer) {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(4096 * 258).unwrap());
    let end = LogEnd { head, last_lsn: Lsn::new(1, 9), last_crc: 5 };
    (device.clone(), Writer::new(device, GEOMETRY, VOLUME, 2, end, record_blocks, [0; 16]))
}

fn decoded(device: &dyn Device, position: Position, blocks: usize) -> Option<RecordHeader> {
    let mut record = vec![0; blocks * LOG_BLOCK_BYTES];
    let read = |offset, bytes: std::ops::Range<usize>| device.read_at(offset, &mut record[bytes]);
    GEOMETRY.pieces(position, blocks, read).unwrap();
    record::decode(&record, VOLUME, GEOMETRY.lsn(position).block(), GEOMETRY.blocks)
}

#[test]
fn a_record_goes_over_the_end_of_the_log() {
    let head = 3 * 256 + 254;
    let (device, mut writer) = writer(head, 4);
    assert!(writer.fill(&[7; 4 * LOG_BLOCK_BYTES - 300]).is_empty());
    let contents = RecordContents::plain(RecordKind::Data, Lsn::new(3, 1), Lsn::new(3, 2));
    let lsn = writer.write(contents, head + 100).unwrap();
    assert_eq!((lsn, writer.writes), (Lsn::new(3, 254), 2));
    let header = decoded(&*device, head, 4).unwrap();
    assert_eq!((header.lsn, header.prev_crc, header.blocks), (lsn, 5, 4));
    // The next record is linked with it.
    writer.write(contents, head + 100).unwrap();
    let next = decoded(&*device, head + 4, 1).unwrap();
    assert_eq!((next.lsn, next.prev_lsn, next.prev_crc), (Lsn::new(4, 2), lsn, header.crc));
}

/// Writes `records` records of 64 blocks to a log of so many blocks. Returns how often storage was
/// reserved, which a host that is full refuses.
fn reservations(blocks: u32, records: u64, is_full: bool) -> u64 {
    let geometry = Geometry { blocks, ..GEOMETRY };
    let device = MemoryDevice::new(u64::from(blocks + 1) * 4096).unwrap();
    let device = Arc::new(FaultyDevice::new(device));
    let asked = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&asked);
    let reserve = || Fault::on(Operation::Reserve);
    device.arm(reserve().run(move || {
        count.fetch_add(1, Ordering::Relaxed);
    }));
    if is_full {
        device.arm(reserve().fail(OsError::NO_SPACE));
    }
    let end = LogEnd { head: u64::from(blocks), last_lsn: Lsn::new(1, 9), last_crc: 5 };
    let mut writer = Writer::new(device, geometry, VOLUME, 2, end, 64, [0; 16]);
    let contents = RecordContents::plain(RecordKind::Data, Lsn::new(1, 1), Lsn::new(1, 2));
    for _ in 0..records {
        assert!(writer.fill(&[7; 63 * LOG_BLOCK_BYTES]).is_empty());
        writer.write(contents, Position::MAX).unwrap();
    }
    asked.load(Ordering::Relaxed)
}

#[test]
fn storage_is_reserved_ahead_of_the_head() {
    let window = RESERVED_AHEAD as u32;
    assert_eq!(reservations(1024, 40, false), 1, "all of a small log at once");
    let records = RESERVED_AHEAD / 2 / 64;
    assert_eq!(reservations(4 * window, records - 1, false), 1);
    assert_eq!(reservations(4 * window, records + 1, false), 2);
    // A refusal fails nothing that has storage, and is not repeated for each record.
    assert_eq!(reservations(4 * window, 9, true), 2);
}

#[test]
fn the_iclog_writes_nothing_over_the_tail() {
    let (device, mut writer) = writer(300, 2);
    writer.fill(&[7; 5000]);
    let contents = RecordContents::plain(RecordKind::Data, Lsn::new(1, 2), Lsn::new(1, 2));
    let refused = writer.write(contents, 301);
    assert!(matches!(refused, Err(Error::Underrun { needed: 8192, reserved: 4096, .. })));
    assert!(decoded(&*device, 300, 2).is_none());
    assert!(writer.write(contents, 302).is_ok());
}

#[test]
fn a_log_can_be_worn_out() {
    let (_, mut writer) = writer(u64::from(u32::MAX) * 256 - 1, 1);
    let contents = RecordContents::plain(RecordKind::Tail, Lsn::new(1, 2), Lsn::new(1, 2));
    assert!(matches!(writer.write(contents, u64::MAX), Err(Error::WornOut)));
}

#[test]
fn a_stream_is_cut_into_records_and_says_so() {
    let (device, mut writer) = writer(276, 1);
    let limits = || WriteLimits { tail_lsn: Lsn::new(1, 0), sync_lsn: Lsn::NONE, limit: 400 };
    let asked = std::cell::Cell::new(0);
    let before = || {
        asked.set(asked.get() + 1);
        Ok(())
    };
    let mut stream = Stream::new(&mut writer, (6, FEATURE_SHORT), 10_000, limits, before);
    for _ in 0..100 {
        stream.put(&[3; 100]).unwrap();
        stream.put(&[]).unwrap();
    }
    assert_eq!((stream.records, stream.lsns()), (3, (Lsn::new(1, 20), Lsn::new(1, 22))));
    drop(stream);
    assert_eq!(asked.get(), 1);
    let flags: Vec<_> =
        (276..279).map(|at| decoded(&*device, at, 1).unwrap()).map(|h| h.flags).collect();
    assert_eq!(flags, [FLAG_START, 0, FLAG_COMMIT]);
    assert!((276..279).all(|at| decoded(&*device, at, 1).unwrap().features == FEATURE_SHORT));
    let offsets: Vec<_> =
        (276..279).map(|at| decoded(&*device, at, 1).unwrap().stream_offset).collect();
    assert_eq!(offsets, [0, 3968, 7936]);
}

/// A device with direct I/O would copy a record that is not.
#[test]
fn records_are_written_from_aligned_memory() {
    for record_blocks in 1..20 {
        let (_, mut writer) = writer(300, record_blocks);
        writer.fill(&[7; 5000]);
        assert!(writer.buffer.as_ptr().addr().is_multiple_of(LOG_BLOCK_BYTES), "{record_blocks}");
        assert_eq!(writer.buffer.len(), record_blocks * LOG_BLOCK_BYTES);
    }
}
