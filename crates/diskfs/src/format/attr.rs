//! On-disk attributes, the blobs that store them, and their faults.
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

/// A fault in the blob of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("V{:03}: inode {ino}: {fault}", .fault.number())]
pub struct BlobDamage {
    /// The number of the inode.
    pub ino: u64,
    /// The fault.
    pub fault: BlobFault,
}

/// Faults of attributes, and of the target of a long link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BlobFault {
    /// 600: A chunk is missing.
    #[error("chunk {chunk} of a blob is missing")]
    Missing {
        /// The number of the chunk.
        chunk: u32,
    },
    /// 601: A chunk too many.
    #[error("chunk {chunk} of a blob that has {chunks}")]
    Surplus {
        /// The number of the chunk.
        chunk: u32,
        /// Number of chunks that the blob should have.
        chunks: u32,
    },
    /// 602: An attribute that extends past the end, or has no name, or too long a value.
    #[error("an attribute with {name_bytes} bytes of name and {value_bytes} of value, at {offset}")]
    Attribute {
        /// Offset in the blob.
        offset: u32,
        /// The length of the name.
        name_bytes: u8,
        /// The length of the value.
        value_bytes: u32,
    },
    /// 603: Names that don't ascend.
    #[error("an attribute at {offset} whose name is not greater than the one before")]
    Order {
        /// Offset in the blob.
        offset: u32,
    },
    /// 604: Fewer bytes left than the header of an attribute has.
    #[error("{bytes} bytes behind the last attribute")]
    Rest {
        /// Number of bytes left.
        bytes: u32,
    },
}

impl BlobFault {
    /// Returns the number of the fault.
    #[must_use]
    pub fn number(&self) -> u32 {
        match self {
            Self::Missing { .. } => 600,
            Self::Surplus { .. } => 601,
            Self::Attribute { .. } => 602,
            Self::Order { .. } => 603,
            Self::Rest { .. } => 604,
        }
    }
}

#[cfg(test)]
mod tests;
