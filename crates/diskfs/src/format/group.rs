//! On-disk metadata of an allocation group: its header, and the records of its two trees.
//!
//! The header counts the contents of the trees, so the free space of a group is known from one
//! block, and that of a volume from one block per group, or from the superblock. It also lists the
//! blocks that are set aside for the trees. See [`alloc`](crate::alloc) for their use.

use std::mem::offset_of;

use zerocopy::little_endian::{U32, U64};
use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, transmute_mut, transmute_ref,
};

use super::btree::Kind;
use super::damage::{GroupDamage, GroupFault};
use super::header::{BODY_BYTES, Block, HEADER_BYTES};
use super::inode::CHUNK_INODES;
use super::magic::Magic;
use super::{BLOCK_BYTES, Damage, Expected};
use crate::format::geometry::GROUP_BLOCKS_KEPT;

/// Magic of headers of groups.
pub const MAGIC: Magic = Magic(*b"vfsG");
/// Maximum number of blocks that a group has set aside for its trees.
pub const SET_ASIDE_MAX: usize = 64;
/// Offset of the header in its group, in blocks.
pub const HEADER_AT: u64 = 1;
/// Offset of the root of free space in its group, in blocks.
pub const FREE_ROOT_AT: u64 = 2;
/// Offset of the root of inode chunks in its group, in blocks.
pub const CHUNK_ROOT_AT: u64 = 3;
/// The first block of the first chunk of group 0, whose first inode is the root directory: the
/// first block after the reserved ones.
pub const ROOT_CHUNK: u64 = GROUP_BLOCKS_KEPT;
/// The body of the block, on disk.
#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawGroup {
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

/// Bytes of the body that have a meaning.
const FIELDS_BYTES: usize = 56 + 8 * SET_ASIDE_MAX;

/// The fields as `docs/FORMAT.md` lists them: offset in the block, bytes, name.
#[cfg(test)]
pub(crate) const FIELDS: &[(usize, usize, &str)] = &[
    (HEADER_BYTES + offset_of!(RawGroup, free), 8, "free blocks"),
    (HEADER_BYTES + offset_of!(RawGroup, free_inodes), 8, "free inodes"),
    (HEADER_BYTES + offset_of!(RawGroup, inodes), 8, "inodes"),
    (HEADER_BYTES + offset_of!(RawGroup, orphans), 8, "orphans"),
    (HEADER_BYTES + offset_of!(RawGroup, tree_blocks), 8, "tree blocks"),
    (HEADER_BYTES + offset_of!(RawGroup, blocks), 8, "blocks"),
    (HEADER_BYTES + offset_of!(RawGroup, set_aside_count), 4, "set-aside count"),
    (HEADER_BYTES + offset_of!(RawGroup, zero), 4, ""),
    (HEADER_BYTES + offset_of!(RawGroup, set_aside), 8 * SET_ASIDE_MAX, "set aside"),
    (HEADER_BYTES + offset_of!(RawGroup, rest), BODY_BYTES - FIELDS_BYTES, ""),
];

const _: () = {
    assert!(size_of::<RawGroup>() == BODY_BYTES && HEADER_BYTES + BODY_BYTES == BLOCK_BYTES);
    assert!(offset_of!(RawGroup, free) == 0 && offset_of!(RawGroup, orphans) == 24);
    assert!(offset_of!(RawGroup, set_aside_count) == 48 && offset_of!(RawGroup, set_aside) == 56);
    assert!(offset_of!(RawGroup, rest) == FIELDS_BYTES && size_of::<RawChunk>() == 16);
    assert!(CHUNK_INODES == u64::BITS as u64);
};

/// The tree of free space: the address of the first block of each free run, and its length in
/// blocks.
#[derive(Clone, Copy, Debug)]
pub struct FreeSpace;

impl Kind for FreeSpace {
    type Key = U64;
    type Value = U64;
    const MAGIC: Magic = Magic(*b"vfsF");
    const KEY_MIN: U64 = U64::ZERO;
}

/// The free inodes and the orphans of a chunk, on disk. Bit 0 is the first inode.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct RawChunk {
    /// The free inodes.
    pub free: U64,
    /// The inodes to be removed or truncated when their last user is gone.
    pub orphan: U64,
}

/// The tree of inode chunks: the address of the first block of each, and the state of its inodes.
#[derive(Clone, Copy, Debug)]
pub struct InodeChunks;

impl Kind for InodeChunks {
    type Key = U64;
    type Value = RawChunk;
    const MAGIC: Magic = Magic(*b"vfsI");
    const KEY_MIN: U64 = U64::ZERO;
}

/// The header of a group. Its counters may differ from the contents of the trees, which only a
/// check detects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupHeader {
    /// Number of blocks in the tree of free space.
    pub free: u64,
    /// Number of free inodes in its chunks.
    pub free_inodes: u64,
    /// Number of inodes in its chunks.
    pub inodes: u64,
    /// Number of orphans in its chunks.
    pub orphans: u64,
    /// Number of blocks of its two trees, without the roots.
    pub tree_blocks: u64,
    /// Number of blocks of the group that are accounted for: all, or fewer while the volume is
    /// growing.
    pub blocks: u64,
    /// Blocks that are set aside for the trees, at most [`SET_ASIDE_MAX`].
    pub set_aside: Vec<u64>,
}

impl GroupHeader {
    /// Returns the expected properties of the header of group `group`.
    pub fn expected(group: u32) -> Expected {
        Expected {
            magic: MAGIC,
            owner: group.into(),
            check: |address, block| check(address, block),
        }
    }

    /// Encodes the header into the body of a block. Blocks set aside beyond [`SET_ASIDE_MAX`] are
    /// lost.
    ///
    /// # Panics
    /// In debug builds, if more blocks than that are set aside.
    pub fn encode(&self, block: &mut Block) {
        block.body_mut().fill(0);
        self.encode_over(block);
    }

    /// Encodes the header into a block that has a header, as [`encode`](Self::encode) does, but
    /// writes only what differs.
    pub(crate) fn encode_over(&self, block: &mut Block) {
        debug_assert!(self.set_aside.len() <= SET_ASIDE_MAX);
        self.encode_counters(block);
        let raw: &mut RawGroup = transmute_mut!(block.body_mut());
        let former = raw.set_aside_count.get() as usize;
        let count = self.set_aside.len().min(SET_ASIDE_MAX);
        raw.set_aside_count = (count as u32).into();
        let addresses = self.set_aside.iter().copied().chain(std::iter::repeat(0));
        let places = raw.set_aside.iter_mut().take(former.max(count));
        places.zip(addresses).for_each(|(place, address)| *place = address.into());
    }

    /// Decodes the counters of a block that was [decoded](Self::decode) or checked before, without
    /// the blocks set aside.
    pub(crate) fn counters(block: &Block) -> Self {
        let raw: &RawGroup = transmute_ref!(block.body());
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

    /// Encodes the counters into the body of a block; the blocks set aside stay unchanged.
    pub(crate) fn encode_counters(&self, block: &mut Block) {
        let raw: &mut RawGroup = transmute_mut!(block.body_mut());
        raw.free = self.free.into();
        raw.free_inodes = self.free_inodes.into();
        raw.inodes = self.inodes.into();
        raw.orphans = self.orphans.into();
        raw.tree_blocks = self.tree_blocks.into();
        raw.blocks = self.blocks.into();
    }

    /// Decodes the header in a block that was read at `address`; `is_usable` returns whether this
    /// group can use a block at all.
    ///
    /// # Errors
    /// Returns [`GroupFault::Counts`] or [`GroupFault::SetAside`].
    pub fn decode(
        address: u64,
        block: &Block,
        is_usable: impl Fn(u64) -> bool,
    ) -> Result<Self, Damage> {
        check(address, block)?;
        Self::decode_expected(address, block, is_usable)
    }

    /// Decodes the header in a block that was read with its [expected](Self::expected) properties,
    /// as [`decode`](Self::decode) does.
    ///
    /// # Errors
    /// Returns [`GroupFault::SetAside`].
    pub(crate) fn decode_expected(
        address: u64,
        block: &Block,
        is_usable: impl Fn(u64) -> bool,
    ) -> Result<Self, Damage> {
        let raw: &RawGroup = transmute_ref!(block.body());
        let header = Self { set_aside: set_aside(raw).collect(), ..Self::counters(block) };
        match header.set_aside.iter().find(|block| !is_usable(**block)) {
            Some(&block) => Err(fault(address, GroupFault::SetAside { block })),
            None => Ok(header),
        }
    }
}

fn set_aside(raw: &RawGroup) -> impl Iterator<Item = u64> {
    raw.set_aside.iter().take(raw.set_aside_count.get() as usize).map(|address| address.get())
}

/// Checks a header read from the device by itself, without the trees.
fn check(address: u64, block: &Block) -> Result<(), Damage> {
    let raw: &RawGroup = transmute_ref!(block.body());
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

/// Returns a fault of a group, seen at the block `address`.
pub(crate) fn fault(address: u64, fault: GroupFault) -> Damage {
    GroupDamage { address, fault }.into()
}

#[cfg(test)]
mod tests;
