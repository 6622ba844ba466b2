//! Faults of blobs: of attributes, and of the targets of long links.

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
