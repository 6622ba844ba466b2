//! Damage to the log of a volume: to the content, number and position of its records.
//!
//! The layout of records is that of `docs/FORMAT.md`. It is written down here a second time, so the
//! test does not depend on the implementation.

use vfscale_block::Device;
use vfscale_diskfs::on_disk::{InodeRecord, RECORD_BYTES};
use vfscale_diskfs::{LogPlace, Superblock};
use vfscale_journal::{FLAG_START, Inspection, LOG_BLOCK_BYTES, RecordHeader, Region, VolumeId};
use vfscale_sync::random::Random;

use super::media::spoil;

// Offsets in a record: of each block's stamp, and of the header after the first one.
const CYCLE: usize = 0;
const INDEX: usize = 4;
const EPOCH: usize = 8;
const STAMP_BYTES: usize = 16;
const VOLUME: usize = 24;
const LSN: usize = 40;
const PREV_LSN: usize = 64;
const PREV_CRC: usize = 72;
const CRC: usize = 104;
const HEADER_BYTES: usize = 128;
/// Lengths in a checkpoint: of its header and of the header of each operation.
const CHECKPOINT_BYTES: usize = 32;
const OPERATION_BYTES: usize = 24;
const OPERATION_ALIGN: usize = 8;

/// Extent of the fix after a damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mend {
    Nothing,
    /// The checksum of the record.
    Checksum,
    /// The checksum, and the links and checksums of all following records, each of which names its
    /// predecessor.
    Links,
}

/// The log of a volume, with the records that a recovery would read.
pub(super) struct Log<'d> {
    device: &'d dyn Device,
    start: u64,
    blocks: u64,
    volume: [u8; 16],
    live: Vec<RecordHeader>,
}

impl<'d> Log<'d> {
    /// Opens the log. Returns `None` if no valid log is found.
    pub(super) fn new(
        device: &'d dyn Device,
        superblock: &Superblock,
    ) -> Result<Option<Self>, String> {
        let (start, blocks) = log_place(superblock).ok_or("the log is elsewhere")?;
        let block = LOG_BLOCK_BYTES as u64;
        let region = Region { offset: start * block, length: blocks * block };
        let volume = superblock.volume().to_bytes();
        let inspection = Inspection::new(device, region, VolumeId(volume));
        let live = inspection.ok().and_then(|it| it.live().map(<[_]>::to_vec).ok());
        Ok(live.map(|live| Self { device, start, blocks, volume, live }))
    }

    /// Damages the log. `other` is another log, whose records may be copied into it.
    pub(super) fn damage(
        &mut self,
        other: Option<&Log<'_>>,
        random: &mut Random,
    ) -> Result<String, String> {
        let at = random.below(self.live.len() as u64) as usize;
        let mut record = self.read(at)?;
        let what = match random.below(8) {
            0 => self.cut(at, random)?,
            1 | 2 => {
                let from = other.unwrap_or(self);
                let index = random.below(from.live.len() as u64) as usize;
                record = self.moved(&from.read(index)?, at);
                format!("record {at} is record {index} of {}", name(from, self))
            }
            3 => {
                for _ in 0..=random.below(4) {
                    let end = if random.below(2) == 0 { 400 } else { record.len() as u64 };
                    spoil(&mut record[random.below(end) as usize], random);
                }
                format!("bytes of record {at}")
            }
            _ => spoil_operations(&mut record, &self.live[at], random)
                .map_or_else(|| format!("record {at} unchanged"), |what| format!("{what} of {at}")),
        };
        let mend = random.one(&[Mend::Nothing, Mend::Checksum, Mend::Links, Mend::Links]);
        if mend != Mend::Nothing {
            seal(&mut record);
        }
        if !what.starts_with("cut") {
            self.write(at, &record)?;
        }
        if mend == Mend::Links {
            self.link(at)?;
        }
        Ok(format!("log: {what}, {mend:?}"))
    }

    /// Overwrites a record and some blocks after it with zeros.
    fn cut(&self, at: usize, random: &mut Random) -> Result<String, String> {
        let blocks = 1 + random.below(self.blocks) as usize;
        let zeros = vec![0; blocks * LOG_BLOCK_BYTES];
        self.write(at, &zeros)?;
        Ok(format!("cut off at record {at} for {blocks} blocks"))
    }

    /// Returns the device offset of block `index` of a record, and the log's cycle there.
    fn place(&self, record: usize, index: usize) -> (u64, u32) {
        let lsn = self.live[record].lsn;
        let block = u64::from(lsn.block()) + index as u64;
        let place = (self.start + block % self.blocks) * LOG_BLOCK_BYTES as u64;
        (place, lsn.cycle().saturating_add((block / self.blocks) as u32))
    }

    fn read(&self, record: usize) -> Result<Vec<u8>, String> {
        let mut bytes = vec![0; self.live[record].blocks as usize * LOG_BLOCK_BYTES];
        for (index, block) in bytes.chunks_exact_mut(LOG_BLOCK_BYTES).enumerate() {
            let (place, _) = self.place(record, index);
            self.device.read_at(place, block).map_err(|e| e.to_string())?;
        }
        Ok(bytes)
    }

    fn write(&self, record: usize, bytes: &[u8]) -> Result<(), String> {
        for (index, block) in bytes.chunks_exact(LOG_BLOCK_BYTES).enumerate() {
            let (place, _) = self.place(record, index);
            self.device.write_at(place, block).map_err(|e| e.to_string())?;
        }
        Ok(())
    }

    /// Returns a record with all fields adapted for position `at` of this log.
    fn moved(&self, record: &[u8], at: usize) -> Vec<u8> {
        let mut moved = record.to_vec();
        let header = &self.live[at];
        for (index, block) in moved.chunks_exact_mut(LOG_BLOCK_BYTES).enumerate() {
            put(block, CYCLE, &self.place(at, index).1.to_le_bytes());
            put(block, INDEX, &(index as u32).to_le_bytes());
            put(block, EPOCH, &header.epoch.to_le_bytes());
        }
        put(&mut moved, VOLUME, &self.volume);
        let lsns = [header.lsn, header.tail_lsn, header.sync_lsn, header.prev_lsn];
        for (place, lsn) in (LSN..).step_by(8).zip(lsns) {
            put(&mut moved, place, &lsn.to_bits().to_le_bytes());
        }
        put(&mut moved, PREV_CRC, &header.prev_crc.to_le_bytes());
        moved
    }

    /// Updates the links of all records after `at` to their predecessors.
    fn link(&self, at: usize) -> Result<(), String> {
        for next in at + 1..self.live.len() {
            let crc = crc_of(&self.read(next - 1)?);
            let mut record = self.read(next)?;
            put(&mut record, PREV_LSN, &self.live[next - 1].lsn.to_bits().to_le_bytes());
            put(&mut record, PREV_CRC, &crc);
            seal(&mut record);
            self.write(next, &record)?;
        }
        Ok(())
    }
}

fn name(from: &Log<'_>, here: &Log<'_>) -> &'static str {
    match (from.volume == here.volume, std::ptr::eq(from, here)) {
        (_, true) => "the same log",
        (true, _) => "an older log",
        _ => "another volume",
    }
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

fn crc_of(record: &[u8]) -> [u8; 4] {
    let mut crc = [0; 4];
    crc.copy_from_slice(&record[CRC..CRC + 4]);
    crc
}

/// Updates the checksum of a record.
fn seal(record: &mut [u8]) {
    put(record, CRC, &[0; 4]);
    let crc = crc32c::crc32c(record);
    put(record, CRC, &crc.to_le_bytes());
}

/// Damages the operations of a record. Returns `None` if it has none. Operations are only located
/// in the first record of a checkpoint.
fn spoil_operations(
    record: &mut [u8],
    header: &RecordHeader,
    random: &mut Random,
) -> Option<String> {
    let mut payload = payload(record);
    payload.truncate(header.payload_bytes as usize);
    let operations = if header.flags & FLAG_START == 0 { vec![] } else { operations(&payload) };
    let number = random.below(operations.len().max(1) as u64) as usize;
    let at = *operations.get(number)?;
    let len = length(&payload, at)?;
    let item = at + OPERATION_BYTES;
    let what = match random.below(6) {
        0 => {
            spoil(&mut payload[random.below(CHECKPOINT_BYTES as u64) as usize], random);
            "the checkpoint's header".into()
        }
        1 => {
            spoil(&mut payload[at + random.below(OPERATION_BYTES as u64) as usize], random);
            format!("the header of operation {number}")
        }
        2 => {
            // Replaces the key of the operation by that of another one.
            let from = random.one(&operations);
            let key = payload[from + 4..from + 16].to_vec();
            put(&mut payload, at + 4, &key);
            format!("the key of operation {number}")
        }
        3 => {
            let from = random.one(&operations);
            if length(&payload, from) == Some(len) {
                let bytes = payload[from..item + len - at + from].to_vec();
                put(&mut payload, at, &bytes);
            }
            format!("operation {number}, another one")
        }
        _ => {
            for _ in 0..=random.below(3) {
                let end = if random.below(2) == 0 { len.min(200) } else { len };
                let Some(place) = (end > 0).then(|| random.below(end as u64) as usize) else {
                    break;
                };
                spoil(&mut payload[item + place], random);
            }
            seal_inode(&mut payload[item..item + len]);
            format!("what operation {number} holds")
        }
    };
    put_payload(record, &payload);
    Some(what)
}

/// Updates the checksum of an inode record; other bytes have none.
fn seal_inode(bytes: &mut [u8]) {
    if let Ok(record) = <[u8; RECORD_BYTES]>::try_from(&*bytes) {
        let mut record = InodeRecord(record);
        record.seal();
        bytes.copy_from_slice(&record.0);
    }
}

/// Returns the length of an operation's data, if they are completely in the payload.
fn length(payload: &[u8], operation: usize) -> Option<usize> {
    let bytes = payload.get(operation + 16..operation + OPERATION_BYTES)?;
    let len = usize::try_from(u64::from_le_bytes(bytes.try_into().ok()?)).ok()?;
    let end = operation.checked_add(OPERATION_BYTES)?.checked_add(len)?;
    (end <= payload.len()).then_some(len)
}

/// Returns the offsets of the complete operations.
fn operations(payload: &[u8]) -> Vec<usize> {
    let mut found = Vec::new();
    let mut at = CHECKPOINT_BYTES;
    while let Some(len) = length(payload, at) {
        found.push(at);
        at += OPERATION_BYTES + len.next_multiple_of(OPERATION_ALIGN);
    }
    found
}

/// Returns the content of a record without headers and stamps.
fn payload(record: &[u8]) -> Vec<u8> {
    let blocks = record.chunks_exact(LOG_BLOCK_BYTES).enumerate();
    blocks.flat_map(|(index, block)| &block[head_of(index)..]).copied().collect()
}

fn put_payload(record: &mut [u8], mut payload: &[u8]) {
    for (index, block) in record.chunks_exact_mut(LOG_BLOCK_BYTES).enumerate() {
        let room = &mut block[head_of(index)..];
        let (here, rest) = payload.split_at(room.len().min(payload.len()));
        room[..here.len()].copy_from_slice(here);
        payload = rest;
    }
}

fn head_of(block: usize) -> usize {
    if block == 0 { HEADER_BYTES } else { STAMP_BYTES }
}

/// Returns the first block and the length of the log, for volumes that have it inside.
fn log_place(superblock: &Superblock) -> Option<(u64, u64)> {
    match superblock.log() {
        LogPlace::Inside { start, blocks } => Some((start, blocks)),
        LogPlace::Outside { .. } => None,
    }
}
