//! The device trait, and the checks that every device makes first.

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

use vfscale_sync::page::{PAGE_SIZE, PageBox, read_pages, write_pages};

use crate::{Error, Operation, PendingWrite};

/// Largest number of pages of a request: a megabyte.
pub(crate) const REQUEST_PAGES: usize = (1 << 20) / PAGE_SIZE;

/// Fills whole pages through a copy of each request, for a device that can't read into pages.
///
/// # Errors
/// Errors of [`Device::read_at`].
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

/// Returns the requests for pages from `offset` on, each with its offset.
pub(crate) fn requests(offset: u64, pages: &[PageBox]) -> impl Iterator<Item = (u64, &[PageBox])> {
    let starts = (offset..).step_by(REQUEST_PAGES * PAGE_SIZE);
    starts.zip(pages.chunks(REQUEST_PAGES))
}

/// How a device discards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Discards {
    /// The smallest aligned range that can be discarded, in bytes; at least a block.
    pub granularity: u32,
    /// Whether the device is thinly provisioned: others get the space of what is discarded, as with
    /// a sparse image.
    pub is_thin: bool,
}

/// A block device: addressable bytes that are written in blocks, and durable when flushed.
///
/// The crate's page lists the promises of all devices. Methods take `&self` and may be called by
/// many threads concurrently. `Arc<dyn Device>` is the usual way to share a device, and is a device
/// itself.
///
/// Callers must order calls on ranges that overlap if one of the calls writes. Without such an
/// order, each block contains the data of one of the writes, and a read may see some blocks before
/// and some after.
pub trait Device: Send + Sync + fmt::Debug {
    /// Returns the device below, which answers what this one leaves to it: all methods but those of
    /// reads, writes, flushes and discards. Batches and pages are single reads and writes of this
    /// device, so none of them goes past it. `None` for a device with storage of its own.
    fn below(&self) -> Option<&dyn Device> {
        None
    }

    /// Returns the name for error messages: a path, if the device has one.
    fn name(&self) -> &str {
        self.below().map_or("unnamed device", Device::name)
    }

    /// Describes the device and its I/O methods, in one line for people.
    fn describe(&self) -> String {
        format!("{} ({} bytes)", self.name(), self.size())
    }

    /// Returns the size in bytes, a multiple of the block size. It changes only by
    /// [`set_size`](Self::set_size).
    fn size(&self) -> u64;

    /// Returns the smallest unit of a write in bytes: 512 or 4096. A write of one block, at a
    /// multiple of the block size, is atomic: after any failure the block contains the old bytes or
    /// the new ones.
    fn block_size(&self) -> u32;

    /// Fills `buf` with the bytes from `offset` on, all of them or with an error. Any range may be
    /// read, aligned or not; the alignment of `buf` affects only the speed. Bytes that were never
    /// written read as zeros on a new image; on other devices they are undefined.
    ///
    /// Blocks for the I/O.
    ///
    /// # Errors
    /// [`Error::OutOfRange`], or [`Error::Io`]; then the contents of `buf` are undefined.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error>;

    /// Writes `buf` at `offset`; both the offset and the length are whole blocks. Later reads see
    /// the data. A crash may lose it, or any of its blocks, until a [`flush`](Self::flush) has
    /// returned that began after the write had returned.
    ///
    /// Blocks for the I/O.
    ///
    /// # Errors
    /// [`Error::OutOfRange`], [`Error::Misaligned`] and [`Error::ReadOnly`]: nothing was changed.
    /// [`Error::Io`]: each block of the range is old, new or, if it can't be read any more, lost.
    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), Error>;

    /// Makes all writes and discards durable that had returned before the call. Writes that run
    /// concurrently may or may not be included.
    ///
    /// Blocks for the I/O.
    ///
    /// # Errors
    /// [`Error::Io`]: writes since the last successful flush may be lost. If flushing again can't
    /// repair that, the device fails all later flushes as well.
    fn flush(&self) -> Result<(), Error>;

    /// Tells the device that `len` bytes from `offset` on are no longer needed; their contents are
    /// undefined until they are written again. This is a hint: blocks that are only partly in the
    /// range are not changed, and a device that can't discard does nothing.
    ///
    /// May block for the I/O.
    ///
    /// # Errors
    /// [`Error::OutOfRange`], [`Error::ReadOnly`], or [`Error::Io`].
    fn discard(&self, offset: u64, len: u64) -> Result<(), Error>;

    /// Returns how the device discards; `None` if it does nothing. The answer may change when a
    /// discard has found that the storage below can't do it.
    fn discards(&self) -> Option<Discards> {
        self.below()?.discards()
    }

    /// Returns the first range from `offset` on that may have other bytes than zeros, as far as
    /// that is known without reading: all of it, unless the storage has holes. `None` if there is
    /// no such byte up to the end. Nobody may write meanwhile what is asked for.
    fn data_from(&self, offset: u64) -> Option<Range<u64>> {
        match self.below() {
            Some(below) => below.data_from(offset),
            None => Some(offset..self.size()).filter(|data| !data.is_empty()),
        }
    }

    /// Returns an id that no other device has had, if the device began as a copy of another one and
    /// both are stored on one device below: the storage that one of the copies gives up may show
    /// its contents to the other one. `None` for all other devices.
    fn identity(&self) -> Option<[u8; 16]> {
        self.below()?.identity()
    }

    /// Returns whether a write may fail because storage is short, unless its blocks are
    /// [reserved](Self::reserve). Constant, unless something else was put below while nobody
    /// writes.
    fn must_reserve(&self) -> bool {
        self.below().is_some_and(Device::must_reserve)
    }

    /// Returns how many bytes can still be reserved, about: others may have them before. `None` if
    /// all blocks of the device can be written. Does not block.
    fn room(&self) -> Option<u64> {
        self.below()?.room()
    }

    /// Reserves storage for `blocks` blocks of 4096 bytes, wherever they lie and whatever is
    /// written there now: until they are [given back](Self::unreserve), writes of as many blocks
    /// don't fail for lack of storage. With `is_urgent` also from a part that is kept for users
    /// that must not be refused. A device that needs no reservations does nothing.
    ///
    /// May block for the I/O.
    ///
    /// # Errors
    /// [`Error::Io`] with [`OsError::NO_SPACE`](crate::OsError::NO_SPACE): too little is left, and
    /// nothing was reserved; with [`OsError::LIMIT`](crate::OsError::LIMIT): the device may have no
    /// more of it. [`Error::Io`] of others.
    fn reserve(&self, blocks: u64, is_urgent: bool) -> Result<(), Error> {
        self.below().map_or(Ok(()), |below| below.reserve(blocks, is_urgent))
    }

    /// Gives back `blocks` blocks that were reserved, after they were written or when they will not
    /// be. Does not block.
    fn unreserve(&self, blocks: u64) {
        if let Some(below) = self.below() {
            below.unreserve(blocks);
        }
    }

    /// Gives back `blocks` blocks that were reserved, as [`unreserve`](Self::unreserve) does, but
    /// up to `most` of them stay reserved, if there is storage for them that no write has used.
    /// Returns how many stay. No other user of the storage gets them in between. Does not block.
    fn renew(&self, blocks: u64, most: u64) -> u64 {
        self.below().map_or(most.min(blocks), |below| below.renew(blocks, most))
    }

    /// Reserves storage for the whole blocks of 4096 bytes in these ranges of bytes, until the
    /// device is closed: writes of them don't fail for lack of storage, however often they are
    /// written. A block that has storage of its own takes no more. A second call does nothing. An
    /// image keeps the storage after it was closed.
    ///
    /// May block for the I/O.
    ///
    /// # Errors
    /// As [`reserve`](Self::reserve), and [`Error::Full`].
    fn reserve_ranges(&self, ranges: &[Range<u64>]) -> Result<(), Error> {
        self.below().map_or(Ok(()), |below| below.reserve_ranges(ranges))
    }

    /// Reads several ranges, given as `(offset, buffer)`, in parallel if the device can.
    ///
    /// # Errors
    /// Errors of [`read_at`](Self::read_at) for one of the ranges that failed; then the contents of
    /// all buffers are undefined.
    fn read_many(&self, reads: &mut [(u64, &mut [u8])]) -> Result<(), Error> {
        reads.iter_mut().try_for_each(|(offset, buf)| self.read_at(*offset, buf))
    }

    /// Writes several ranges, given as `(offset, bytes)`, in parallel if the device can, and in any
    /// order: the ranges of one call do not overlap. None of it is durable before a flush.
    ///
    /// # Errors
    /// Errors of [`write_at`](Self::write_at) for one of the ranges that failed; any other range
    /// may have been written.
    fn write_many(&self, writes: &[(u64, &[u8])]) -> Result<(), Error> {
        writes.iter().try_for_each(|(offset, buf)| self.write_at(*offset, buf))
    }

    /// Fills whole, consecutive pages with the bytes from `offset` on, which is in whole blocks.
    /// Other threads may read the pages during the call, and see any mixture.
    ///
    /// Blocks for the I/O.
    ///
    /// # Errors
    /// Errors of [`read_at`](Self::read_at); then the contents of the pages are undefined.
    fn read_pages(&self, offset: u64, pages: &[PageBox]) -> Result<(), Error> {
        read_pages_by_copy(self, offset, pages)
    }

    /// Writes whole, consecutive pages to `offset`, which is in whole blocks: several requests of
    /// up to a megabyte in parallel if the device can, as in [`write_many`](Self::write_many). The
    /// pages must not change during the call; a device with checksums might fail otherwise.
    ///
    /// Blocks for the I/O.
    ///
    /// # Errors
    /// Errors of [`write_at`](Self::write_at); any of the pages may have been written.
    fn write_pages(&self, offset: u64, pages: &[PageBox]) -> Result<(), Error> {
        let mut copy = Vec::new();
        for (at, pages) in requests(offset, pages) {
            copy.resize(pages.len() * PAGE_SIZE, 0);
            read_pages(pages.iter().map(|page| &**page), 0, &mut copy);
            self.write_at(at, &copy)?;
        }
        Ok(())
    }

    /// Begins to write pages as [`write_pages`](Self::write_pages) does, and returns while the
    /// requests are in flight if the device can: then the caller may begin the next write, so the
    /// device always has something to do. The device shares the pages until the write has been
    /// waited for or dropped. None of it has been written, as far as a later
    /// [`flush`](Self::flush) promises, before [`PendingWrite::wait`] has returned.
    ///
    /// May block for the I/O.
    fn begin_write_pages<'d>(&'d self, offset: u64, pages: &Arc<Vec<PageBox>>) -> PendingWrite<'d> {
        PendingWrite::ended(self.write_pages(offset, pages))
    }

    /// Enlarges the device. On an image the new bytes read as zeros. The new size is durable when
    /// this returns.
    ///
    /// Blocks for the I/O.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the device has a fixed size, or would have to shrink;
    /// [`Error::Misaligned`]; [`Error::Io`].
    fn set_size(&self, size: u64) -> Result<(), Error> {
        if let Some(below) = self.below() {
            return below.set_size(size);
        }
        let (device, operation) = (self.name().into(), Operation::Resize);
        Err(Error::Unsupported { device, operation, why: "this device has a fixed size" })
    }
}

/// Implements calls by those of the device to which `self` points.
macro_rules! pass_on {
    ($(fn $call:ident(&self $(, $arg:ident: $type:ty)*) $(-> $result:ty)?;)+) => {
        $(fn $call(&self $(, $arg: $type)*) $(-> $result)? {
            (**self).$call($($arg),*)
        })+
    };
}

/// A pointer to a device is one: it passes every call on, as `&`, `Box` and `Arc` do. So a device
/// that changes no call is a [`Deref`] to the one below. A device that changes some has
/// [`Device::below`].
impl<P> Device for P
where
    P: Deref<Target: Device> + Send + Sync + fmt::Debug,
{
    pass_on! {
        fn below(&self) -> Option<&dyn Device>;
        fn name(&self) -> &str;
        fn describe(&self) -> String;
        fn size(&self) -> u64;
        fn block_size(&self) -> u32;
        fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error>;
        fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), Error>;
        fn flush(&self) -> Result<(), Error>;
        fn discard(&self, offset: u64, len: u64) -> Result<(), Error>;
        fn discards(&self) -> Option<Discards>;
        fn data_from(&self, offset: u64) -> Option<Range<u64>>;
        fn identity(&self) -> Option<[u8; 16]>;
        fn must_reserve(&self) -> bool;
        fn room(&self) -> Option<u64>;
        fn reserve(&self, blocks: u64, is_urgent: bool) -> Result<(), Error>;
        fn unreserve(&self, blocks: u64);
        fn renew(&self, blocks: u64, most: u64) -> u64;
        fn reserve_ranges(&self, ranges: &[Range<u64>]) -> Result<(), Error>;
        fn read_many(&self, reads: &mut [(u64, &mut [u8])]) -> Result<(), Error>;
        fn write_many(&self, writes: &[(u64, &[u8])]) -> Result<(), Error>;
        fn read_pages(&self, offset: u64, pages: &[PageBox]) -> Result<(), Error>;
        fn write_pages(&self, offset: u64, pages: &[PageBox]) -> Result<(), Error>;
        fn set_size(&self, size: u64) -> Result<(), Error>;
    }

    fn begin_write_pages<'d>(&'d self, offset: u64, pages: &Arc<Vec<PageBox>>) -> PendingWrite<'d> {
        (**self).begin_write_pages(offset, pages)
    }
}

/// The range of a call, and the checks that a device makes first.
#[derive(Clone, Copy, Debug)]
pub struct CallRange {
    /// The call.
    pub operation: Operation,
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
}

impl CallRange {
    /// Creates the range of a call with a buffer of `length` bytes.
    pub fn new(operation: Operation, offset: u64, length: usize) -> Self {
        Self { operation, offset, length: length as u64 }
    }

    /// Checks that the range is inside of `device`.
    ///
    /// # Errors
    /// [`Error::OutOfRange`].
    pub fn inside(self, device: &impl Device) -> Result<Self, Error> {
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

    /// Checks that the range is in whole blocks.
    ///
    /// # Errors
    /// [`Error::Misaligned`].
    pub fn in_blocks(self, device: &impl Device) -> Result<Self, Error> {
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

    /// Returns the start and end of the whole blocks inside of the range, in bytes.
    pub fn whole_blocks(self, block_size: u32) -> (u64, u64) {
        let unit = u64::from(block_size);
        let end = (self.offset + self.length) / unit * unit;
        (self.offset.next_multiple_of(unit).min(end), end)
    }
}
