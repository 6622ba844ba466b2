//! On-disk extents: the mapping of the blocks of a file to the device.
//!
//! A file with few extents stores them in its inode, as a list of `RawExtent`. A file with many has
//! a tree, whose keys are the blocks of the file and whose values are [`RawPlace`]. Both forms have
//! the same bytes.

use std::mem::offset_of;

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::damage::{ExtentDamage, ExtentFault};
use super::inode::{AREA_BYTES, ATTR_BYTES_MAX, DATA_BYTES_MAX};
use super::{BlockRange, Magic};

/// Size of an extent, in bytes.
pub const EXTENT_BYTES: usize = 20;
/// Maximum number of extents in an inode.
pub const LIST_MAX: usize = DATA_BYTES_MAX / EXTENT_BYTES;
/// Maximum number of blocks of an extent.
pub const EXTENT_BLOCKS_MAX: u32 = UNWRITTEN - 1;
/// Upper bound of block numbers of a file: sizes are less than 2^63.
pub const FILE_BLOCKS_MAX: u64 = 1 << 51;
/// Magic of the blocks of a tree of extents.
pub const EXTENT_MAGIC: Magic = Magic(*b"vfsE");

/// The bit of a length that marks an extent as unwritten.
const UNWRITTEN: u32 = 1 << 31;

/// The device blocks of an extent, on disk: the value of a tree of extents.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct RawPlace {
    pub(crate) start: U64,
    pub(crate) length: U32,
}

/// An extent of a list, on disk.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(crate) struct RawExtent {
    pub(crate) file_block: U64,
    pub(crate) place: RawPlace,
}

/// The fields as `docs/FORMAT.md` lists them: offset, bytes, name.
#[cfg(test)]
pub(crate) const FIELDS: &[(usize, usize, &str)] = &[
    (offset_of!(RawExtent, file_block), 8, "file block"),
    (offset_of!(RawExtent, place) + offset_of!(RawPlace, start), 8, "start"),
    (offset_of!(RawExtent, place) + offset_of!(RawPlace, length), 4, "length"),
];

const _: () = {
    assert!(size_of::<RawExtent>() == EXTENT_BYTES && size_of::<RawPlace>() == 12);
    assert!(offset_of!(RawExtent, place) == 8 && offset_of!(RawPlace, length) == 8);
    assert!(LIST_MAX == 19 && ATTR_BYTES_MAX + EXTENT_BYTES * 7 <= AREA_BYTES);
};

/// Consecutive blocks of a file that are consecutive on the device, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The first block in the file.
    pub file_block: u64,
    /// The first block on the device.
    pub start: u64,
    /// Number of blocks: 1 to `EXTENT_BLOCKS_MAX`.
    pub blocks: u32,
    /// Whether nothing was written to the blocks yet. They belong to the file, and read as zeros.
    pub is_unwritten: bool,
}

impl Extent {
    /// Returns the first block of the file after the extent.
    pub fn end(&self) -> u64 {
        self.file_block.saturating_add(u64::from(self.blocks))
    }

    /// Returns the first block of the device after the extent.
    pub fn place_end(&self) -> u64 {
        self.start.saturating_add(u64::from(self.blocks))
    }

    /// Returns the intersection with the blocks `from` to `to` of the file, or `None` if it is
    /// empty.
    pub fn part(&self, from: u64, to: u64) -> Option<Self> {
        let (first, end) = (from.max(self.file_block), to.min(self.end()));
        let blocks = end.checked_sub(first).filter(|blocks| *blocks > 0)?;
        let start = self.start.saturating_add(first - self.file_block);
        Some(Self { file_block: first, start, blocks: blocks as u32, ..*self })
    }

    /// Returns both extents as one, if `next` continues this one.
    pub fn joined(&self, next: &Self) -> Option<Self> {
        let goes_on = self.end() == next.file_block
            && self.place_end() == next.start
            && self.is_unwritten == next.is_unwritten;
        let blocks = self.blocks.checked_add(next.blocks)?;
        (goes_on && blocks <= EXTENT_BLOCKS_MAX).then_some(Self { blocks, ..*self })
    }

    /// Returns its blocks of the device.
    pub fn run(&self) -> BlockRange {
        BlockRange { start: self.start, blocks: self.blocks }
    }

    pub(crate) fn place(&self) -> RawPlace {
        let flag = if self.is_unwritten { UNWRITTEN } else { 0 };
        RawPlace { start: self.start.into(), length: (self.blocks | flag).into() }
    }

    /// Decodes a key and a value, whether or not such an extent is valid.
    pub(crate) fn of(file_block: u64, place: &RawPlace) -> Self {
        let length = place.length.get();
        let is_unwritten = length & UNWRITTEN != 0;
        Self { file_block, start: place.start.get(), blocks: length & !UNWRITTEN, is_unwritten }
    }

    /// Checks that the extent is valid for file `ino`. `is_possible` returns whether a file can
    /// have a run of blocks, given its first block and its length.
    pub(crate) fn checked(
        self,
        ino: u64,
        is_possible: impl Fn(u64, u64) -> bool,
    ) -> Result<Self, ExtentDamage> {
        let Self { file_block, start, blocks, .. } = self;
        let fault = |fault| Err(ExtentDamage { ino, file_block, fault });
        if blocks == 0 {
            return fault(ExtentFault::Empty);
        }
        if self.end() > FILE_BLOCKS_MAX {
            return fault(ExtentFault::TooFar { blocks });
        }
        if start == 0 || !is_possible(start, blocks.into()) {
            return fault(ExtentFault::Outside { start, blocks });
        }
        Ok(self)
    }
}

/// Decodes the valid extents of a list, in order, and the damage of the first invalid one.
///
/// # Errors
/// Returns [`ExtentDamage`] if the bytes are no list.
pub(crate) fn decode_possible(
    ino: u64,
    bytes: &[u8],
    is_possible: impl Fn(u64, u64) -> bool,
) -> Result<(Vec<Extent>, Option<ExtentDamage>), ExtentDamage> {
    let whole = <[RawExtent]>::ref_from_bytes(bytes).ok().filter(|list| list.len() <= LIST_MAX);
    let Some(raw) = whole else {
        let fault = ExtentFault::List { bytes: bytes.len() };
        return Err(ExtentDamage { ino, file_block: 0, fault });
    };
    let (mut list, mut wrong) = (Vec::<Extent>::with_capacity(raw.len()), None);
    for raw in raw {
        let extent = Extent::of(raw.file_block.get(), &raw.place).checked(ino, &is_possible);
        let ordered = extent.and_then(|extent| match list.last() {
            Some(before) => check_order(ino, before, &extent).map(|()| extent),
            None => Ok(extent),
        });
        match ordered {
            Ok(extent) => list.push(extent),
            Err(damage) => wrong = wrong.or(Some(damage)),
        }
    }
    Ok((list, wrong))
}

/// Checks that `next` starts at or after the end of `before` in file `ino`.
pub(crate) fn check_order(ino: u64, before: &Extent, next: &Extent) -> Result<(), ExtentDamage> {
    let file_block = next.file_block;
    let fault = if file_block <= before.file_block {
        ExtentFault::Order { before: before.file_block }
    } else if file_block < before.end() {
        ExtentFault::Overlap { end: before.end() }
    } else {
        return Ok(());
    };
    Err(ExtentDamage { ino, file_block, fault })
}

/// Encodes a list.
pub fn encode_list(list: &[Extent]) -> Vec<u8> {
    let raw =
        |extent: &Extent| RawExtent { file_block: extent.file_block.into(), place: extent.place() };
    list.iter().flat_map(|extent| raw(extent).as_bytes().to_vec()).collect()
}

#[cfg(test)]
mod tests;
