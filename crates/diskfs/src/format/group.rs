//! What describes an allocation group on disk: its header, and the records of its two trees.
//!
//! The header counts what the trees hold, so that mounting reads one block per group, and keeps the
//! blocks that are set aside for the trees. See [`alloc`](crate::alloc) for how they are used.

use std::mem::offset_of;

use zerocopy::little_endian::{U32, U64};
use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, transmute_mut, transmute_ref,
};

use super::btree::Kind;
use super::header::{BODY_BYTES, Block, HEADER_BYTES, Magic};
use super::inode::CHUNK_INODES;
use super::{BLOCK_BYTES, Damage, Expected};
use crate::format::geometry::GROUP_BLOCKS_KEPT;

/// What headers of groups begin with.
pub const MAGIC: Magic = Magic(*b"vfsG");
/// The most blocks that a group has set aside for its trees.
pub const SET_ASIDE_MAX: usize = 64;
/// Where in a group its header lies, in blocks.
pub const HEADER_AT: u64 = 1;
/// Where in a group the root of its free space lies, in blocks.
pub const FREE_ROOT_AT: u64 = 2;
/// Where in a group the root of its inode chunks lies, in blocks.
pub const CHUNK_ROOT_AT: u64 = 3;
/// The first block of the first chunk of group 0, whose first inode is the root directory: right
/// behind what is kept.
pub const ROOT_CHUNK: u64 = GROUP_BLOCKS_KEPT;
/// The body of the block, on disk.
#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Raw {
    free: U64,
    free_inodes: U64,
    inodes: U64,
    orphans: U64,
    tree_blocks: U64,
    blocks: U64,
    set_aside_count: U32,
    zero: U32,
    set_aside: [U64; SET_ASIDE_MAX],
    rest: [u8; BODY_BYTES - FIELDS_BYTES],
}

/// The bytes of the body that have a meaning.
const FIELDS_BYTES: usize = 56 + 8 * SET_ASIDE_MAX;

/// The fields as `docs/FORMAT.md` lists them: offset in the block, bytes, name.
#[cfg(test)]
pub(crate) const FIELDS: &[(usize, usize, &str)] = &[
    (HEADER_BYTES + offset_of!(Raw, free), 8, "free blocks"),
    (HEADER_BYTES + offset_of!(Raw, free_inodes), 8, "free inodes"),
    (HEADER_BYTES + offset_of!(Raw, inodes), 8, "inodes"),
    (HEADER_BYTES + offset_of!(Raw, orphans), 8, "orphans"),
    (HEADER_BYTES + offset_of!(Raw, tree_blocks), 8, "tree blocks"),
    (HEADER_BYTES + offset_of!(Raw, blocks), 8, "blocks"),
    (HEADER_BYTES + offset_of!(Raw, set_aside_count), 4, "set-aside count"),
    (HEADER_BYTES + offset_of!(Raw, zero), 4, ""),
    (HEADER_BYTES + offset_of!(Raw, set_aside), 8 * SET_ASIDE_MAX, "set aside"),
    (HEADER_BYTES + offset_of!(Raw, rest), BODY_BYTES - FIELDS_BYTES, ""),
];

const _: () = {
    assert!(size_of::<Raw>() == BODY_BYTES && HEADER_BYTES + BODY_BYTES == BLOCK_BYTES);
    assert!(offset_of!(Raw, free) == 0 && offset_of!(Raw, orphans) == 24);
    assert!(offset_of!(Raw, set_aside_count) == 48 && offset_of!(Raw, set_aside) == 56);
    assert!(offset_of!(Raw, rest) == FIELDS_BYTES && size_of::<RawChunk>() == 16);
    assert!(CHUNK_INODES == u64::BITS as u64);
};

/// Free space: the address of the first block of each free run, and how many blocks it has.
#[derive(Clone, Copy, Debug)]
pub struct FreeSpace;

impl Kind for FreeSpace {
    type Key = U64;
    type Value = U64;
    const MAGIC: Magic = Magic(*b"vfsF");
    const KEY_MIN: U64 = U64::ZERO;
}

/// Which inodes of a chunk are free and which are orphans, on disk. Bit 0 is the first inode.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct RawChunk {
    /// Those that are free.
    pub free: U64,
    /// Those that are to be removed, or cut off, when nobody uses them any more.
    pub orphan: U64,
}

/// Chunks of inodes: the address of the first block of each, and what has become of its inodes.
#[derive(Clone, Copy, Debug)]
pub struct InodeChunks;

impl Kind for InodeChunks {
    type Key = U64;
    type Value = RawChunk;
    const MAGIC: Magic = Magic(*b"vfsI");
    const KEY_MIN: U64 = U64::ZERO;
}

/// The header of a group. Its counters may still be others than what the trees hold: a check finds
/// that out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupHeader {
    /// Blocks in the tree of free space.
    pub free: u64,
    /// Inodes of its chunks that are free.
    pub free_inodes: u64,
    /// Inodes of its chunks.
    pub inodes: u64,
    /// Inodes of its chunks that are orphans.
    pub orphans: u64,
    /// Blocks of its two trees, the roots left out.
    pub tree_blocks: u64,
    /// Blocks of the group that are accounted for: all, or fewer as long as the volume is growing.
    pub blocks: u64,
    /// Blocks that are set aside for the trees, [`SET_ASIDE_MAX`] at most.
    pub set_aside: Vec<u64>,
}

impl GroupHeader {
    /// What the header of group `group` must be.
    #[must_use]
    pub fn expected(group: u32) -> Expected {
        Expected {
            magic: MAGIC,
            owner: group.into(),
            check: |address, block| check(address, block),
        }
    }

    /// Writes it into the body of a block.
    ///
    /// # Panics
    /// In debug builds, if more blocks are set aside than there is room for; the rest is lost
    /// otherwise.
    pub fn encode(&self, block: &mut Block) {
        debug_assert!(self.set_aside.len() <= SET_ASIDE_MAX);
        let raw: &mut Raw = transmute_mut!(block.body_mut());
        let count = self.set_aside.len().min(SET_ASIDE_MAX);
        *raw = Raw {
            free: self.free.into(),
            free_inodes: self.free_inodes.into(),
            inodes: self.inodes.into(),
            orphans: self.orphans.into(),
            tree_blocks: self.tree_blocks.into(),
            blocks: self.blocks.into(),
            set_aside_count: (count as u32).into(),
            zero: U32::ZERO,
            set_aside: [U64::ZERO; SET_ASIDE_MAX],
            rest: [0; BODY_BYTES - FIELDS_BYTES],
        };
        for (to, address) in raw.set_aside.iter_mut().zip(&self.set_aside) {
            *to = (*address).into();
        }
    }

    /// The counters in a block that was [decoded](Self::decode) or checked before, without what is
    /// set aside.
    #[must_use]
    pub(crate) fn counters(block: &Block) -> Self {
        let raw: &Raw = transmute_ref!(block.body());
        Self {
            free: raw.free.get(),
            free_inodes: raw.free_inodes.get(),
            inodes: raw.inodes.get(),
            orphans: raw.orphans.get(),
            tree_blocks: raw.tree_blocks.get(),
            blocks: raw.blocks.get(),
            set_aside: Vec::new(),
        }
    }

    /// Writes the counters into the body of a block, and leaves what is set aside as it is there.
    pub(crate) fn encode_counters(&self, block: &mut Block) {
        let raw: &mut Raw = transmute_mut!(block.body_mut());
        raw.free = self.free.into();
        raw.free_inodes = self.free_inodes.into();
        raw.inodes = self.inodes.into();
        raw.orphans = self.orphans.into();
        raw.tree_blocks = self.tree_blocks.into();
        raw.blocks = self.blocks.into();
    }

    /// The header in a block that was read at `address`; `is_usable` says whether a block can be
    /// used for anything in this group.
    ///
    /// # Errors
    /// [`GroupFault::Counts`], [`GroupFault::SetAside`].
    pub fn decode(
        address: u64,
        block: &Block,
        is_usable: impl Fn(u64) -> bool,
    ) -> Result<Self, Damage> {
        check(address, block)?;
        let raw: &Raw = transmute_ref!(block.body());
        let header = Self { set_aside: set_aside(raw).collect(), ..Self::counters(block) };
        match header.set_aside.iter().find(|block| !is_usable(**block)) {
            Some(&block) => Err(fault(address, GroupFault::SetAside { block })),
            None => Ok(header),
        }
    }
}

fn set_aside(raw: &Raw) -> impl Iterator<Item = u64> {
    raw.set_aside.iter().take(raw.set_aside_count.get() as usize).map(|address| address.get())
}

/// What a header that comes from the device can be checked for alone.
fn check(address: u64, block: &Block) -> Result<(), Damage> {
    let raw: &Raw = transmute_ref!(block.body());
    let [free, inodes] = [raw.free.get(), raw.inodes.get()];
    let [free_inodes, orphans] = [raw.free_inodes.get(), raw.orphans.get()];
    let is_possible = free_inodes <= inodes
        && orphans <= inodes
        && inodes.is_multiple_of(CHUNK_INODES)
        && raw.set_aside_count.get() as usize <= SET_ASIDE_MAX;
    if !is_possible {
        return Err(fault(address, GroupFault::Counts { free, inodes, free_inodes, orphans }));
    }
    let mut places: Vec<_> = set_aside(raw).collect();
    places.sort_unstable();
    match places.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(fault(address, GroupFault::SetAside { block: pair[0] })),
        None => Ok(()),
    }
}

/// Something wrong with a group, as seen at the block `address`.
pub(crate) fn fault(address: u64, fault: GroupFault) -> Damage {
    GroupDamage { address, fault }.into()
}

/// Something in a group that must not be so. Numbers begin with 300.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("V{}: block {address}: {fault}", fault.number())]
pub struct GroupDamage {
    /// The header of the group, or the root of the tree that it is about, in blocks.
    pub address: u64,
    /// What is wrong.
    pub fault: GroupFault,
}

/// What is wrong with a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GroupFault {
    /// 300: Counters that can't all be right, or more blocks set aside than there is room for.
    #[error(
        "counters that no group has: {free} free blocks, {free_inodes} of {inodes} inodes free, \
         {orphans} orphans"
    )]
    Counts {
        /// Free blocks.
        free: u64,
        /// Inodes.
        inodes: u64,
        /// Free inodes.
        free_inodes: u64,
        /// Orphans.
        orphans: u64,
    },
    /// 301: A block that can't be set aside for the trees of this group, or is so twice.
    #[error("block {block} can't be set aside here")]
    SetAside {
        /// The block.
        block: u64,
    },
    /// 302: A free run that is empty, overlaps another, or has blocks that are never free in this
    /// group.
    #[error("{blocks} free blocks from {start} on, which can't be")]
    FreeRun {
        /// Its first block.
        start: u64,
        /// How many blocks it has.
        blocks: u64,
    },
    /// 303: A chunk of inodes that overlaps another, lies where none can, or has orphans that are
    /// free.
    #[error("a chunk of inodes at block {start}, which can't be")]
    Chunk {
        /// Its first block.
        start: u64,
    },
    /// 304: Blocks that are freed are free already, or can't be free.
    #[error("{blocks} blocks from {start} on were in use, and the group says otherwise")]
    NotInUse {
        /// The first one.
        start: u64,
        /// How many.
        blocks: u64,
    },
    /// 305: Blocks that are used from now on are not free.
    #[error("{blocks} blocks from {start} on were free, and the group says otherwise")]
    NotFree {
        /// The first one.
        start: u64,
        /// How many.
        blocks: u64,
    },
    /// 306: An inode is free that is in use, or the other way round, or is in no chunk.
    #[error("the group does not have inode {ino} as it is")]
    Inode {
        /// Its number.
        ino: u64,
    },
    /// 307: A counter that is not what the trees have.
    #[error("a counter of the group is not what its trees have")]
    Counter,
    /// 308: More blocks than the group has, or fewer than any group has.
    #[error("the group accounts for {blocks} blocks")]
    Size {
        /// How many it accounts for.
        blocks: u64,
    },
}

impl GroupFault {
    /// Its number.
    #[must_use]
    pub fn number(&self) -> u32 {
        match self {
            Self::Counts { .. } => 300,
            Self::SetAside { .. } => 301,
            Self::FreeRun { .. } => 302,
            Self::Chunk { .. } => 303,
            Self::NotInUse { .. } => 304,
            Self::NotFree { .. } => 305,
            Self::Inode { .. } => 306,
            Self::Counter => 307,
            Self::Size { .. } => 308,
        }
    }
}

#[cfg(test)]
mod tests;
