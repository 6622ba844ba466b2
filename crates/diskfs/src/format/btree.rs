//! On-disk blocks of B+trees.
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
