//! Every structure of a pool on its device; `docs/FORMAT.md` has the tables.
//!
//! All numbers are little-endian, all blocks have 4096 bytes. A *place* is the address of a block
//! on the device. Every block of the pool itself begins with a [`Header`]; blocks of branches are
//! bare data. A reader checks a block ([`read`]) before it looks at any field.

use std::mem::offset_of;

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::Error;

/// Size of a block and of a place, in bytes.
pub(crate) const PLACE_BYTES: usize = 4096;
/// Entries of a node, and of a block of a dead list.
pub(crate) const FANOUT: usize = 504;
/// Places of a zone.
pub(crate) const ZONE_PLACES: u64 = 31_744;
/// Places at the start of a pool that are never handed out.
pub(crate) const HEAD_PLACES: u64 = 32;
/// Most zones: as many as a superblock has bits. A zone of a former volume has two.
pub(crate) const ZONES_MAX: u64 = 8 * 3840;
/// Records of a block of the branch table.
pub(crate) const TABLE_RECORDS: usize = 15;
/// Maps of a record of a delta log.
pub(crate) const LOG_MAPS: usize = 168;
/// Most bytes of a name.
pub(crate) const NAME_MAX: usize = 128;
/// The greatest depth of a node, and so the greatest birth.
pub(crate) const DEPTH_MAX: u32 = (1 << 27) - 1;
/// Bit of the first block's incompat: the pool was a volume, and maps may have rows of its blocks.
pub(crate) const ROWS: u64 = 1;
/// Bit of the superblock's incompat: it names spare logs, which may have records of branches.
pub(crate) const SPARES: u64 = 1;
/// Bit of the superblock's incompat: the tree of the branch table has one level.
pub(crate) const FLAT_TABLE: u64 = 2;
/// Bit of the superblock's incompat: this superblock has a copy, and so may blocks of the branch
/// table.
pub(crate) const TWICE: u64 = 4;
/// Most spare logs.
pub(crate) const SPARES_MAX: usize = 4;
/// The version of the format.
pub(crate) const VERSION: u32 = 1;

pub(crate) const LEAD: [u8; 4] = *b"vfsP";
pub(crate) const SUPER: [u8; 4] = *b"pooS";
pub(crate) const NODE: [u8; 4] = *b"pooN";
pub(crate) const BITMAP: [u8; 4] = *b"pooB";
pub(crate) const TABLE: [u8; 4] = *b"pooT";
pub(crate) const LOG: [u8; 4] = *b"pooL";
pub(crate) const DEAD: [u8; 4] = *b"pooD";

/// The bytes of a block.
pub(crate) type Bytes = [u8; PLACE_BYTES];

/// The beginning of each block of the pool itself.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Header {
    /// The kind.
    pub(crate) magic: [u8; 4],
    /// CRC-32C of the block, with this field as zero.
    pub(crate) checksum: U32,
    /// Its own place.
    pub(crate) place: U64,
    /// The id of the pool.
    pub(crate) pool: [u8; 16],
    /// The commit that wrote it; of a log, the commit that began it.
    pub(crate) generation: U64,
    /// The owner, by kind: a tree, a node of the history.
    pub(crate) owner: U64,
    /// Its number, by kind: the first block below a node, a zone, a record.
    pub(crate) number: U64,
    /// By kind: level and birth, previous checksum and count, previous place.
    pub(crate) extra: U64,
}

/// The first block of a pool.
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Lead {
    pub(crate) header: Header,
    pub(crate) version: U32,
    pub(crate) unused: U32,
    pub(crate) incompat: U64,
    pub(crate) superblocks: [U64; 2],
    /// Where the volume that has become a pool had the copies of its superblock; 0 if there is
    /// none.
    pub(crate) group: U64,
    pub(crate) rest: [u8; 3992],
}

/// The root of everything. Written in turn to two places.
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Superblock {
    pub(crate) header: Header,
    pub(crate) version: U32,
    pub(crate) unused: U32,
    pub(crate) places: U64,
    pub(crate) compat: U64,
    pub(crate) ro_compat: U64,
    pub(crate) incompat: U64,
    /// The entry of the root of the tree that leads to the blocks of the branch table.
    pub(crate) table: U64,
    pub(crate) table_blocks: U64,
    pub(crate) next_node: U64,
    pub(crate) used: U64,
    /// Zones from this one on have never had a bitmap: all free.
    pub(crate) zones_made: U64,
    pub(crate) spares: [RawSpare; SPARES_MAX],
    pub(crate) rest: [u8; 16],
    /// For each zone, which of its two bitmaps is valid; from the end on, two bits for each zone of
    /// a former volume: whether it has a bitmap, and which.
    pub(crate) copies: [u8; 3840],
}

/// A spare log, as the superblock names it; all zeros for none.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawSpare {
    pub(crate) place: U64,
    pub(crate) sequence: U64,
    pub(crate) blocks: U32,
    pub(crate) unused: U32,
}

/// A node of a tree of places.
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct NodeBlock {
    pub(crate) header: Header,
    pub(crate) entries: [U64; FANOUT],
}

/// The places of a zone that are in use.
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct BitmapBlock {
    pub(crate) header: Header,
    pub(crate) words: [U64; ZONE_PLACES as usize / 64],
    pub(crate) rest: [u8; 64],
}

/// Part of the branch table.
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct TableBlock {
    pub(crate) header: Header,
    pub(crate) records: [RawRecord; TABLE_RECORDS],
    pub(crate) rest: [u8; 192],
}

/// A node of the history in the branch table; all zeros if the slot is free.
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawRecord {
    pub(crate) id: U64,
    pub(crate) parent: U64,
    pub(crate) depth: U32,
    pub(crate) flags: U32,
    pub(crate) root: U64,
    pub(crate) blocks: U64,
    pub(crate) log: U64,
    pub(crate) log_sequence: U64,
    pub(crate) log_blocks: U32,
    pub(crate) name_bytes: U32,
    pub(crate) dead: U64,
    pub(crate) dead_count: U64,
    pub(crate) own: U64,
    pub(crate) origin: U64,
    pub(crate) marks: U32,
    pub(crate) text_bytes: U32,
    pub(crate) time: U64,
    pub(crate) merged: U64,
    /// By flags: what other pools know a frozen node by, or how many places a branch may have.
    pub(crate) sent_or_limit: U64,
    /// The name, and then the text.
    pub(crate) name: [u8; NAME_MAX],
}

/// A record of the delta log of a branch.
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct LogBlock {
    pub(crate) header: Header,
    pub(crate) maps: [LogMap; LOG_MAPS],
}

/// A block of a branch that got a new place.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct LogMap {
    pub(crate) block: U64,
    pub(crate) place: U64,
    /// CRC-32C of the content, if `kind` is [`LogMap::CHECKED`].
    pub(crate) checksum: U32,
    pub(crate) kind: U32,
}

impl LogMap {
    /// The content was flushed before the record was written.
    pub(crate) const FLUSHED: u32 = 0;
    /// The content was written together with the record: the checksum tells whether it is there.
    pub(crate) const CHECKED: u32 = 1;
}

/// A part of a dead list, newest first.
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct DeadBlock {
    pub(crate) header: Header,
    pub(crate) entries: [U64; FANOUT],
}

const _: () = {
    assert!(size_of::<Header>() == 64 && size_of::<RawRecord>() == 256);
    assert!(size_of::<Lead>() == PLACE_BYTES && size_of::<Superblock>() == PLACE_BYTES);
    assert!(size_of::<NodeBlock>() == PLACE_BYTES && size_of::<BitmapBlock>() == PLACE_BYTES);
    assert!(size_of::<TableBlock>() == PLACE_BYTES && size_of::<LogBlock>() == PLACE_BYTES);
    assert!(size_of::<DeadBlock>() == PLACE_BYTES && size_of::<LogMap>() == 24);
    assert!(offset_of!(Header, pool) == 16 && offset_of!(Header, generation) == 32);
    assert!(offset_of!(Header, owner) == 40 && offset_of!(Header, number) == 48);
    assert!(offset_of!(Header, extra) == 56 && offset_of!(Lead, version) == 64);
    assert!(offset_of!(Lead, incompat) == 72 && offset_of!(Lead, superblocks) == 80);
    assert!(offset_of!(Superblock, places) == 72 && offset_of!(Superblock, compat) == 80);
    assert!(offset_of!(Superblock, incompat) == 96 && offset_of!(Superblock, table) == 104);
    assert!(offset_of!(Superblock, table_blocks) == 112 && offset_of!(Superblock, used) == 128);
    assert!(offset_of!(Superblock, next_node) == 120 && offset_of!(Superblock, copies) == 256);
    assert!(offset_of!(Superblock, spares) == 144 && size_of::<RawSpare>() == 24);
    assert!(offset_of!(Superblock, zones_made) == 136 && offset_of!(RawRecord, depth) == 16);
    assert!(offset_of!(RawRecord, root) == 24 && offset_of!(RawRecord, blocks) == 32);
    assert!(offset_of!(RawRecord, log) == 40 && offset_of!(RawRecord, log_sequence) == 48);
    assert!(offset_of!(RawRecord, log_blocks) == 56 && offset_of!(RawRecord, name_bytes) == 60);
    assert!(offset_of!(RawRecord, dead) == 64 && offset_of!(RawRecord, dead_count) == 72);
    assert!(offset_of!(RawRecord, own) == 80 && offset_of!(RawRecord, name) == 128);
    assert!(offset_of!(RawRecord, origin) == 88 && offset_of!(RawRecord, marks) == 96);
    assert!(offset_of!(RawRecord, time) == 104 && offset_of!(RawRecord, merged) == 112);
    assert!(offset_of!(RawRecord, sent_or_limit) == 120);
    assert!(offset_of!(LogMap, place) == 8 && offset_of!(LogMap, checksum) == 16);
};

/// A reference to a block: its place, and the depth of the node of the history that wrote it. Zero
/// refers to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Entry(pub(crate) u64);

impl Entry {
    pub(crate) const NONE: Self = Self(0);

    pub(crate) fn new(place: u64, birth: u32) -> Self {
        debug_assert!(place < 1 << 36 && birth <= DEPTH_MAX);
        Self(place | u64::from(birth) << 36)
    }

    pub(crate) fn place(self) -> u64 {
        self.0 & ((1 << 36) - 1)
    }

    pub(crate) fn birth(self) -> u32 {
        (self.0 >> 36) as u32 & DEPTH_MAX
    }

    /// Makes an entry of the tree of the branch table, for a block with a copy in the next place.
    pub(crate) fn twice(place: u64) -> Self {
        Self::new(place, 2)
    }

    /// Returns whether a block of the branch table, or of its tree, has a copy in the next place.
    pub(crate) fn is_twice(self) -> bool {
        self.birth() == 2
    }

    /// Returns the places of a block of the branch table, or of its tree; none for no block.
    pub(crate) fn table_places(self) -> std::ops::Range<u64> {
        let count = if self.is_none() { 0 } else { 1 + u64::from(self.is_twice()) };
        self.place()..self.place() + count
    }

    pub(crate) fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Makes the entry of a row of blocks from `block` on, each at the place with its own number.
    pub(crate) fn row(block: u64, birth: u32) -> Self {
        Self(Self::new(block, birth).0 | 1 << 63)
    }

    pub(crate) fn is_row(self) -> bool {
        self.0 >> 63 != 0
    }
}

/// Returns the CRC-32C of a block, with the checksum of its header as zero.
fn checksum(bytes: &Bytes) -> u32 {
    let start = crc32c::crc32c_append(crc32c::crc32c(&bytes[..4]), &[0; 4]);
    crc32c::crc32c_append(start, &bytes[8..])
}

/// Returns the bytes of a block, with a checksum.
pub(crate) fn seal<T: IntoBytes + Immutable>(block: &T) -> Box<Bytes> {
    // Not filled with zeros first.
    let bytes: Result<Box<Bytes>, _> = Box::<[u8]>::from(block.as_bytes()).try_into();
    let Ok(mut bytes) = bytes else { unreachable!("a block has 4096 bytes") };
    let sum = checksum(&bytes);
    bytes[4..8].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// Gives changed bytes a right checksum.
#[cfg(test)]
pub(crate) fn reseal(mut bytes: Bytes) -> Box<Bytes> {
    let sum = checksum(&bytes);
    bytes[4..8].copy_from_slice(&sum.to_le_bytes());
    Box::new(bytes)
}

/// Returns the checksum that a sealed block has.
pub(crate) fn checksum_of(bytes: &Bytes) -> u32 {
    u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]])
}

/// The identity of a block that is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected {
    pub(crate) magic: [u8; 4],
    pub(crate) pool: [u8; 16],
    pub(crate) place: u64,
}

/// Returns the first bytes of a block as a header, whatever they are.
pub(crate) fn header_of(bytes: &Bytes) -> Header {
    let mut header: Header = zeroed();
    header.as_mut_bytes().copy_from_slice(&bytes[..size_of::<Header>()]);
    header
}

/// Interprets the bytes of a block, if they are whole and the block is the expected one.
///
/// # Errors
/// [`Error::Damage`].
pub(crate) fn read<T>(bytes: &Bytes, expected: Expected) -> Result<&T, Error>
where
    T: FromBytes + Immutable + KnownLayout + Unaligned,
{
    let Expected { magic, pool, place } = expected;
    let damage = |what| Error::Damage { place, what };
    let header = Header::ref_from_bytes(&bytes[..64]).map_err(|_| damage("no header"))?;
    if header.magic != magic {
        return Err(damage("another kind of block"));
    }
    if header.checksum.get() != checksum(bytes) {
        return Err(damage("the checksum is wrong"));
    }
    if header.place.get() != place || header.pool != pool {
        return Err(damage("a block of another place or pool"));
    }
    T::ref_from_bytes(bytes).map_err(|_| damage("no block"))
}

/// Returns the block that these bytes were before one of them became wrong. `None` if no wrong byte
/// explains the checksum; of other bytes one in four thousand has such an explanation.
pub(crate) fn mended(bytes: &Bytes) -> Option<Bytes> {
    // The difference that the wrong byte makes is followed back, over the bytes behind it.
    let mut difference = checksum_of(bytes) ^ checksum(bytes);
    for at in (0..PLACE_BYTES).rev() {
        let index = INDICES[(difference >> 24) as usize];
        difference = ((difference ^ SUMS[index as usize]) << 8) | u32::from(index);
        if difference == 0 {
            return None;
        }
        if difference < 256 && !(4..8).contains(&at) {
            let mut right = *bytes;
            right[at] ^= difference as u8;
            return Some(right);
        }
    }
    None
}

/// The effect of a byte on a CRC-32C.
const SUMS: [u32; 256] = {
    let mut sums = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut sum, mut bit) = (byte as u32, 0);
        while bit < 8 {
            sum = (sum >> 1) ^ ((sum & 1) * 0x82f6_3b78);
            bit += 1;
        }
        sums[byte] = sum;
        byte += 1;
    }
    sums
};

/// For the highest byte of each of [`SUMS`], which one it is.
const INDICES: [u8; 256] = {
    let mut indices = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        indices[(SUMS[byte] >> 24) as usize] = byte as u8;
        byte += 1;
    }
    indices
};

/// Makes the header of a block.
pub(crate) fn header(expected: Expected, generation: u64, owner: u64, number: u64) -> Header {
    Header {
        magic: expected.magic,
        checksum: U32::ZERO,
        place: expected.place.into(),
        pool: expected.pool,
        generation: generation.into(),
        owner: owner.into(),
        number: number.into(),
        extra: U64::ZERO,
    }
}

/// Returns a block of zeros.
pub(crate) fn zeroed<T: FromZeros + KnownLayout>() -> T {
    T::new_zeroed()
}

#[cfg(test)]
mod tests;
