//! Log sequence numbers: the block in the log, and the cycle through it.

use std::fmt;

/// Unit in which the log is written and addressed, in bytes.
pub const LOG_BLOCK_BYTES: usize = 4096;
/// Smallest size of a log in blocks (1 MiB).
pub const LOG_BLOCKS_MIN: u32 = 256;
/// Largest size of a log in blocks (2 GiB), which bounds the scan of a recovery.
pub const LOG_BLOCKS_MAX: u32 = 1 << 19;

/// A log sequence number: the cycle (how many times the log was filled before, from 1 on), and a
/// block of the log. Later LSNs are larger. Zero is no LSN. Counterpart of `xfs_lsn_t`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(u64);

impl Lsn {
    /// The value that means no LSN.
    pub const NONE: Self = Self(0);

    /// Returns the LSN of block `block` in cycle `cycle`.
    #[must_use]
    pub const fn new(cycle: u32, block: u32) -> Self {
        Self((cycle as u64) << 32 | block as u64)
    }

    /// Returns the LSN that [`to_bits`](Self::to_bits) has encoded.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Returns the LSN as it is on disk: the cycle in the upper half, the block in the lower one.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// Returns the cycle.
    #[must_use]
    pub const fn cycle(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Returns the block, from 0 on.
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

/// The bytes of a device that a log occupies. Both fields are multiples of [`LOG_BLOCK_BYTES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Offset on the device.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
}

/// The block number in a log without an end, which allows arithmetic. Modulo the size of the log it
/// is the block in the log; divided by the size it is the cycle, from 1 on.
pub(crate) type Position = u64;

/// The size of a log, and its location on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    /// Offset on the device, in bytes.
    pub(crate) offset: u64,
    pub(crate) blocks: u32,
}

impl Geometry {
    /// Returns the position of an LSN. Any LSN has one, even if it makes no sense.
    pub(crate) fn position(self, lsn: Lsn) -> Position {
        u64::from(lsn.cycle()) * u64::from(self.blocks) + u64::from(lsn.block())
    }

    /// Returns the LSN of a position. Cycles that do not fit were refused before.
    pub(crate) fn lsn(self, position: Position) -> Lsn {
        let blocks = u64::from(self.blocks);
        let cycle = u32::try_from(position / blocks).unwrap_or(u32::MAX);
        Lsn::new(cycle, u32::try_from(position % blocks).unwrap_or(0))
    }

    /// Returns the offset on the device of the block at `position`, in bytes.
    pub(crate) fn device_offset(self, position: Position) -> u64 {
        self.offset + position % u64::from(self.blocks) * LOG_BLOCK_BYTES as u64
    }

    /// Runs `io` for each part of the `len` blocks from `position` on that is contiguous on the
    /// device: one, or two if they wrap around the end. It receives the device offset and the range
    /// of bytes.
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
