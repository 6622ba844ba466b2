//! The mapping of a block of a file to the device.

/// The mapping of a block of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mapping {
    /// Consecutive blocks of the device, from this block of the file on.
    Mapped {
        /// The first of them.
        start: u64,
        /// Number of blocks.
        blocks: u64,
        /// Whether nothing was written to them yet: they read as zeros.
        is_unwritten: bool,
    },
    /// No blocks.
    Hole {
        /// Number of blocks of the hole, from this block of the file on.
        blocks: u64,
    },
}
