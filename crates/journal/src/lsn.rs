//! Log sequence numbers: where in the log, and how many times around.

use std::fmt;

/// The unit in which the log is written and addressed, in bytes.
pub const LOG_BLOCK_BYTES: usize = 4096;
/// The fewest blocks of a log (1 MiB).
pub const LOG_BLOCKS_MIN: u32 = 256;
/// The most blocks of a log (2 GiB), which bounds the scan of a recovery.
pub const LOG_BLOCKS_MAX: u32 = 1 << 19;

/// A place in the log: the number of times that the log was filled before (from 1 on), and a block
/// of it. Later places are larger. Zero is no place at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(u64);

impl Lsn {
    /// No place.
    pub const NONE: Self = Self(0);

    /// The place `block` in round `cycle`.
    #[must_use]
    pub const fn new(cycle: u32, block: u32) -> Self {
        Self((cycle as u64) << 32 | block as u64)
    }

    /// The place that [`to_bits`](Self::to_bits) gave the number of.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The cycle in the upper half, the block in the lower one: as it stands on disk.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// The number of the round through the log.
    #[must_use]
    pub const fn cycle(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The block, from 0 on.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "the lower half")]
    pub const fn block(self) -> u32 {
        self.0 as u32
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.cycle(), self.block())
    }
}

/// Where on its device a log lies, in bytes. Both are multiples of [`LOG_BLOCK_BYTES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Where it begins.
    pub offset: u64,
    /// Its length.
    pub length: u64,
}

/// A number of blocks written since the log was made, as if it had no end: a place that can be
/// reckoned with. The block in the log is the rest of the division by its size, the cycle is the
/// quotient, and the first is 1.
pub(crate) type Position = u64;

/// The size of a log, and where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    /// Bytes from the start of the device.
    pub(crate) offset: u64,
    pub(crate) blocks: u32,
}

impl Geometry {
    /// The position of a place. Any place has one, if only an absurd one.
    pub(crate) fn position(self, lsn: Lsn) -> Position {
        u64::from(lsn.cycle()) * u64::from(self.blocks) + u64::from(lsn.block())
    }

    /// The place of a position. Cycles that do not fit were refused before.
    pub(crate) fn lsn(self, position: Position) -> Lsn {
        let blocks = u64::from(self.blocks);
        let cycle = u32::try_from(position / blocks).unwrap_or(u32::MAX);
        Lsn::new(cycle, u32::try_from(position % blocks).unwrap_or(0))
    }

    /// Where on the device the block of a position lies, in bytes.
    pub(crate) fn device_offset(self, position: Position) -> u64 {
        self.offset + position % u64::from(self.blocks) * LOG_BLOCK_BYTES as u64
    }

    /// Calls `io` for each piece of `len` blocks from `position` on that is contiguous on the device:
    /// one, or two if it goes over the end. It gets the device offset and the range of bytes.
    pub(crate) fn pieces<E>(
        self,
        position: Position,
        len: usize,
        mut io: impl FnMut(u64, std::ops::Range<usize>) -> Result<(), E>,
    ) -> Result<(), E> {
        let to_end = self.blocks as usize - (position % u64::from(self.blocks)) as usize;
        let first = len.min(to_end) * LOG_BLOCK_BYTES;
        io(self.device_offset(position), 0..first)?;
        if len > to_end {
            io(self.offset, first..len * LOG_BLOCK_BYTES)?;
        }
        Ok(())
    }
}
