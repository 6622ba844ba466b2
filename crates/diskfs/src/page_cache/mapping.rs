//! The blocks behind a part of a file.

/// The mapping of a block of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mapping {
    /// These many blocks from there on lie one behind the other.
    Mapped {
        /// Where the first one lies, in blocks of the device.
        start: u64,
        /// Number of blocks.
        blocks: u64,
        /// Whether nothing was written to them yet: they read as zeros.
        is_unwritten: bool,
    },
    /// No blocks.
    Hole {
        /// Number of blocks of the hole from there on.
        blocks: u64,
    },
}
