//! Attributes on disk, what else lies there as one piece of bytes, and what can be wrong with it.
//!
//! # Blobs
//!
//! All attributes of an inode together are one *blob*. It lies in the inode, or if it is too large
//! for that, in chunks of [`CHUNK_BYTES`] in a tree whose keys are the numbers of the chunks. So
//! does the target of a symbolic link that is too long for its inode.

use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::Magic;

/// What the blocks of a tree with attributes begin with.
pub const ATTR_MAGIC: Magic = Magic(*b"vfsA");
/// What the blocks of a tree with the target of a link begin with.
pub const LINK_MAGIC: Magic = Magic(*b"vfsL");
/// The bytes of a chunk.
pub const CHUNK_BYTES: usize = 480;
/// The longest name of an attribute, in bytes.
pub const ATTR_NAME_BYTES_MAX: usize = 255;
/// The longest value of an attribute, in bytes.
pub const ATTR_VALUE_BYTES_MAX: usize = 64 * 1024;

/// A piece of a blob, on disk.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(transparent)]
pub struct RawChunk(pub(crate) [u8; CHUNK_BYTES]);

/// What stands before the name and the value of an attribute in the blob, on disk.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawAttr {
    pub(crate) value_bytes: U32,
    pub(crate) name_bytes: u8,
}

/// The bytes before the name of an attribute.
pub(crate) const ATTR_HEAD_BYTES: usize = 5;

const _: () = assert!(size_of::<RawAttr>() == ATTR_HEAD_BYTES && size_of::<RawChunk>() == 480);

/// What is wrong with the blob of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("V{:03}: inode {ino}: {fault}", .fault.number())]
pub struct BlobDamage {
    /// The number of the inode.
    pub ino: u64,
    /// What is wrong.
    pub fault: BlobFault,
}

/// What can be wrong with attributes, or with the target of a long link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BlobFault {
    /// 600: A piece is missing.
    #[error("chunk {chunk} of a blob is missing")]
    Missing {
        /// The number of the chunk.
        chunk: u32,
    },
    /// 601: A piece too many.
    #[error("chunk {chunk} of a blob that has {chunks}")]
    Surplus {
        /// The number of the chunk.
        chunk: u32,
        /// How many there should be.
        chunks: u32,
    },
    /// 602: An attribute that goes over the end, or has no name, or too long a value.
    #[error("an attribute with {name_bytes} bytes of name and {value_bytes} of value, at {offset}")]
    Attribute {
        /// Where in the blob.
        offset: u32,
        /// The length of the name.
        name_bytes: u8,
        /// The length of the value.
        value_bytes: u32,
    },
    /// 603: Names that don't ascend.
    #[error("an attribute at {offset} whose name is not greater than the one before")]
    Order {
        /// Where in the blob.
        offset: u32,
    },
    /// 604: Fewer bytes left than an attribute begins with.
    #[error("{bytes} bytes behind the last attribute")]
    Rest {
        /// How many.
        bytes: u32,
    },
}

impl BlobFault {
    /// Its number.
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
