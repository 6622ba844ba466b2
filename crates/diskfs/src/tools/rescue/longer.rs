//! A device that is shorter than its volume.

use std::fmt;
use std::sync::Arc;

use vfscale_block::{Device, Error, Operation};

/// A device that claims the size of its volume. Bytes behind its real end can't be read. Nothing is
/// written.
pub(super) struct Longer {
    device: Arc<dyn Device>,
    size: u64,
}

impl Longer {
    pub(super) fn new(device: Arc<dyn Device>, size: u64) -> Self {
        Self { device, size }
    }

    fn read_only<T>(&self, operation: Operation) -> Result<T, Error> {
        Err(Error::ReadOnly { device: self.name().into(), operation })
    }
}

impl Device for Longer {
    fn name(&self) -> &str {
        self.device.name()
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn block_size(&self) -> u32 {
        self.device.block_size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        self.device.read_at(offset, buf)
    }

    fn write_at(&self, _: u64, _: &[u8]) -> Result<(), Error> {
        self.read_only(Operation::Write)
    }

    fn flush(&self) -> Result<(), Error> {
        Ok(())
    }

    fn discard(&self, _: u64, _: u64) -> Result<(), Error> {
        self.read_only(Operation::Discard)
    }
}

impl fmt::Debug for Longer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Longer").field("device", &self.device).field("size", &self.size).finish()
    }
}
