//! A device that counts its reads, and what is written to it, by the kind of block.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use vfscale::block::{Device, Error as DeviceError, MemoryDevice};

const BLOCK: usize = 4096;

/// Number of blocks that were written, by their magics; data has none.
pub type Kinds = BTreeMap<String, u64>;

/// A device in memory that counts the blocks that are written.
#[derive(Debug)]
pub struct Counted {
    device: MemoryDevice,
    kinds: Mutex<Kinds>,
    reads: AtomicU64,
}

impl Counted {
    pub fn new(bytes: u64) -> Self {
        let (kinds, reads) = (Mutex::default(), AtomicU64::new(0));
        Self { device: MemoryDevice::new(bytes).unwrap(), kinds, reads }
    }

    /// Returns the number of reads since the last call.
    pub fn take_reads(&self) -> u64 {
        self.reads.swap(0, Ordering::Relaxed)
    }

    /// Returns the blocks that were written since the last call, and how many bytes these are.
    pub fn take(&self) -> (Kinds, u64) {
        let kinds = std::mem::take(&mut *self.kinds.lock().unwrap());
        let bytes = kinds.values().sum::<u64>() * BLOCK as u64;
        (kinds, bytes)
    }

    fn count(&self, bytes: &[u8]) {
        let mut kinds = self.kinds.lock().unwrap();
        for block in bytes.chunks(BLOCK) {
            let magic =
                block.get(..4).map_or_else(String::new, |magic| magic.escape_ascii().to_string());
            let is_known = magic.starts_with("vfs") || magic.starts_with("poo");
            *kinds.entry(if is_known { magic } else { "data".into() }).or_default() += 1;
        }
    }
}

impl Device for Counted {
    fn below(&self) -> Option<&dyn Device> {
        Some(&self.device)
    }

    fn size(&self) -> u64 {
        self.device.size()
    }

    fn block_size(&self) -> u32 {
        self.device.block_size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.device.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), DeviceError> {
        self.count(buf);
        self.device.write_at(offset, buf)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.device.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.device.discard(offset, len)
    }
}
