//! A device that counts its reads, and what is written to it, by the kind of block.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use vfscale::block::MemoryDevice;
use vfscale_testkit::{Call, HookedDevice};

const BLOCK: usize = 4096;

/// Number of blocks that were written, by their magics; data has none.
pub type Kinds = BTreeMap<String, u64>;

/// The calls of a device.
#[derive(Debug, Default)]
pub struct Counts {
    kinds: Mutex<Kinds>,
    reads: AtomicU64,
}

/// A device in memory that counts its calls.
pub type Counted = HookedDevice<MemoryDevice, Counts>;

pub fn counted(bytes: u64) -> Counted {
    counting(MemoryDevice::new(bytes).unwrap())
}

/// Returns a device that counts the calls of another one.
pub fn counting(device: MemoryDevice) -> Counted {
    HookedDevice::new(device, Counts::default(), |device, counts, call| {
        match &call {
            Call::Read(..) => _ = counts.reads.fetch_add(1, Ordering::Relaxed),
            Call::Write(_, bytes) => counts.count(bytes),
            _ => {}
        }
        call.pass(device)
    })
}

impl Counts {
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
