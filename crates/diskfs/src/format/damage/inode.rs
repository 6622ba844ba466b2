//! Faults of inodes.

/// A fault in the record of an inode. Numbers begin with 400.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("V{}: inode {ino}: {fault}", fault.number())]
pub struct InodeDamage {
    /// The inode.
    pub ino: u64,
    /// The fault.
    pub fault: InodeFault,
}

/// Faults of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InodeFault {
    /// 400: A reference to a free inode.
    #[error("does not exist")]
    Free,
    /// 401: A mode without a valid file type.
    #[error("mode {mode:o}")]
    Type {
        /// The mode.
        mode: u16,
    },
    /// 402: More links than an inode can have.
    #[error("{links} links")]
    Links {
        /// Number of links.
        links: u32,
    },
    /// 403: A size that no file of the type can have, or that does not fit the contents of the
    /// area.
    #[error("size {size}")]
    Size {
        /// The size, in bytes.
        size: u64,
    },
    /// 404: A data fork of a format that the type does not have.
    #[error("data in format {format}")]
    DataFormat {
        /// The format.
        format: u8,
    },
    /// 405: A data fork of a length that does not go with its format.
    #[error("{bytes} bytes of data in the inode")]
    DataBytes {
        /// The length, in bytes.
        bytes: u16,
    },
    /// 406: An attribute fork of an unknown format.
    #[error("attributes in format {format}")]
    AttrFormat {
        /// The format.
        format: u8,
    },
    /// 407: An attribute fork of a length that does not go with its format.
    #[error("{bytes} bytes of attributes in the inode")]
    AttrBytes {
        /// The length, in bytes.
        bytes: u16,
    },
    /// 408: The forks overlap.
    #[error("{data} bytes of data and {attr} bytes of attributes in the same place")]
    Overlap {
        /// The length of the data fork, in bytes.
        data: u16,
        /// The length of the attribute fork, in bytes.
        attr: u16,
    },
    /// 409: The root of a tree, at an address where no tree can be.
    #[error("a tree at block {root}")]
    Root {
        /// The address, in blocks.
        root: u64,
    },
    /// 410: The parent of a directory is no valid inode number.
    #[error("its parent is inode {parent}")]
    Parent {
        /// The number.
        parent: u64,
    },
    /// 411: A reference to an inode number that is not valid.
    #[error("is outside of the volume")]
    Number,
    /// 412: The checksum does not match the record.
    #[error("checksum {found:08x}, its record has {computed:08x}")]
    Checksum {
        /// The checksum in the record.
        found: u32,
        /// The checksum computed from the record.
        computed: u32,
    },
}

impl InodeFault {
    /// Returns the number of the fault.
    pub fn number(&self) -> u32 {
        match self {
            Self::Free => 400,
            Self::Type { .. } => 401,
            Self::Links { .. } => 402,
            Self::Size { .. } => 403,
            Self::DataFormat { .. } => 404,
            Self::DataBytes { .. } => 405,
            Self::AttrFormat { .. } => 406,
            Self::AttrBytes { .. } => 407,
            Self::Overlap { .. } => 408,
            Self::Root { .. } => 409,
            Self::Parent { .. } => 410,
            Self::Number => 411,
            Self::Checksum { .. } => 412,
        }
    }
}
