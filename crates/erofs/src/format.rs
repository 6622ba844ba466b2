//! The structures of EROFS, as they are on disk: all numbers are little-endian.

use std::mem::size_of;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a block.
pub(crate) const BLOCK: u64 = 4096;
/// Bytes of a slot: the number of an inode is its offset in slots.
pub(crate) const SLOT: u64 = 32;
pub(crate) const SUPER_AT: u64 = 1024;
/// Where the slot of the device lies, behind the superblock.
pub(crate) const DEVICE_AT: u64 = SUPER_AT + 128;
/// Where inodes begin.
pub(crate) const FIRST_AT: u64 = DEVICE_AT + 128;
pub(crate) const MAGIC: u32 = 0xE0F5_E1E2;
/// Compatible features: the superblock has a checksum, and inodes have their times.
pub(crate) const COMPAT: u32 = 1 | 2;
/// Incompatible features: files of chunks, and a table of devices.
pub(crate) const INCOMPAT: u32 = 4 | 8;
/// The address of a hole.
pub(crate) const NO_ADDRESS: u32 = u32::MAX;
/// The most powers of two by which a chunk is larger than a block.
pub(crate) const CHUNK_BITS_MAX: u32 = 31;
/// The bit of the format of chunks that says that each has an index.
pub(crate) const INDEXED: u32 = 0x20;
pub(crate) const INDEX_BYTES: u64 = size_of::<RawIndex>() as u64;
/// The number of the device beside the one with the superblock.
pub(crate) const ON_DEVICE: u16 = 1;
pub(crate) const NAME_MAX: usize = 255;
/// The most shared attributes of an inode.
pub(crate) const SHARED_MAX: usize = u8::MAX as usize;
/// The most bytes of the attributes of an inode, with those that are shared as numbers.
pub(crate) const ATTRIBUTES_MAX: usize = size_of::<RawAttributes>() + 4 * (u16::MAX as usize - 1);

pub(crate) const TYPE_MASK: u16 = 0o170_000;
pub(crate) const FIFO: u16 = 0o010_000;
pub(crate) const CHARACTER: u16 = 0o020_000;
pub(crate) const DIRECTORY: u16 = 0o040_000;
pub(crate) const BLOCK_DEVICE: u16 = 0o060_000;
pub(crate) const REGULAR: u16 = 0o100_000;
pub(crate) const LINK: u16 = 0o120_000;
pub(crate) const SOCKET: u16 = 0o140_000;

/// How the contents of an inode are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// In blocks, one after the other.
    Plain = 0,
    /// In blocks too, but the last block's bytes stand behind the inode.
    Inline = 2,
    /// In chunks, whose addresses stand behind the inode.
    Chunks = 4,
}

impl Layout {
    /// Returns the format of a large inode with this layout.
    pub(crate) fn format(self) -> u16 {
        1 | (self as u16) << 1
    }

    /// Returns the layout of a large inode.
    pub(crate) fn of(format: u16) -> Option<Self> {
        [Self::Plain, Self::Inline, Self::Chunks].into_iter().find(|it| it.format() == format)
    }
}

/// Returns the number of a file's type in directories; `None` for a mode without a type.
pub(crate) fn type_of(mode: u16) -> Option<u8> {
    Some(match mode & TYPE_MASK {
        REGULAR => 1,
        DIRECTORY => 2,
        CHARACTER => 3,
        BLOCK_DEVICE => 4,
        FIFO => 5,
        SOCKET => 6,
        LINK => 7,
        _ => return None,
    })
}

/// Returns whether a mode is one of a device.
pub(crate) fn is_device(mode: u16) -> bool {
    matches!(mode & TYPE_MASK, CHARACTER | BLOCK_DEVICE)
}

/// Returns the number of a device as inodes have it; `None` if a part is too large.
pub(crate) fn encode_device(major: u32, minor: u32) -> Option<u32> {
    let fits = major < 1 << 12 && minor < 1 << 20;
    fits.then_some(minor & 0xFF | major << 8 | (minor & !0xFF) << 12)
}

/// Returns the parts of the number of a device.
pub(crate) fn decode_device(number: u32) -> (u32, u32) {
    (number >> 8 & 0xFFF, number & 0xFF | number >> 12 & 0xF_FF00)
}

/// The superblock.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawSuper {
    pub(crate) magic: U32,
    pub(crate) checksum: U32,
    pub(crate) compat: U32,
    pub(crate) block_bits: u8,
    pub(crate) extension_slots: u8,
    pub(crate) root: U16,
    pub(crate) inodes: U64,
    pub(crate) time: U64,
    pub(crate) time_nanos: U32,
    pub(crate) blocks: U32,
    pub(crate) inodes_at: U32,
    pub(crate) attributes_at: U32,
    pub(crate) uuid: [u8; 16],
    pub(crate) name: [u8; 16],
    pub(crate) incompat: U32,
    pub(crate) algorithms: U16,
    pub(crate) devices: U16,
    pub(crate) device_slot: U16,
    pub(crate) directory_bits: u8,
    pub(crate) prefixes: u8,
    pub(crate) prefixes_at: U32,
    pub(crate) packed: U64,
    pub(crate) filter: u8,
    pub(crate) reserved: [u8; 23],
}

/// A device beside the one with the superblock.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawDevice {
    pub(crate) tag: [u8; 64],
    pub(crate) blocks: U32,
    /// The address that its first block has among those of the superblock's device; 0 for none.
    pub(crate) address: U32,
    pub(crate) reserved: [u8; 56],
}

/// A large inode.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawInode {
    pub(crate) format: U16,
    pub(crate) attributes: U16,
    pub(crate) mode: U16,
    pub(crate) high: U16,
    pub(crate) size: U64,
    /// The address of the first block, the format of the chunks, or the number of a device.
    pub(crate) place: U32,
    pub(crate) number: U32,
    pub(crate) uid: U32,
    pub(crate) gid: U32,
    pub(crate) mtime: U64,
    pub(crate) mtime_nanos: U32,
    pub(crate) links: U32,
    pub(crate) reserved: [u8; 16],
}

/// The beginning of the attributes of an inode.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawAttributes {
    pub(crate) filter: U32,
    pub(crate) shared: u8,
    pub(crate) reserved: [u8; 7],
}

/// The index of a chunk.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawIndex {
    pub(crate) advice: U16,
    pub(crate) device: U16,
    pub(crate) address: U32,
}

/// An attribute, before its name and its value.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawAttribute {
    pub(crate) name_bytes: u8,
    pub(crate) prefix: u8,
    pub(crate) value_bytes: U16,
}

/// An entry of a directory's block, before all names of the block.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawName {
    pub(crate) nid: U64,
    pub(crate) name_at: U16,
    pub(crate) kind: u8,
    pub(crate) reserved: u8,
}

const _: () = {
    assert!(size_of::<RawSuper>() == 128 && size_of::<RawDevice>() == 128);
    assert!(size_of::<RawInode>() == 64 && size_of::<RawAttributes>() == 12);
    assert!(size_of::<RawAttribute>() == 4 && size_of::<RawName>() == 12);
    assert!(size_of::<RawIndex>() == 8);
};

/// The beginnings of attributes' names, each with its number. A number without a dot at the end of
/// its text stands for the whole name.
const PREFIXES: [(u8, &[u8]); 5] = [
    (1, b"user."),
    (2, b"system.posix_acl_access"),
    (3, b"system.posix_acl_default"),
    (4, b"trusted."),
    (6, b"security."),
];

/// Returns the number of the beginning of an attribute's name, and the rest of the name.
pub(crate) fn split(name: &[u8]) -> Option<(u8, &[u8])> {
    PREFIXES.iter().find_map(|(number, prefix)| {
        let rest = name.strip_prefix(*prefix)?;
        (prefix.ends_with(b".") != rest.is_empty()).then_some((*number, rest))
    })
}

/// Returns the name of an attribute.
pub(crate) fn joined(number: u8, rest: &[u8]) -> Option<Vec<u8>> {
    let (_, prefix) = PREFIXES.iter().find(|(known, _)| *known == number)?;
    Some([prefix, rest].concat())
}

/// Returns the checksum of a superblock, whose own field is zero, with all bytes of its block that
/// follow.
pub(crate) fn checksum(bytes: &[u8]) -> u32 {
    !crc32c::crc32c(bytes)
}
