//! Log records as they are on disk. `docs/FORMAT.md` specifies every byte.
//!
//! # Purpose
//!
//! A record is one write of the log: 1 to [`RECORD_BLOCKS_MAX`] blocks. Every block begins with a
//! stamp (the cycle, its index in the record, the epoch), so that a payload is never mistaken for a
//! header. In the first block a header follows: it gives the LSN of the record, its predecessor,
//! and the part of the log that is known to be durable. A checksum covers everything.
//!
//! # Invariants
//!
//! * Little-endian throughout. Sizes and offsets are asserted below.
//! * No byte that was read is trusted before the checksum of the whole record is verified and every
//!   number in the header is possible. [`decode`] takes any bytes and returns a header or nothing.

use crate::Lsn;
use crate::lsn::{LOG_BLOCK_BYTES, LOG_BLOCKS_MAX, LOG_BLOCKS_MIN};

/// Largest size of a record in blocks (256 KiB).
pub const RECORD_BLOCKS_MAX: u32 = 64;
/// Magic number of a record, after its stamp: "vfsJ".
pub const RECORD_MAGIC: u32 = u32::from_le_bytes(*b"vfsJ");
/// Version of the format of the log.
pub const LOG_VERSION: u16 = 1;

/// Feature bit of a record: items of its checkpoint may lack zeros at their end.
pub(crate) const FEATURE_SHORT: u32 = 1;
/// Feature bits that this program knows: a program that does not know a bit of a record must not
/// replay the log.
pub(crate) const FEATURES_KNOWN: u32 = FEATURE_SHORT;

/// Size of the stamp that every block begins with, in bytes.
pub(crate) const STAMP_BYTES: usize = 16;
/// Size of stamp and header of a record's first block, in bytes.
pub(crate) const HEADER_BYTES: usize = 128;
/// Bytes of payload in the first block of a record.
pub(crate) const FIRST_PAYLOAD: usize = LOG_BLOCK_BYTES - HEADER_BYTES;
/// Bytes of payload in each other block of a record.
pub(crate) const OTHER_PAYLOAD: usize = LOG_BLOCK_BYTES - STAMP_BYTES;

/// Offsets of the fields of stamp and header, in bytes from the start of the record.
mod at {
    pub(super) const CYCLE: usize = 0;
    pub(super) const INDEX: usize = 4;
    pub(super) const EPOCH: usize = 8;
    pub(super) const MAGIC: usize = 16;
    pub(super) const VERSION: usize = 20;
    pub(super) const KIND: usize = 22;
    pub(super) const FLAGS: usize = 23;
    pub(super) const VOLUME: usize = 24;
    pub(super) const LSN: usize = 40;
    pub(super) const TAIL_LSN: usize = 48;
    pub(super) const SYNC_LSN: usize = 56;
    pub(super) const PREV_LSN: usize = 64;
    pub(super) const PREV_CRC: usize = 72;
    pub(super) const BLOCKS: usize = 76;
    pub(super) const PAYLOAD_BYTES: usize = 80;
    pub(super) const LOG_BLOCKS: usize = 84;
    pub(super) const CHECKPOINT: usize = 88;
    pub(super) const STREAM_OFFSET: usize = 96;
    pub(super) const CRC: usize = 104;
    pub(super) const FEATURES: usize = 108;
    pub(super) const DEVICE: usize = 112;
}

const _: () = {
    assert!(at::EPOCH + 8 == STAMP_BYTES && at::MAGIC == STAMP_BYTES);
    assert!(at::FLAGS + 1 == at::VOLUME && at::VOLUME + 16 == at::LSN);
    assert!(at::PREV_LSN + 8 == at::PREV_CRC && at::STREAM_OFFSET + 8 == at::CRC);
    assert!(at::CRC + 4 == at::FEATURES && at::FEATURES + 4 == at::DEVICE);
    assert!(at::DEVICE + 16 == HEADER_BYTES);
    assert!(LOG_BLOCKS_MIN >= 4 * RECORD_BLOCKS_MAX && LOG_BLOCKS_MAX.is_power_of_two());
};

/// The identity of a volume. A log ignores records of other volumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeId(pub [u8; 16]);

/// The purpose of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RecordKind {
    /// A part of a checkpoint.
    Data = 1,
    /// The first record of an epoch: the log was opened, and everything before it is written back.
    Open = 2,
    /// A record that only publishes the tail.
    Tail = 3,
    /// The last record of an epoch: the log was closed, and everything before it is written back.
    Unmount = 4,
}

impl RecordKind {
    fn of(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Data),
            2 => Some(Self::Open),
            3 => Some(Self::Tail),
            4 => Some(Self::Unmount),
            _ => None,
        }
    }
}

/// Flag of the first data record of a checkpoint.
pub const FLAG_START: u8 = 1;
/// Flag of the last data record of a checkpoint: with it the checkpoint takes effect.
pub const FLAG_COMMIT: u8 = 2;

/// The header of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHeader {
    /// Purpose of the record.
    pub kind: RecordKind,
    /// [`FLAG_START`], [`FLAG_COMMIT`].
    pub flags: u8,
    /// How often the log was opened before it was written.
    pub epoch: u64,
    /// LSN of the record.
    pub lsn: Lsn,
    /// LSN at which a recovery begins that ends with this record.
    pub tail_lsn: Lsn,
    /// Last record that was known to be durable when this one was written.
    pub sync_lsn: Lsn,
    /// LSN of the record before it.
    pub prev_lsn: Lsn,
    /// Checksum of the record before it.
    pub prev_crc: u32,
    /// Length in blocks.
    pub blocks: u32,
    /// Length of the payload, in bytes.
    pub payload_bytes: u32,
    /// Size of the log, in blocks.
    pub log_blocks: u32,
    /// Checkpoint of a data record; 0 for other records.
    pub checkpoint: u64,
    /// Offset of the payload in the checkpoint's stream, in bytes.
    pub stream_offset: u64,
    /// Checksum of the whole record, with this field as zero.
    pub crc: u32,
    /// Feature bits: a program that does not know one must not replay the log.
    pub features: u32,
    /// Id of the device of the log, if the log has a device of its own; otherwise zero.
    pub device: [u8; 16],
}

/// Returns how many bytes of payload fit in a record of `blocks` blocks.
pub(crate) const fn payload_of(blocks: usize) -> usize {
    FIRST_PAYLOAD + OTHER_PAYLOAD * (blocks - 1)
}

/// Returns the number of blocks of a record with `payload` bytes.
pub(crate) const fn blocks_of(payload: usize) -> usize {
    1 + payload.saturating_sub(FIRST_PAYLOAD).div_ceil(OTHER_PAYLOAD)
}

/// Returns the part of `record` (whole blocks) for the payload from byte `offset` on, to the end of
/// its block.
pub(crate) fn payload_room(record: &mut [u8], offset: usize) -> &mut [u8] {
    let (block, within) = match offset.checked_sub(FIRST_PAYLOAD) {
        None => (0, HEADER_BYTES + offset),
        Some(rest) => (1 + rest / OTHER_PAYLOAD, STAMP_BYTES + rest % OTHER_PAYLOAD),
    };
    let start = block * LOG_BLOCK_BYTES;
    &mut record[start + within..start + LOG_BLOCK_BYTES]
}

/// Appends the payload of a decoded record to `out`.
pub(crate) fn payload_into(record: &[u8], bytes: usize, out: &mut Vec<u8>) {
    let mut left = bytes;
    for (index, block) in record.chunks_exact(LOG_BLOCK_BYTES).enumerate() {
        let start = if index == 0 { HEADER_BYTES } else { STAMP_BYTES };
        let len = left.min(LOG_BLOCK_BYTES - start);
        out.extend_from_slice(&block[start..start + len]);
        left -= len;
    }
}

fn put<const N: usize>(record: &mut [u8], at: usize, bytes: [u8; N]) {
    record[at..at + N].copy_from_slice(&bytes);
}

fn get<const N: usize>(record: &[u8], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&record[at..at + N]);
    bytes
}

pub(crate) fn get_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(get(bytes, at))
}

pub(crate) fn get_u64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(get(bytes, at))
}

fn checksum(record: &[u8]) -> u32 {
    let crc = crc32c::crc32c(&record[..at::CRC]);
    let crc = crc32c::crc32c_append(crc, &[0; 4]);
    crc32c::crc32c_append(crc, &record[at::FEATURES..])
}

/// Stamps every block of `record`, which already contains its payload, writes the header, and
/// returns the checksum. `cycle_of` returns the cycle of each of its blocks: a record may wrap
/// around the end of the log.
pub(crate) fn encode(
    record: &mut [u8],
    header: &RecordHeader,
    volume: VolumeId,
    cycle_of: impl Fn(usize) -> u32,
) -> u32 {
    for (index, block) in record.chunks_exact_mut(LOG_BLOCK_BYTES).enumerate() {
        put(block, at::CYCLE, cycle_of(index).to_le_bytes());
        put(block, at::INDEX, u32::try_from(index).unwrap_or(u32::MAX).to_le_bytes());
        put(block, at::EPOCH, header.epoch.to_le_bytes());
    }
    put(record, at::MAGIC, RECORD_MAGIC.to_le_bytes());
    put(record, at::VERSION, LOG_VERSION.to_le_bytes());
    put(record, at::KIND, [header.kind as u8]);
    put(record, at::FLAGS, [header.flags]);
    put(record, at::VOLUME, volume.0);
    put(record, at::LSN, header.lsn.to_bits().to_le_bytes());
    put(record, at::TAIL_LSN, header.tail_lsn.to_bits().to_le_bytes());
    put(record, at::SYNC_LSN, header.sync_lsn.to_bits().to_le_bytes());
    put(record, at::PREV_LSN, header.prev_lsn.to_bits().to_le_bytes());
    put(record, at::PREV_CRC, header.prev_crc.to_le_bytes());
    put(record, at::BLOCKS, header.blocks.to_le_bytes());
    put(record, at::PAYLOAD_BYTES, header.payload_bytes.to_le_bytes());
    put(record, at::LOG_BLOCKS, header.log_blocks.to_le_bytes());
    put(record, at::CHECKPOINT, header.checkpoint.to_le_bytes());
    put(record, at::STREAM_OFFSET, header.stream_offset.to_le_bytes());
    put(record, at::FEATURES, header.features.to_le_bytes());
    put(record, at::DEVICE, header.device);
    let crc = checksum(record);
    put(record, at::CRC, crc.to_le_bytes());
    crc
}

/// Returns the volume of a block that looks like the first of a record.
pub(crate) fn claimed_volume(block: &[u8]) -> Option<VolumeId> {
    let volume = VolumeId(get(block, at::VOLUME));
    claimed_blocks(block, volume).map(|_| volume)
}

/// Returns the number of blocks that a block of the log claims as the first of a record of
/// `volume`, if it looks like one at all. Only good for deciding how much to read for [`decode`].
pub(crate) fn claimed_blocks(block: &[u8], volume: VolumeId) -> Option<usize> {
    let looks = get_u32(block, at::INDEX) == 0
        && get_u32(block, at::MAGIC) == RECORD_MAGIC
        && get::<16>(block, at::VOLUME) == volume.0;
    let blocks = get_u32(block, at::BLOCKS);
    (looks && (1..=RECORD_BLOCKS_MAX).contains(&blocks)).then_some(blocks as usize)
}

/// Returns the LSN that a block claims which looks like the first of a record.
pub(crate) fn claimed_lsn(block: &[u8]) -> Lsn {
    Lsn::from_bits(get_u64(block, at::LSN))
}

/// Decodes the header, if the bytes are a whole record of `volume` at `block` of a log of
/// `log_blocks` blocks. `record` has as many blocks as [`claimed_blocks`] returned.
pub(crate) fn decode(
    record: &[u8],
    volume: VolumeId,
    block: u32,
    log_blocks: u32,
) -> Option<RecordHeader> {
    claimed_blocks(record, volume)?;
    let version = u16::from_le_bytes(get(record, at::VERSION));
    let header = RecordHeader {
        kind: RecordKind::of(record[at::KIND])?,
        flags: record[at::FLAGS],
        epoch: get_u64(record, at::EPOCH),
        lsn: Lsn::from_bits(get_u64(record, at::LSN)),
        tail_lsn: Lsn::from_bits(get_u64(record, at::TAIL_LSN)),
        sync_lsn: Lsn::from_bits(get_u64(record, at::SYNC_LSN)),
        prev_lsn: Lsn::from_bits(get_u64(record, at::PREV_LSN)),
        prev_crc: get_u32(record, at::PREV_CRC),
        blocks: get_u32(record, at::BLOCKS),
        payload_bytes: get_u32(record, at::PAYLOAD_BYTES),
        log_blocks: get_u32(record, at::LOG_BLOCKS),
        checkpoint: get_u64(record, at::CHECKPOINT),
        stream_offset: get_u64(record, at::STREAM_OFFSET),
        crc: get_u32(record, at::CRC),
        features: get_u32(record, at::FEATURES),
        device: get(record, at::DEVICE),
    };
    let whole = record.len() == header.blocks as usize * LOG_BLOCK_BYTES
        && blocks_of(header.payload_bytes as usize) == header.blocks as usize;
    let here = header.lsn.block() == block && header.lsn.cycle() > 0;
    let ordered = header.tail_lsn <= header.lsn
        && header.sync_lsn < header.lsn
        && header.prev_lsn < header.lsn
        && [header.tail_lsn, header.sync_lsn, header.prev_lsn]
            .iter()
            .all(|lsn| lsn.block() < log_blocks);
    let good =
        version == LOG_VERSION && header.log_blocks == log_blocks && whole && here && ordered;
    (good && stamps_are_right(record, &header) && checksum(record) == header.crc).then_some(header)
}

/// Returns whether the stamp of each block matches its index and the record.
fn stamps_are_right(record: &[u8], header: &RecordHeader) -> bool {
    record.chunks_exact(LOG_BLOCK_BYTES).enumerate().all(|(index, block)| {
        let over = header.lsn.block() as usize + index >= header.log_blocks as usize;
        get_u32(block, at::CYCLE) == header.lsn.cycle().saturating_add(u32::from(over))
            && get_u32(block, at::INDEX) as usize == index
            && get_u64(block, at::EPOCH) == header.epoch
    })
}

#[cfg(all(test, not(shuttle)))]
mod tests;
