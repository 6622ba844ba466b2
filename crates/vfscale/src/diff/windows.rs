//! A device that is read in pieces larger than asked for, for walks over whole trees.
//!
//! A walk reads a block at a time, of blocks that were allocated together: the inodes of a
//! directory and its names. A read of one block takes about as long as one of 16.
//!
//! If the reads turn out to be elsewhere, they are no longer made larger.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use vfscale_block::{AlignedBuf, Device, Error, Operation};

/// Bytes that are read at a time, from a multiple of this on.
const BYTES: u64 = 64 << 10;
/// Most windows that are retained.
const KEPT: usize = 64;
/// Number of windows after which each has to have served more than one read.
const TRIAL: u64 = 64;

/// A device whose contents do not change, read in windows. Nothing is written.
#[derive(Debug)]
pub(super) struct Windows {
    device: Arc<dyn Device>,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    /// By their first bytes.
    windows: HashMap<u64, AlignedBuf>,
    /// The first bytes, the oldest window first.
    order: VecDeque<u64>,
    loads: u64,
    hits: u64,
}

impl Kept {
    /// Returns whether reads have been near to each other so far.
    fn is_worth_it(&self) -> bool {
        self.loads < TRIAL || self.hits > self.loads
    }

    /// Returns the memory for another window: that of the oldest one, if there are enough.
    fn take(&mut self) -> AlignedBuf {
        let oldest = if self.order.len() < KEPT { None } else { self.order.pop_front() };
        let window = oldest.and_then(|oldest| self.windows.remove(&oldest));
        window.unwrap_or_else(|| AlignedBuf::zeroed(BYTES as usize))
    }

    fn put(&mut self, start: u64, window: AlignedBuf) {
        self.order.push_back(start);
        self.windows.insert(start, window);
        self.loads += 1;
    }
}

impl Windows {
    pub(super) fn new(device: Arc<dyn Device>) -> Self {
        Self { device, kept: Mutex::default() }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read_only<T>(&self, operation: Operation) -> Result<T, Error> {
        Err(Error::ReadOnly { device: self.name().into(), operation })
    }
}

impl Device for Windows {
    fn below(&self) -> Option<&dyn Device> {
        Some(&*self.device)
    }

    fn size(&self) -> u64 {
        self.device.size()
    }

    fn block_size(&self) -> u32 {
        self.device.block_size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        let (start, length) = (offset / BYTES * BYTES, buf.len() as u64);
        let at = (offset - start) as usize;
        let is_within = at as u64 + length <= BYTES && self.size() >= start + BYTES;
        if !is_within {
            return self.device.read_at(offset, buf);
        }
        let mut kept = self.kept();
        if let Some(window) = kept.windows.get(&start) {
            buf.copy_from_slice(&window[at..][..buf.len()]);
            kept.hits += 1;
            return Ok(());
        }
        if kept.is_worth_it() {
            let mut window = kept.take();
            // A part that nobody asks for may be unreadable.
            if self.device.read_at(start, &mut window).is_ok() {
                buf.copy_from_slice(&window[at..][..buf.len()]);
                kept.put(start, window);
                return Ok(());
            }
        }
        drop(kept);
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

#[cfg(test)]
mod tests;
