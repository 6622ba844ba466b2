//! A device that is replaced once, below an open volume.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use vfscale_block::{Device, Discards, Error, Operation, OsError, PendingWrite};
use vfscale_sync::page::PageBox;

/// A device that passes all calls on to another one: first to that which it began with, and from a
/// [`replace`](Self::replace) on to a second one. A call that runs at that time may go to either.
pub(crate) struct Switch {
    first: Arc<dyn Device>,
    second: OnceLock<Arc<dyn Device>>,
}

impl Switch {
    pub(crate) fn new(first: Arc<dyn Device>) -> Self {
        Self { first, second: OnceLock::new() }
    }

    /// Passes calls on to `second` from now on; a later call of this does nothing.
    pub(crate) fn replace(&self, second: Arc<dyn Device>) {
        let _ = self.second.set(second);
    }

    #[inline]
    fn now(&self) -> &Arc<dyn Device> {
        self.second.get().unwrap_or(&self.first)
    }
}

impl fmt::Debug for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.now().fmt(f)
    }
}

impl Device for Switch {
    fn name(&self) -> &str {
        self.now().name()
    }

    fn describe(&self) -> String {
        self.now().describe()
    }

    fn size(&self) -> u64 {
        self.now().size()
    }

    fn block_size(&self) -> u32 {
        self.now().block_size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        self.now().read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), Error> {
        self.now().write_at(offset, buf)
    }

    fn flush(&self) -> Result<(), Error> {
        self.now().flush()
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), Error> {
        self.now().discard(offset, len)
    }

    fn discards(&self) -> Option<Discards> {
        self.now().discards()
    }

    fn identity(&self) -> Option<[u8; 16]> {
        self.now().identity()
    }

    fn must_reserve(&self) -> bool {
        self.now().must_reserve()
    }

    fn room(&self) -> Option<u64> {
        self.now().room()
    }

    fn reserve(&self, blocks: u64, is_urgent: bool) -> Result<(), Error> {
        self.now().reserve(blocks, is_urgent)
    }

    fn unreserve(&self, blocks: u64) {
        self.now().unreserve(blocks);
    }

    fn renew(&self, blocks: u64, most: u64) -> u64 {
        self.now().renew(blocks, most)
    }

    fn reserve_ranges(&self, ranges: &[Range<u64>]) -> Result<(), Error> {
        self.now().reserve_ranges(ranges)
    }

    fn read_many(&self, reads: &mut [(u64, &mut [u8])]) -> Result<(), Error> {
        self.now().read_many(reads)
    }

    fn write_many(&self, writes: &[(u64, &[u8])]) -> Result<(), Error> {
        self.now().write_many(writes)
    }

    fn read_pages(&self, offset: u64, pages: &[PageBox]) -> Result<(), Error> {
        self.now().read_pages(offset, pages)
    }

    fn write_pages(&self, offset: u64, pages: &[PageBox]) -> Result<(), Error> {
        self.now().write_pages(offset, pages)
    }

    fn begin_write_pages<'d>(&'d self, offset: u64, pages: &Arc<Vec<PageBox>>) -> PendingWrite<'d> {
        self.now().begin_write_pages(offset, pages)
    }

    fn set_size(&self, size: u64) -> Result<(), Error> {
        self.now().set_size(size)
    }
}

/// A device that nobody may use any more: each call fails. It retains name and size.
#[derive(Debug)]
pub(crate) struct Gone {
    name: Arc<str>,
    size: u64,
    block_size: u32,
}

impl Gone {
    /// Returns a device in the place of `device`.
    pub(crate) fn of(device: &dyn Device) -> Self {
        let (size, block_size) = (device.size(), device.block_size());
        Self { name: device.name().into(), size, block_size }
    }

    fn refused(&self, operation: Operation, offset: u64, length: u64) -> Error {
        let device = self.name.clone();
        Error::Io { device, operation, offset, length, source: OsError::IO }
    }
}

impl Device for Gone {
    fn name(&self) -> &str {
        &self.name
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn block_size(&self) -> u32 {
        self.block_size
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        Err(self.refused(Operation::Read, offset, buf.len() as u64))
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), Error> {
        Err(self.refused(Operation::Write, offset, buf.len() as u64))
    }

    fn flush(&self) -> Result<(), Error> {
        Err(self.refused(Operation::Flush, 0, 0))
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), Error> {
        Err(self.refused(Operation::Discard, offset, len))
    }
}
