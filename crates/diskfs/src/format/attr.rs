//! On-disk attributes, and the blobs that store them.
//!
//! # Blobs
//!
//! All attributes of an inode together are one *blob*. A blob is stored in the inode, or if it is
//! too large, in chunks of [`CHUNK_BYTES`] in a tree whose keys are the numbers of the chunks. The
//! target of a symbolic link that is too long for its inode is stored in such a tree, too.

use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::Magic;

/// Magic of the blocks of a tree with attributes.
pub const ATTR_MAGIC: Magic = Magic(*b"vfsA");
/// Magic of the blocks of a tree with the target of a link.
pub const LINK_MAGIC: Magic = Magic(*b"vfsL");
/// Size of a chunk, in bytes.
pub const CHUNK_BYTES: usize = 480;
/// Longest name of an attribute, in bytes.
pub const ATTR_NAME_BYTES_MAX: usize = 255;
/// Longest value of an attribute, in bytes.
pub const ATTR_VALUE_BYTES_MAX: usize = 64 * 1024;

/// A chunk of a blob, on disk.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(transparent)]
pub struct RawBlobChunk(pub(crate) [u8; CHUNK_BYTES]);

/// The header of an attribute in the blob, on disk; its name and value follow.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawAttr {
    pub(crate) value_bytes: U32,
    pub(crate) name_bytes: u8,
}

/// Size of the header of an attribute, in bytes.
pub(crate) const ATTR_HEAD_BYTES: usize = 5;

const _: () = assert!(size_of::<RawAttr>() == ATTR_HEAD_BYTES && size_of::<RawBlobChunk>() == 480);

#[cfg(test)]
mod tests;
