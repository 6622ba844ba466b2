//! Damage to any block of a volume.

use vfscale_block::Device;
use vfscale_diskfs::BLOCK_BYTES;
use vfscale_diskfs::on_disk::{Block, INODE_MAGIC, Identity, byte_of_block, records_mut};
use vfscale_sync::random::Random;

/// Number of blocks that are tried before an empty one is accepted.
const TRIES: usize = 200;

/// Overwrites a few bytes of a block, or replaces it by another block. In three of four cases, its
/// checksum and its own address are fixed afterwards.
pub(super) fn damage(device: &dyn Device, random: &mut Random) -> Result<String, String> {
    let (at, mut block) = something(device, random)?;
    let mut what = format!("block {at}");
    let header = block.header().clone();
    if random.below(6) == 0 {
        let (from, other) = something(device, random)?;
        block = other;
        what += &format!(" from block {from}");
    }
    for _ in 0..=random.below(4) {
        let end = if random.below(2) == 0 { 200 } else { BLOCK_BYTES as u64 };
        let place = random.below(end) as usize;
        spoil(&mut block.bytes_mut()[place], random);
        what += &format!(" byte {place}");
    }
    if random.below(4) != 0 {
        if header.magic == INODE_MAGIC && random.below(4) != 0 {
            // A record's own checksum covers only the record.
            records_mut(&mut block).iter_mut().for_each(|record| record.seal());
        }
        let magic = if random.below(8) == 0 { block.header().magic } else { header.magic };
        let owner = block.header().owner.get();
        let volume = header.volume;
        let lsn = block.header().lsn.get();
        block.seal(&Identity { magic, address: at, owner, volume }, lsn);
        what += ", sealed";
    }
    device.write_at(byte_of_block(at), block.bytes()).map_err(|e| e.to_string())?;
    Ok(what)
}

/// Overwrites a byte with another value.
pub(super) fn spoil(byte: &mut u8, random: &mut Random) {
    *byte = match random.below(5) {
        0 => 0,
        1 => 0xFF,
        2 => byte.wrapping_add(1),
        3 => *byte ^ 1 << random.below(8),
        _ => random.below(256) as u8,
    };
}

/// Returns a block that is not empty. Blocks at the front, where most data are, are preferred.
fn something(device: &dyn Device, random: &mut Random) -> Result<(u64, Box<Block>), String> {
    let blocks = device.size() / BLOCK_BYTES as u64;
    let mut block = Block::zeroed();
    for attempt in 0.. {
        let end = if random.below(2) == 0 { 128 } else { blocks };
        let at = random.below(end);
        device.read_at(byte_of_block(at), block.bytes_mut()).map_err(|e| e.to_string())?;
        if attempt >= TRIES || block.bytes().iter().any(|byte| *byte != 0) {
            return Ok((at, block));
        }
    }
    Err("a block".into())
}
