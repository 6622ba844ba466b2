//! On-disk blocks of B+trees, and their faults.
//!
//! All trees of a volume use the same layout: the header that all blocks have, then `RawNode`. The
//! magic determines which keys and values a block contains. Keys and values have a fixed size and
//! are stored as they are compared and used, one record after the other.

use std::fmt;
use std::mem::offset_of;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, transmute_mut, transmute_ref,
};

use super::BLOCK_BYTES;
use super::header::{BODY_BYTES, Block, HEADER_BYTES};
use super::magic::Magic;

/// Bytes of a block available to records.
pub const AREA_BYTES: usize = BODY_BYTES - FIELDS_BYTES;
/// Maximum number of levels of a tree: a root at level 15.
pub const LEVELS_MAX: u16 = 16;

/// Bytes between the header and the records.
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

/// A record on disk. In a leaf: a key and its value; further up: the least key that may be below a
/// block, and the address of that block.
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

/// Returns the body of a block as that of a tree.
pub(crate) fn raw(block: &Block) -> &RawNode {
    transmute_ref!(block.body())
}

/// Returns the body of a block as that of a tree, mutably.
pub(crate) fn raw_mut(block: &mut Block) -> &mut RawNode {
    transmute_mut!(block.body_mut())
}

/// A fault in a block of a tree. Numbers begin with 200.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("V{}: block {address}: {fault}", fault.number())]
pub struct TreeDamage {
    /// Address at which the block was read, in blocks.
    pub address: u64,
    /// The fault.
    pub fault: TreeFault,
}

/// Faults of a block of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TreeFault {
    /// 200: The level is not the one that follows from the parent or sibling block.
    #[error("at level {found} of a tree instead of {expected}")]
    Level {
        /// The level in the block.
        found: u16,
        /// The level that the block should have.
        expected: u16,
    },
    /// 201: More records than fit, or none where at least one is required.
    #[error("{found} records, of {least} to {most} that it may have")]
    Count {
        /// Number of records according to the block.
        found: u16,
        /// The minimum.
        least: u16,
        /// The maximum.
        most: u16,
    },
    /// 202: A record's key is not greater than that of the record before it.
    #[error("record {record} is not in order")]
    Order {
        /// The later record, from 0 on.
        record: u16,
    },
    /// 203: A key lies outside of the range that the parent or sibling block allows.
    #[error("record {record} belongs elsewhere in the tree")]
    Range {
        /// The record, from 0 on.
        record: u16,
    },
    /// 204: The link to the left does not point to the left sibling.
    #[error("its left neighbour is block {found} instead of {expected:?}")]
    Left {
        /// The link.
        found: u64,
        /// The correct target; 0 for none. `None`: any block but 0.
        expected: Option<u64>,
    },
    /// 205: The link to the right does not point to the right sibling.
    #[error("its right neighbour is block {found} instead of {expected:?}")]
    Right {
        /// The link.
        found: u64,
        /// The correct target; 0 for none. `None`: any block but 0.
        expected: Option<u64>,
    },
    /// 206: A child pointer to a block that no tree can have.
    #[error("leads to block {child}, which can't be in a tree")]
    Pointer {
        /// The address of the child.
        child: u64,
    },
    /// 207: A tree with more levels than any tree has.
    #[error("at level {level}, the highest is {highest}")]
    Height {
        /// The level.
        level: u16,
        /// The highest level of any tree.
        highest: u16,
    },
    /// 208: Fewer records than a block other than the root must have.
    #[error("{found} records, where blocks inside of a tree have {least}")]
    Fill {
        /// Number of records found.
        found: u16,
        /// The minimum.
        least: u16,
    },
    /// 209: The tree refers to the block a second time.
    #[error("is more than once in its tree")]
    Shared,
}

impl TreeFault {
    /// Returns the number of the fault.
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

/// A type stored on disk as it is in memory: little-endian bytes without padding or alignment.
pub trait OnDisk:
    Copy + fmt::Debug + FromBytes + IntoBytes + Immutable + KnownLayout + Unaligned
{
}

impl<T: Copy + fmt::Debug + FromBytes + IntoBytes + Immutable + KnownLayout + Unaligned> OnDisk
    for T
{
}

/// The key and value types of a kind of tree.
pub trait Kind {
    /// The key, in the order of the tree; any bytes are valid. Types of `zerocopy::little_endian`
    /// and structs of them compare as numbers do, without a conversion on little-endian machines.
    type Key: OnDisk + Ord;
    /// The value of a key; any bytes are valid.
    type Value: OnDisk;
    /// The magic of its blocks.
    const MAGIC: Magic;
    /// The least key.
    const KEY_MIN: Self::Key;
    /// Maximum number of records of a block, if more would fit. Tests lower it to get high trees.
    const RECORDS_MAX: usize = AREA_BYTES;
}

/// A record of a leaf.
pub type Record<K> = Entry<<K as Kind>::Key, <K as Kind>::Value>;
/// A record of a block above the leaves.
pub(crate) type Branch<K> = Entry<<K as Kind>::Key, U64>;

#[cfg(test)]
mod tests;
