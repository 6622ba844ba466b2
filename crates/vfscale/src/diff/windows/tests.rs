use std::sync::atomic::{AtomicU64, Ordering};

use vfscale_block::MemoryDevice;

use super::*;

/// Counts its reads, and can't read its second block.
#[derive(Debug)]
struct Counted {
    device: MemoryDevice,
    reads: AtomicU64,
}

const BLOCK: u64 = 4096;

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

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        if offset < 2 * BLOCK && offset + buf.len() as u64 > BLOCK {
            let device = self.name().into();
            return Err(Error::OutOfRange {
                device,
                operation: Operation::Read,
                offset,
                length: 1,
                size: 0,
            });
        }
        self.device.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), Error> {
        self.device.write_at(offset, buf)
    }

    fn flush(&self) -> Result<(), Error> {
        self.device.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), Error> {
        self.device.discard(offset, len)
    }
}

/// Returns a device whose blocks have their numbers, the last of which is no whole window.
fn device() -> (Arc<Counted>, Windows) {
    let blocks = 200 * BYTES / BLOCK + 3;
    let device = MemoryDevice::new(blocks * BLOCK).unwrap();
    for block in 0..blocks {
        device.write_at(block * BLOCK, &(block as u16).to_le_bytes().repeat(2048)).unwrap();
    }
    let counted = Arc::new(Counted { device, reads: AtomicU64::new(0) });
    (counted.clone(), Windows::new(counted))
}

/// Reads a block, and returns the number of reads of the device below that this took.
fn read(device: &Counted, windows: &Windows, block: u64) -> u64 {
    let before = device.reads.load(Ordering::Relaxed);
    let mut buf = [0; BLOCK as usize];
    windows.read_at(block * BLOCK, &mut buf).unwrap();
    assert_eq!(buf[..], (block as u16).to_le_bytes().repeat(2048), "block {block}");
    device.reads.load(Ordering::Relaxed) - before
}

#[test]
fn blocks_in_order_take_a_read_of_a_window() {
    let (device, windows) = device();
    let last = windows.size() / BLOCK - 1;
    let reads: u64 = (16..=last).map(|block| read(&device, &windows, block)).sum();
    // 199 windows, and three blocks behind them.
    assert_eq!(reads, 199 + 3);
    let mut over = [0; 8];
    windows.read_at(2 * BYTES - 4, &mut over).unwrap();
    assert_eq!(over, [31, 0, 31, 0, 32, 0, 32, 0]);
    assert!(windows.read_at(windows.size(), &mut over).is_err());
}

#[test]
fn a_block_beside_one_that_cannot_be_read_is_read() {
    let (device, windows) = device();
    assert_eq!(read(&device, &windows, 0), 2);
    assert!(windows.read_at(BLOCK, &mut [0; 16]).is_err());
    assert_eq!(read(&device, &windows, 2), 2);
}

#[test]
fn reads_far_from_each_other_are_not_made_larger_for_long() {
    let (device, windows) = device();
    let block = |number: u64| (1 + number) * BYTES / BLOCK;
    (0..TRIAL).for_each(|number| assert_eq!(read(&device, &windows, block(number)), 1));
    assert_eq!(windows.kept().loads, TRIAL);
    (TRIAL..190).for_each(|number| assert_eq!(read(&device, &windows, block(number)), 1));
    let kept = windows.kept();
    assert_eq!((kept.loads, kept.windows.len()), (TRIAL, KEPT));
}
