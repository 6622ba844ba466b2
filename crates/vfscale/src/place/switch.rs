//! A device that is replaced once, below an open volume.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use vfscale_block::{Device, Error, Operation, OsError};

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
}

impl Deref for Switch {
    type Target = Arc<dyn Device>;

    #[inline]
    fn deref(&self) -> &Arc<dyn Device> {
        self.second.get().unwrap_or(&self.first)
    }
}

impl fmt::Debug for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
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
