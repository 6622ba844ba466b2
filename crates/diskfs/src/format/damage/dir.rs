//! Faults of directories.

/// A fault in a directory. Numbers begin with 500.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("V{}: directory {ino}: the entry at {position}: {fault}", fault.number())]
pub struct DirDamage {
    /// The directory.
    pub ino: u64,
    /// The position of the entry.
    pub position: u64,
    /// The fault.
    pub fault: DirFault,
}

/// Faults of an entry of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DirFault {
    /// 500: It extends past the end of the data in the inode.
    #[error("is cut off")]
    Cut,
    /// 501: No entry can have its position, or the position is not greater than that of the entry
    /// before it.
    #[error("can't be there")]
    Position,
    /// 502: No file can have its name.
    #[error("a name that no file can have")]
    Name,
    /// 503: Its file type does not exist.
    #[error("type {kind}")]
    Type {
        /// The type.
        kind: u8,
    },
    /// 504: Its inode does not exist.
    #[error("leads to inode {ino}, which can't be")]
    Inode {
        /// The inode.
        ino: u64,
    },
    /// 505: A record of it is missing, or there is a record that does not belong to it.
    #[error("part {part} of its name is missing or one too many")]
    Part {
        /// The number of the record.
        part: u8,
    },
    /// 506: A lookup of its name does not find it at its position.
    #[error("a name that belongs elsewhere")]
    Hash,
    /// 507: An earlier entry has the same name.
    #[error("a name that is there already")]
    Twice,
    /// 508: The size of the directory is not the sum of its entries. The position is 0.
    #[error("its entries have {computed} bytes together, its size is {found}")]
    Size {
        /// The size of the directory.
        found: u64,
        /// The sum of the sizes of its entries.
        computed: u64,
    },
}

impl DirFault {
    /// Returns the number of the fault.
    pub fn number(&self) -> u32 {
        match self {
            Self::Cut => 500,
            Self::Position => 501,
            Self::Name => 502,
            Self::Type { .. } => 503,
            Self::Inode { .. } => 504,
            Self::Part { .. } => 505,
            Self::Hash => 506,
            Self::Twice => 507,
            Self::Size { .. } => 508,
        }
    }
}
