//! A device with hardly any storage left.

use std::ops::Range;

use vfscale_block::{Device, Error, Operation, OsError};
use vfscale_sync::atomic::{AtomicI64, Ordering};

const BLOCK_BYTES: u64 = 4096;

/// A device of which a number of blocks can be reserved. It checks that as many are reserved at any
/// time as are needed for certain.
#[derive(Debug)]
pub struct Limited<D> {
    /// The device below.
    pub inner: D,
    /// Number of blocks that can be reserved.
    pub total: i64,
    /// Number of blocks that are not reserved.
    pub left: AtomicI64,
    /// Only urgent reservations get so many last ones.
    pub urgent: i64,
    /// Blocks that have to be reserved as soon as ranges are.
    pub kept: i64,
    /// Blocks that have to be reserved: the kept ones, and what the test adds.
    pub needed: AtomicI64,
    /// How often it has refused.
    pub refused: AtomicI64,
}

impl<D> Limited<D> {
    /// Limits a device to `total` blocks.
    pub fn new(inner: D, total: i64) -> Self {
        let (left, needed, refused) = (AtomicI64::new(total), AtomicI64::new(0), AtomicI64::new(0));
        Self { inner, total, left, urgent: 0, kept: 0, needed, refused }
    }
}

impl<D: Device> Device for Limited<D> {
    fn below(&self) -> Option<&dyn Device> {
        Some(&self.inner)
    }

    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn block_size(&self) -> u32 {
        self.inner.block_size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        self.inner.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), Error> {
        self.inner.write_at(offset, buf)
    }

    fn flush(&self) -> Result<(), Error> {
        self.inner.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), Error> {
        self.inner.discard(offset, len)
    }

    fn must_reserve(&self) -> bool {
        true
    }

    fn reserve(&self, blocks: u64, is_urgent: bool) -> Result<(), Error> {
        let (blocks, least) = (blocks as i64, if is_urgent { 0 } else { self.urgent });
        let less = |left: i64| (left - blocks >= least).then_some(left - blocks);
        if self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok() {
            return Ok(());
        }
        self.refused.fetch_add(1, Ordering::SeqCst);
        let (device, operation) = (self.name().into(), Operation::Write);
        Err(Error::Io { device, operation, offset: 0, length: 0, source: OsError::NO_SPACE })
    }

    fn unreserve(&self, blocks: u64) {
        // Before the blocks are back: a transaction that gets them says so after that.
        let needed = self.needed.load(Ordering::SeqCst);
        let left = self.left.fetch_add(blocks as i64, Ordering::SeqCst) + blocks as i64;
        let reserved = self.total - left;
        assert!(reserved >= needed, "{reserved} blocks are reserved, and {needed} needed");
    }

    fn renew(&self, blocks: u64, most: u64) -> u64 {
        let stay = most.min(blocks);
        self.unreserve(blocks - stay);
        stay
    }

    fn reserve_ranges(&self, ranges: &[Range<u64>]) -> Result<(), Error> {
        let bytes: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        self.reserve(bytes / BLOCK_BYTES, false)?;
        self.needed.fetch_add(self.kept, Ordering::SeqCst);
        Ok(())
    }
}
