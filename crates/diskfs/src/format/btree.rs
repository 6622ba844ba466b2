//! Blocks of B+trees on disk, and what can be wrong with them.
//!
//! Every tree of a volume is made of the same blocks: the header that all blocks have, then
//! `RawNode`. Which keys and values are in it follows from the magic. Keys and values have a
//! fixed size and lie there as they are compared and used, one record behind the other.

use std::fmt;
use std::mem::offset_of;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, transmute_mut, transmute_ref,
};

use super::BLOCK_BYTES;
use super::header::{BODY_BYTES, Block, HEADER_BYTES, Magic};

/// The bytes of a block that records can have.
pub const AREA_BYTES: usize = BODY_BYTES - FIELDS_BYTES;
/// The most levels of a tree: a root at level 15.
pub const LEVELS_MAX: u16 = 16;

/// The bytes between the header and the records.
const FIELDS_BYTES: usize = 24;

/// The body of the block, on disk.
#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawNode {
    pub(crate) level: U16,
    pub(crate) records: U16,
    zero: U32,
    pub(crate) left: U64,
    pub(crate) right: U64,
    pub(crate) area: [u8; AREA_BYTES],
}

/// A record on disk: in a leaf a key and its value, further up the least key that may be below a
/// block, and the block's address.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, Immutable, KnownLayout, Unaligned, IntoBytes,
)]
#[repr(C)]
pub struct Entry<K, V> {
    /// The key.
    pub key: K,
    /// The value, or an address in blocks.
    pub value: V,
}

/// The fields as `docs/FORMAT.md` lists them: offset in the block, bytes, name.
#[cfg(test)]
pub(crate) const FIELDS: &[(usize, usize, &str)] = &[
    (HEADER_BYTES + offset_of!(RawNode, level), 2, "level"),
    (HEADER_BYTES + offset_of!(RawNode, records), 2, "records"),
    (HEADER_BYTES + offset_of!(RawNode, zero), 4, ""),
    (HEADER_BYTES + offset_of!(RawNode, left), 8, "left"),
    (HEADER_BYTES + offset_of!(RawNode, right), 8, "right"),
    (HEADER_BYTES + offset_of!(RawNode, area), AREA_BYTES, "area"),
];

const _: () = {
    assert!(size_of::<RawNode>() == BODY_BYTES && HEADER_BYTES + BODY_BYTES == BLOCK_BYTES);
    assert!(offset_of!(RawNode, level) == 0 && offset_of!(RawNode, records) == 2);
    assert!(offset_of!(RawNode, left) == 8 && offset_of!(RawNode, right) == 16);
    assert!(offset_of!(RawNode, area) == FIELDS_BYTES && AREA_BYTES == 4024);
    assert!(size_of::<Entry<[u8; 3], [u8; 5]>>() == 8);
};

/// The body of a block as that of a tree.
pub(crate) fn raw(block: &Block) -> &RawNode {
    transmute_ref!(block.body())
}

/// The body of a block as that of a tree, to be changed.
pub(crate) fn raw_mut(block: &mut Block) -> &mut RawNode {
    transmute_mut!(block.body_mut())
}

/// Something in a block of a tree that must not be so. Numbers begin with 200.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("V{}: block {address}: {fault}", fault.number())]
pub struct TreeDamage {
    /// Where it was read, in blocks.
    pub address: u64,
    /// What is wrong.
    pub fault: TreeFault,
}

/// What is wrong with a block of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TreeFault {
    /// 200: It is not at the level that follows from the block above it or beside it.
    #[error("at level {found} of a tree instead of {expected}")]
    Level {
        /// The level that it says it is at.
        found: u16,
        /// The level that it must be at.
        expected: u16,
    },
    /// 201: More records than there is room for, or none where there must be some.
    #[error("{found} records, of {least} to {most} that it may have")]
    Count {
        /// How many it says it has.
        found: u16,
        /// The fewest.
        least: u16,
        /// The most.
        most: u16,
    },
    /// 202: A record's key is not greater than that of the record before it.
    #[error("record {record} is not in order")]
    Order {
        /// The later record, from 0 on.
        record: u16,
    },
    /// 203: A key lies outside of what the block above it, or that beside it, allows.
    #[error("record {record} belongs elsewhere in the tree")]
    Range {
        /// The record, from 0 on.
        record: u16,
    },
    /// 204: The link to the left leads elsewhere than to the block that is there.
    #[error("its left neighbour is block {found} instead of {expected:?}")]
    Left {
        /// The link.
        found: u64,
        /// Where it must lead; 0 for nowhere. `None`: somewhere.
        expected: Option<u64>,
    },
    /// 205: The link to the right leads elsewhere than to the block that is there.
    #[error("its right neighbour is block {found} instead of {expected:?}")]
    Right {
        /// The link.
        found: u64,
        /// Where it must lead; 0 for nowhere. `None`: somewhere.
        expected: Option<u64>,
    },
    /// 206: It leads to a block that no tree can have.
    #[error("leads to block {child}, which can't be in a tree")]
    Pointer {
        /// Where it leads.
        child: u64,
    },
    /// 207: A tree with more levels than any tree has.
    #[error("at level {level}, the highest is {}", LEVELS_MAX - 1)]
    Height {
        /// Its level.
        level: u16,
    },
    /// 208: Less full than blocks inside of a tree are.
    #[error("{found} records, where blocks inside of a tree have {least}")]
    Fill {
        /// How many it has.
        found: u16,
        /// The fewest.
        least: u16,
    },
    /// 209: The tree leads to it a second time.
    #[error("is more than once in its tree")]
    Shared,
}

impl TreeFault {
    /// Its number.
    #[must_use]
    pub fn number(&self) -> u32 {
        match self {
            Self::Level { .. } => 200,
            Self::Count { .. } => 201,
            Self::Order { .. } => 202,
            Self::Range { .. } => 203,
            Self::Left { .. } => 204,
            Self::Right { .. } => 205,
            Self::Pointer { .. } => 206,
            Self::Height { .. } => 207,
            Self::Fill { .. } => 208,
            Self::Shared => 209,
        }
    }
}

/// What lies on disk as it is: bytes in little-endian order, without padding or alignment.
pub trait OnDisk:
    Copy + fmt::Debug + FromBytes + IntoBytes + Immutable + KnownLayout + Unaligned
{
}

impl<T: Copy + fmt::Debug + FromBytes + IntoBytes + Immutable + KnownLayout + Unaligned> OnDisk
    for T
{
}

/// What a tree holds.
pub trait Kind {
    /// Ordered as the tree is; any bytes are a key. Types of `zerocopy::little_endian` and structs
    /// of them compare as numbers do, without a conversion on little-endian machines.
    type Key: OnDisk + Ord;
    /// What belongs to a key; any bytes are a value.
    type Value: OnDisk;
    /// What its blocks begin with.
    const MAGIC: Magic;
    /// The least key.
    const KEY_MIN: Self::Key;
    /// The most records of a block, if there is room for more. For tests, which want high trees.
    const RECORDS_MAX: usize = AREA_BYTES;
}

/// A record of a leaf.
pub type Record<K> = Entry<<K as Kind>::Key, <K as Kind>::Value>;
/// A record of a block above the leaves.
pub(crate) type Branch<K> = Entry<<K as Kind>::Key, U64>;

#[cfg(test)]
mod tests;
