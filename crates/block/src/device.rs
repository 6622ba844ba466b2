//! The trait, and the checks that every device makes first.

use std::fmt;
use std::sync::Arc;

use vfscale_sync::page::{PAGE_SIZE, PageBox, read_pages, write_pages};

use crate::{Error, Operation};

/// How many pages one request has at most: a megabyte.
pub(crate) const REQUEST_PAGES: usize = (1 << 20) / PAGE_SIZE;

/// Fills whole pages through a copy of each request: for a device that can't read into pages.
///
/// # Errors
/// Those of [`Device::read_at`].
pub(crate) fn read_pages_by_copy(
    device: &(impl Device + ?Sized),
    offset: u64,
    pages: &[PageBox],
) -> Result<(), Error> {
    let mut copy = Vec::new();
    for (at, pages) in requests(offset, pages) {
        copy.resize(pages.len() * PAGE_SIZE, 0);
        device.read_at(at, &mut copy)?;
        write_pages(pages.iter().map(|page| &**page), 0, &copy);
    }
    Ok(())
}

/// The requests that pages from `offset` on make, and where each begins.
pub(crate) fn requests(offset: u64, pages: &[PageBox]) -> impl Iterator<Item = (u64, &[PageBox])> {
    let starts = (offset..).step_by(REQUEST_PAGES * PAGE_SIZE);
    starts.zip(pages.chunks(REQUEST_PAGES))
}

/// Bytes at addresses, written in blocks, kept when flushed.
///
/// The crate's page says what all devices promise. Methods take `&self` and may be called by many threads at
/// once; `Arc<dyn Device>` is the usual way to share one, and is a device itself.
///
/// Calls on ranges that overlap while one of them writes need an order of the caller's: without one,
/// each block holds what one of the writes put there, and a read may see some blocks before and some
/// after.
pub trait Device: Send + Sync + fmt::Debug {
    /// The name that errors carry: a path, where there is one.
    fn name(&self) -> &str {
        "unnamed device"
    }

    /// What the device is and which way its calls take, in one line for people.
    fn describe(&self) -> String {
        format!("{} ({} bytes)", self.name(), self.size())
    }

    /// The size in bytes, a multiple of the block size. It changes only by
    /// [`set_size`](Self::set_size).
    fn size(&self) -> u64;

    /// The smallest unit that a write can have, in bytes: 512 or 4096. A write of one block, at a
    /// multiple of it, is atomic: whatever happens, the block holds the old bytes or the new ones.
    fn block_size(&self) -> u32;

    /// Fills `buf` from `offset` on, whole or not at all successful. Any range may be read, aligned
    /// or not; where `buf` lies in memory makes a difference in speed only. Bytes that were never
    /// written read as zeros on a new image; on other devices they are whatever is there.
    ///
    /// Blocks for the I/O.
    ///
    /// # Errors
    /// [`Error::OutOfRange`], or [`Error::Io`]; then the contents of `buf` are undefined.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error>;

    /// Writes `buf` at `offset`; both the offset and the length are whole blocks. Later reads see it,
    /// but a crash may lose it, or keep any of its blocks, until a [`flush`](Self::flush) that
    /// began after this returned has returned.
    ///
    /// Blocks for the I/O.
    ///
    /// # Errors
    /// [`Error::OutOfRange`], [`Error::Misaligned`] and [`Error::ReadOnly`] change nothing;
    /// after [`Error::Io`] each block of the range is old, new, or, if it can't be read any more, lost.
    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), Error>;

    /// Makes everything durable whose write (or discard) had returned before the call. Writes
    /// that run meanwhile may be included or not.
    ///
    /// Blocks for the I/O.
    ///
    /// # Errors
    /// [`Error::Io`]: writes since the last successful flush may be lost. A device whose loss can't be
    /// made good by flushing again fails all later flushes too.
    fn flush(&self) -> Result<(), Error>;

    /// Says that `len` bytes from `offset` on are not needed any more; what they read as is undefined
    /// until they are written again. A hint: blocks that are only partly in the range are left alone,
    /// and a device that can't discard does nothing.
    ///
    /// May block for the I/O.
    ///
    /// # Errors
    /// [`Error::OutOfRange`], [`Error::ReadOnly`], or [`Error::Io`].
    fn discard(&self, offset: u64, len: u64) -> Result<(), Error>;

    /// Reads several ranges, `(offset, buffer)` each, at once if the device can.
    ///
    /// # Errors
    /// Those of [`read_at`](Self::read_at), for one of the ranges that failed; all buffers are
    /// undefined then.
    fn read_many(&self, reads: &mut [(u64, &mut [u8])]) -> Result<(), Error> {
        reads.iter_mut().try_for_each(|(offset, buf)| self.read_at(*offset, buf))
    }

    /// Writes several ranges, `(offset, bytes)` each, at once if the device can, and in no particular
    /// order: ranges of one call do not overlap. Nothing of it is durable before a flush.
    ///
    /// # Errors
    /// Those of [`write_at`](Self::write_at), for one of the ranges that failed; of the others, any
    /// may have been written.
    fn write_many(&self, writes: &[(u64, &[u8])]) -> Result<(), Error> {
        writes.iter().try_for_each(|(offset, buf)| self.write_at(*offset, buf))
    }

    /// Fills whole pages, one behind the other from `offset` on, which is in whole blocks. Others may read
    /// the pages meanwhile, and see any mixture.
    ///
    /// Blocks for the I/O.
    ///
    /// # Errors
    /// Those of [`read_at`](Self::read_at); then the contents of the pages are undefined.
    fn read_pages(&self, offset: u64, pages: &[PageBox]) -> Result<(), Error> {
        read_pages_by_copy(self, offset, pages)
    }

    /// Writes whole pages, one behind the other from `offset` on, which is in whole blocks: several requests
    /// of up to a megabyte at once if the device can, as by [`write_many`](Self::write_many). Nobody
    /// changes the pages meanwhile; a device that keeps checksums might not bear it.
    ///
    /// Blocks for the I/O.
    ///
    /// # Errors
    /// Those of [`write_at`](Self::write_at); any of the pages may have been written.
    fn write_pages(&self, offset: u64, pages: &[PageBox]) -> Result<(), Error> {
        let mut copy = Vec::new();
        for (at, pages) in requests(offset, pages) {
            copy.resize(pages.len() * PAGE_SIZE, 0);
            read_pages(pages.iter().map(|page| &**page), 0, &mut copy);
            self.write_at(at, &copy)?;
        }
        Ok(())
    }

    /// Makes the device larger. What is new reads as zeros on an image. The new size is durable when
    /// this returns.
    ///
    /// Blocks for the I/O.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the device has the size it has, or would have to shrink;
    /// [`Error::Misaligned`]; [`Error::Io`].
    fn set_size(&self, size: u64) -> Result<(), Error> {
        let _ = size;
        let (device, operation) = (self.name().into(), Operation::Resize);
        Err(Error::Unsupported { device, operation, why: "this device has a fixed size" })
    }
}

macro_rules! forward {
    ($($pointer:ty),+) => {$(
        impl<D: Device + ?Sized> Device for $pointer {
            fn name(&self) -> &str {
                (**self).name()
            }

            fn describe(&self) -> String {
                (**self).describe()
            }

            fn size(&self) -> u64 {
                (**self).size()
            }

            fn block_size(&self) -> u32 {
                (**self).block_size()
            }

            fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
                (**self).read_at(offset, buf)
            }

            fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), Error> {
                (**self).write_at(offset, buf)
            }

            fn flush(&self) -> Result<(), Error> {
                (**self).flush()
            }

            fn discard(&self, offset: u64, len: u64) -> Result<(), Error> {
                (**self).discard(offset, len)
            }

            fn read_many(&self, reads: &mut [(u64, &mut [u8])]) -> Result<(), Error> {
                (**self).read_many(reads)
            }

            fn write_many(&self, writes: &[(u64, &[u8])]) -> Result<(), Error> {
                (**self).write_many(writes)
            }

            fn read_pages(&self, offset: u64, pages: &[PageBox]) -> Result<(), Error> {
                (**self).read_pages(offset, pages)
            }

            fn write_pages(&self, offset: u64, pages: &[PageBox]) -> Result<(), Error> {
                (**self).write_pages(offset, pages)
            }

            fn set_size(&self, size: u64) -> Result<(), Error> {
                (**self).set_size(size)
            }
        }
    )+};
}

forward!(&D, Box<D>, Arc<D>);

/// The range of a call, before it is known to be a good one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    pub(crate) operation: Operation,
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

impl Range {
    pub(crate) fn new(operation: Operation, offset: u64, length: usize) -> Self {
        Self { operation, offset, length: length as u64 }
    }

    /// That the range lies inside of `device`.
    pub(crate) fn inside(self, device: &impl Device) -> Result<Self, Error> {
        let Self { operation, offset, length } = self;
        let size = device.size();
        match offset.checked_add(length) {
            Some(end) if end <= size => Ok(self),
            _ => {
                let device = device.name().into();
                Err(Error::OutOfRange { device, operation, offset, length, size })
            }
        }
    }

    /// That it is in whole blocks.
    pub(crate) fn in_blocks(self, device: &impl Device) -> Result<Self, Error> {
        let Self { operation, offset, length } = self;
        let block_size = device.block_size();
        if (offset | length) & u64::from(block_size - 1) == 0 {
            return Ok(self);
        }
        Err(Error::Misaligned {
            device: device.name().into(),
            operation,
            offset,
            length,
            block_size,
        })
    }

    /// The whole blocks inside of it: where they begin and end, in bytes.
    pub(crate) fn whole_blocks(self, block_size: u32) -> (u64, u64) {
        let unit = u64::from(block_size);
        let end = (self.offset + self.length) / unit * unit;
        (self.offset.next_multiple_of(unit).min(end), end)
    }
}
