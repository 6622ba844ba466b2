//! Extents on disk: which blocks of a file lie where, and what can be wrong with them.
//!
//! A file with few extents has them in its inode, as a list of `RawExtent`; one with many has a
//! tree, whose keys are the blocks of the file and whose values are [`RawPlace`]. Either way the
//! bytes are the same.

use std::mem::offset_of;

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::Magic;
use super::inode::{AREA_BYTES, ATTR_BYTES_MAX, DATA_BYTES_MAX};

/// The bytes of an extent.
pub const EXTENT_BYTES: usize = 20;
/// The most extents that an inode has in itself.
pub const LIST_MAX: usize = DATA_BYTES_MAX / EXTENT_BYTES;
/// The most blocks of an extent.
pub const EXTENT_BLOCKS_MAX: u32 = UNWRITTEN - 1;
/// No file has this block or a later one: sizes are less than 2^63.
pub const FILE_BLOCKS_MAX: u64 = 1 << 51;
/// What the blocks of a tree of extents begin with.
pub const EXTENT_MAGIC: Magic = Magic(*b"vfsE");

/// The bit of a length that says that nothing was written there yet.
const UNWRITTEN: u32 = 1 << 31;

/// Where an extent lies, on disk: the value of a tree of extents.
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

/// Consecutive blocks of a file that lie one behind the other on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The first block of the file.
    pub file_block: u64,
    /// Where that lies on the device, in blocks.
    pub start: u64,
    /// How many blocks: 1 to [`EXTENT_BLOCKS_MAX`].
    pub blocks: u32,
    /// Nothing was written there yet: the blocks belong to the file, and read as zeros.
    pub is_unwritten: bool,
}

impl Extent {
    /// The first block of the file behind it.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.file_block.saturating_add(u64::from(self.blocks))
    }

    /// The first block of the device behind it.
    #[must_use]
    pub fn place_end(&self) -> u64 {
        self.start.saturating_add(u64::from(self.blocks))
    }

    /// The part of it in the blocks `from` to `to` of the file, if there is any.
    #[must_use]
    pub fn part(&self, from: u64, to: u64) -> Option<Self> {
        let (first, end) = (from.max(self.file_block), to.min(self.end()));
        let blocks = end.checked_sub(first).filter(|blocks| *blocks > 0)?;
        let start = self.start.saturating_add(first - self.file_block);
        Some(Self { file_block: first, start, blocks: blocks as u32, ..*self })
    }

    /// Both as one, if `next` goes on where this ends.
    #[must_use]
    pub fn joined(&self, next: &Self) -> Option<Self> {
        let goes_on = self.end() == next.file_block
            && self.place_end() == next.start
            && self.is_unwritten == next.is_unwritten;
        let blocks = self.blocks.checked_add(next.blocks)?;
        (goes_on && blocks <= EXTENT_BLOCKS_MAX).then_some(Self { blocks, ..*self })
    }

    pub(crate) fn place(&self) -> RawPlace {
        let flag = if self.is_unwritten { UNWRITTEN } else { 0 };
        RawPlace { start: self.start.into(), length: (self.blocks | flag).into() }
    }

    /// What a key and a value say, whether or not there can be such an extent.
    pub(crate) fn of(file_block: u64, place: &RawPlace) -> Self {
        let length = place.length.get();
        let is_unwritten = length & UNWRITTEN != 0;
        Self { file_block, start: place.start.get(), blocks: length & !UNWRITTEN, is_unwritten }
    }

    /// That there can be such an extent in file `ino` on a device where `is_possible` says which
    /// runs of blocks, from where and how many, a file can have.
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

/// The extents of the list that lies in `bytes`, for file `ino`. Each is possible by itself and
/// behind the one before.
///
/// # Errors
/// [`ExtentDamage`].
pub fn decode_list(
    ino: u64,
    bytes: &[u8],
    is_possible: impl Fn(u64, u64) -> bool,
) -> Result<Vec<Extent>, ExtentDamage> {
    let (list, wrong) = decode_possible(ino, bytes, is_possible)?;
    wrong.map_or(Ok(list), Err)
}

/// The extents of a list that can be, in order, and what is wrong with the first one that can't.
///
/// # Errors
/// The bytes are no list.
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

/// That `next` lies behind `before` in file `ino`.
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

/// Puts a list into bytes.
#[must_use]
pub fn encode_list(list: &[Extent]) -> Vec<u8> {
    let raw =
        |extent: &Extent| RawExtent { file_block: extent.file_block.into(), place: extent.place() };
    list.iter().flat_map(|extent| raw(extent).as_bytes().to_vec()).collect()
}

/// Something in the extents of a file that must not be so. Numbers begin with 700.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("V{}: inode {ino}: extent of block {file_block}: {fault}", fault.number())]
pub struct ExtentDamage {
    /// The file.
    pub ino: u64,
    /// The block of the file that the extent begins with; 0 if no extent can be made out.
    pub file_block: u64,
    /// What is wrong.
    pub fault: ExtentFault,
}

/// What is wrong with an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExtentFault {
    /// 700: It does not begin behind the beginning of the one before it in the list.
    #[error("is behind that of block {before}")]
    Order {
        /// Where the one before begins, in blocks of the file.
        before: u64,
    },
    /// 701: It begins inside of the one before it, or where blocks were about to be put.
    #[error("lies over another, which ends with block {end}")]
    Overlap {
        /// The first block of the file behind the other one.
        end: u64,
    },
    /// 702: It lies outside of the volume, or where no file can be.
    #[error("{blocks} blocks from {start} on, where no data can be")]
    Outside {
        /// Where it begins, in blocks of the device.
        start: u64,
        /// Its length, in blocks.
        blocks: u32,
    },
    /// 703: It has no blocks.
    #[error("has no blocks")]
    Empty,
    /// 704: It ends behind the last block that a file can have.
    #[error("{blocks} blocks, which is more than a file can have")]
    TooFar {
        /// Its length, in blocks.
        blocks: u32,
    },
    /// 705: A list that is no list, or too long.
    #[error("a list of {bytes} bytes")]
    List {
        /// Its length in bytes.
        bytes: usize,
    },
}

impl ExtentFault {
    /// Its number.
    #[must_use]
    pub fn number(&self) -> u32 {
        match self {
            Self::Order { .. } => 700,
            Self::Overlap { .. } => 701,
            Self::Outside { .. } => 702,
            Self::Empty => 703,
            Self::TooFar { .. } => 704,
            Self::List { .. } => 705,
        }
    }
}

#[cfg(test)]
mod tests;
