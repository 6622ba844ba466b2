//! A branch that counts the writes for which the pool had no room.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use vfscale::block::{Device, Error as DeviceError, OsError};
use vfscale_pool::Branch;

/// A branch that counts the writes which have found the pool full.
#[derive(Debug)]
pub struct Watched {
    pub branch: Arc<Branch>,
    pub full: Arc<AtomicU64>,
}

impl Watched {
    fn watch(&self, result: Result<(), DeviceError>) -> Result<(), DeviceError> {
        if matches!(result, Err(DeviceError::Io { source: OsError::NO_SPACE, .. })) {
            self.full.fetch_add(1, Ordering::Relaxed);
        }
        result
    }
}

impl Device for Watched {
    fn below(&self) -> Option<&dyn Device> {
        Some(&self.branch)
    }

    fn size(&self) -> u64 {
        self.branch.size()
    }

    fn block_size(&self) -> u32 {
        self.branch.block_size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.branch.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), DeviceError> {
        self.watch(self.branch.write_at(offset, buf))
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.watch(self.branch.flush())
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.watch(self.branch.discard(offset, len))
    }
}
