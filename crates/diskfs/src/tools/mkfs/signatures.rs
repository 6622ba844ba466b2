//! Signatures of other contents of a device: file systems, archives, partition tables (as in
//! file(1) and blkid(8)).

use vfscale_block::Device;
use vfscale_vfs::Escaped;

use crate::format::{BLOCK_BYTES, Block, byte_of_block};
use crate::volume::copies::{self, OpenError};

/// Bytes at an offset by which a kind of contents is recognised.
struct Signature {
    what: &'static str,
    offset: u64,
    bytes: &'static [u8],
}

const fn at(offset: u64, bytes: &'static [u8], what: &'static str) -> Signature {
    Signature { what, offset, bytes }
}

/// The offsets at which the signature of swap space ends, one for each page size of a machine that
/// may have made it.
const SWAP: [u64; 5] = [4096, 8192, 16384, 32768, 65536];

/// The signatures, more specific ones first.
const SIGNATURES: &[Signature] = &[
    at(0, b"LUKS\xba\xbe", "an encrypted volume (LUKS)"),
    at(0, b"XFSB", "an XFS file system"),
    at(1080, b"\x53\xef", "an ext2, ext3 or ext4 file system"),
    at(65600, b"_BHRfS_M", "a Btrfs file system"),
    at(4120, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81", "bcachefs"),
    at(1024, b"\x10\x20\xf5\xf2", "an F2FS file system"),
    at(1024, b"\xe2\xe1\xf5\xe0", "an EROFS file system"),
    at(0, b"hsqs", "a squashfs file system"),
    at(65588, b"ReIsEr", "a ReiserFS file system"),
    at(32768, b"JFS1", "a JFS file system"),
    at(1030, b"\x34\x34", "a NILFS2 file system"),
    at(32769, b"CD001", "an ISO 9660 file system"),
    at(3, b"NTFS    ", "an NTFS file system"),
    at(3, b"EXFAT   ", "an exFAT file system"),
    at(82, b"FAT32   ", "a FAT file system"),
    at(54, b"FAT16   ", "a FAT file system"),
    at(54, b"FAT12   ", "a FAT file system"),
    at(54, b"FAT     ", "a FAT file system"),
    at(512, b"LABELONE", "an LVM physical volume"),
    at(4096, b"\xfc\x4e\x2b\xa9", "a member of a RAID (md)"),
    at(0, b"\xfc\x4e\x2b\xa9", "a member of a RAID (md)"),
    at(512, b"EFI PART", "a partition table (GPT)"),
    at(4096, b"EFI PART", "a partition table (GPT)"),
    at(16, b"vfsJ", "a log of a vfscale volume"),
    at(0, b"QFI\xfb", "a disk image (qcow2)"),
    at(0, b"conectix", "a disk image (VHD)"),
    at(0, b"SQLite format 3\0", "a database (SQLite)"),
    at(257, b"ustar", "an archive (tar)"),
    at(0, b"PK\x03\x04", "an archive (zip)"),
    at(0, b"7z\xbc\xaf\x27\x1c", "an archive (7z)"),
    at(0, b"\x1f\x8b\x08", "compressed data (gzip)"),
    at(0, b"\xfd7zXZ\0", "compressed data (xz)"),
    at(0, b"\x28\xb5\x2f\xfd", "compressed data (zstd)"),
    at(0, b"BZh", "compressed data (bzip2)"),
    at(0, b"\x7fELF", "a program (ELF)"),
    at(0, b"%PDF-", "a document (PDF)"),
];

/// The signature in the last sector of a disk, where the second copy of a partition table is.
const GPT_AT_END: &[u8] = b"EFI PART";
/// The bytes of a master boot record that describe partitions, and the size of one description.
const PARTITIONS: std::ops::Range<usize> = 446..510;
const PARTITION_BYTES: usize = 16;

/// Describes the contents of a device, if they are known, in words that fit behind "has". Reads a
/// few blocks.
///
/// # Errors
/// The errors of the device.
pub fn recognise(device: &dyn Device) -> Result<Option<String>, vfscale_block::Error> {
    match copies::read(device) {
        Ok(found) => {
            let (id, label) = (found.superblock.volume(), found.superblock.label.as_str());
            let name = if label.is_empty() {
                String::new()
            } else {
                format!(" ({})", Escaped::new(label))
            };
            return Ok(Some(format!("a vfscale volume{name}, {id},")));
        }
        // Unreadable blocks hold nothing that could be lost; a write that fails is reported later.
        Err(OpenError::NoVolume { .. } | OpenError::Device(_)) => {}
        Err(_) => return Ok(Some("a vfscale volume that can't be opened".into())),
    }
    let found = found(device)?;
    Ok(found.first().map(|(_, what)| (*what).to_string()))
}

/// Returns the descriptions of the contents found, and the block of each signature.
fn found(device: &dyn Device) -> Result<Vec<(u64, &'static str)>, vfscale_block::Error> {
    let mut found = Vec::new();
    for signature in SIGNATURES {
        if has(device, signature.offset, signature.bytes)? {
            found.push((signature.offset / BLOCK_BYTES as u64, signature.what));
        }
    }
    for page in SWAP {
        for bytes in [b"SWAPSPACE2", b"SWAP-SPACE"] {
            let offset = page - bytes.len() as u64;
            if has(device, offset, bytes)? {
                found.push((offset / BLOCK_BYTES as u64, "swap space"));
            }
        }
    }
    for sector in [512, 4096] {
        let Some(offset) = device.size().checked_sub(sector) else { continue };
        // If the block is partly beyond the end, it is not cleared, and no volume uses it.
        if has(device, offset, GPT_AT_END)? {
            found.push((offset / BLOCK_BYTES as u64, "a partition table (GPT)"));
        }
    }
    if found.is_empty() && has_partitions(device)? {
        found.push((0, "a partition table (MBR)"));
    }
    Ok(found)
}

/// Returns whether the device has these bytes at `offset`.
fn has(device: &dyn Device, offset: u64, bytes: &[u8]) -> Result<bool, vfscale_block::Error> {
    let mut there = [0; 16];
    let Some(there) = there.get_mut(..bytes.len()) else { return Ok(false) };
    if device.size() < offset + bytes.len() as u64 {
        return Ok(false);
    }
    device.read_at(offset, there)?;
    Ok(there == bytes)
}

/// Returns whether the first sector is a master boot record with a partition.
fn has_partitions(device: &dyn Device) -> Result<bool, vfscale_block::Error> {
    let mut sector = [0; 512];
    if device.size() < sector.len() as u64 {
        return Ok(false);
    }
    device.read_at(0, &mut sector)?;
    let is_record = sector.ends_with(&[0x55, 0xAA]);
    let mut partitions = sector[PARTITIONS].chunks(PARTITION_BYTES);
    let is_active = |entry: &[u8]| entry[0] & 0x7F == 0;
    Ok(is_record && partitions.clone().all(is_active) && partitions.any(|entry| entry[4] != 0))
}

/// Clears all recognised signatures, and the first block, so no program takes the device for its
/// former contents. Durable with the next flush.
pub(super) fn clear(device: &dyn Device) -> Result<(), vfscale_block::Error> {
    let zeros = Block::zeroed();
    let mut blocks: Vec<_> = found(device)?.into_iter().map(|(block, _)| block).collect();
    blocks.push(0);
    blocks.sort_unstable();
    blocks.dedup();
    for block in blocks {
        let end = byte_of_block(block) + BLOCK_BYTES as u64;
        if end <= device.size() {
            device.write_at(byte_of_block(block), zeros.bytes())?;
        }
    }
    Ok(())
}
