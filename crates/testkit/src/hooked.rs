//! A device whose calls a function of the test makes.

use vfscale_block::{Device, Error};

/// A call of a [`HookedDevice`], with offsets and lengths in bytes. Batches and pages are single
/// reads and writes.
#[derive(Debug)]
pub enum Call<'c> {
    /// A read of this buffer from an offset on.
    Read(u64, &'c mut [u8]),
    /// A write of these bytes at an offset.
    Write(u64, &'c [u8]),
    /// A flush.
    Flush,
    /// A discard from an offset on, and its length.
    Discard(u64, u64),
    /// A change of the size.
    Resize(u64),
}

impl Call<'_> {
    /// Makes the call on `device`. Blocks as it does.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn pass(self, device: &impl Device) -> Result<(), Error> {
        match self {
            Self::Read(offset, buf) => device.read_at(offset, buf),
            Self::Write(offset, buf) => device.write_at(offset, buf),
            Self::Flush => device.flush(),
            Self::Discard(offset, length) => device.discard(offset, length),
            Self::Resize(size) => device.set_size(size),
        }
    }
}

/// Makes a call on the device below, given the state of the hook: as it is, later, changed or not.
pub type Hook<D, S> = fn(&D, &S, Call<'_>) -> Result<(), Error>;

/// A device whose calls a [`Hook`] makes, which counts, delays, changes or refuses some of them.
/// A [`FaultyDevice`](crate::FaultyDevice) fails by a plan.
#[derive(Debug)]
pub struct HookedDevice<D, S> {
    /// The device below.
    pub below: D,
    /// The state of the hook, which may be called by many threads concurrently.
    pub state: S,
    /// The device's identity, if it is not that of the one below.
    pub identity: Option<[u8; 16]>,
    hook: Hook<D, S>,
}

impl<D, S> HookedDevice<D, S> {
    /// Puts a hook above a device.
    pub fn new(below: D, state: S, hook: Hook<D, S>) -> Self {
        Self { below, state, identity: None, hook }
    }

    fn call(&self, call: Call<'_>) -> Result<(), Error> {
        (self.hook)(&self.below, &self.state, call)
    }
}

impl<D: Device, S: Send + Sync + std::fmt::Debug> Device for HookedDevice<D, S> {
    fn below(&self) -> Option<&dyn Device> {
        Some(&self.below)
    }

    fn size(&self) -> u64 {
        self.below.size()
    }

    fn block_size(&self) -> u32 {
        self.below.block_size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        self.call(Call::Read(offset, buf))
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), Error> {
        self.call(Call::Write(offset, buf))
    }

    fn flush(&self) -> Result<(), Error> {
        self.call(Call::Flush)
    }

    fn discard(&self, offset: u64, length: u64) -> Result<(), Error> {
        self.call(Call::Discard(offset, length))
    }

    fn identity(&self) -> Option<[u8; 16]> {
        self.identity.or_else(|| self.below.identity())
    }

    fn set_size(&self, size: u64) -> Result<(), Error> {
        self.call(Call::Resize(size))
    }
}
