//! The initial state of a group, in a new or grown volume.

use vfscale_block::Device;
use zerocopy::little_endian::U64;

use super::Layout;
use super::ag_update::FREE_LIST_EXTRA;
use crate::Uuid;
use crate::btree::{Record, Tree};
use crate::format::group::{FreeSpace, GroupHeader, InodeChunks, ROOT_CHUNK, RawChunk};
use crate::format::inode::{CHUNK_BLOCKS, CHUNK_INODES};
use crate::format::{Block, Expected, Identity, byte_of_block};

/// Number of blocks that are set aside for trees without any block below the root.
const FREE_LIST_BLOCKS: u64 = 2 * (1 + 2) + FREE_LIST_EXTRA;

/// Returns the blocks that describe a group in which nothing is used but the root directory's
/// chunk, which is in group 0: the header and the roots of its trees, in the order of their
/// addresses, which are consecutive.
#[must_use]
pub fn blocks(layout: &Layout, volume: Uuid) -> [Box<Block>; 3] {
    let range = layout.blocks();
    let mut header = GroupHeader { blocks: range.end - range.start, ..GroupHeader::default() };
    let mut chunks: Vec<Record<InodeChunks>> = Vec::new();
    let mut free: Vec<Record<FreeSpace>> = Vec::new();
    for run in layout.usable() {
        let (mut start, end) = (run.start, run.end());
        if start == ROOT_CHUNK && end - start >= CHUNK_BLOCKS {
            let value = RawChunk { free: U64::from(!1), orphan: U64::ZERO };
            chunks.push(Record::<InodeChunks> { key: start.into(), value });
            start += CHUNK_BLOCKS;
            (header.inodes, header.free_inodes) = (CHUNK_INODES, CHUNK_INODES - 1);
        }
        if header.set_aside.is_empty() {
            let free_list = FREE_LIST_BLOCKS.min(layout.tree_blocks_max()).min(end - start);
            header.set_aside = (start..start + free_list).collect();
            start += free_list;
        }
        if start < end {
            free.push(Record::<FreeSpace> { key: start.into(), value: (end - start).into() });
            header.free += end - start;
        }
    }
    let [mut first, mut second, mut third] = [(); 3].map(|()| Block::zeroed());
    header.encode(&mut first);
    Tree::<FreeSpace>::write_root(&mut second, &free);
    Tree::<InodeChunks>::write_root(&mut third, &chunks);
    let seal = |block: &mut Block, address: u64, expected: &Expected| {
        let (magic, owner) = (expected.magic, expected.owner);
        block.seal(&Identity { magic, address, owner, volume }, 0);
    };
    seal(&mut first, layout.header(), &GroupHeader::expected(layout.group()));
    seal(&mut second, layout.free_tree().root(), &layout.free_tree().expected());
    seal(&mut third, layout.chunk_tree().root(), &layout.chunk_tree().expected());
    [first, second, third]
}

/// Writes the blocks that describe a group in which nothing is used yet. Also used for groups that
/// a volume grows by.
pub(crate) fn write_group(
    device: &dyn Device,
    layout: &Layout,
    volume: Uuid,
) -> Result<(), vfscale_block::Error> {
    let blocks = blocks(layout, volume);
    let writes: Vec<_> = blocks
        .iter()
        .map(|block| (byte_of_block(block.header().address.get()), block.bytes()))
        .collect();
    device.write_many(&writes)
}
