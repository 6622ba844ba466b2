//! An open branch as a device.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use vfscale_block::{Device, Discards, Error as DeviceError, Operation};

use crate::Error;
use crate::branch::registry::{Registry, close};
use crate::branch::{Inner, identity};
use crate::disk::format::PLACE_BYTES;
use crate::disk::record::BLOCKS_MAX;

/// An open branch: a device, with all promises of [`Device`].
///
/// A block is atomic as far as it is on the device of the pool. Blocks that were never written, or
/// were discarded, read as zeros. A write that finds no free place fails with
/// [`OsError::NO_SPACE`](vfscale_block::OsError::NO_SPACE), and has changed any part of its range.
///
/// [`close`](Self::close) it at the end. A branch that is dropped can be opened again, by the same
/// pool with all its writes, and after a crash with those that were flushed.
pub struct Branch {
    inner: Arc<Inner>,
    open: Arc<Registry>,
    name: String,
    is_closed: AtomicBool,
}

impl Branch {
    /// Makes the device of a branch that `open` has opened.
    pub(crate) fn new(inner: Arc<Inner>, open: &Arc<Registry>, name: &str) -> Self {
        let (open, name, is_closed) = (open.clone(), name.into(), AtomicBool::new(false));
        Self { inner, open, name, is_closed }
    }

    /// Makes all writes durable, and closes the branch: calls of this handle fail from now on, and
    /// the branch can be opened again. The next opening of the pool finds nothing to recover. No
    /// other call may run concurrently. Does nothing if the branch is closed.
    ///
    /// Blocks for the I/O: two flushes, or one if nothing has changed.
    ///
    /// # Errors
    /// Errors of the device, and [`Error::Failed`]; the branch is still open then.
    pub fn close(&self) -> Result<(), Error> {
        let mut branches = self.open.lock();
        if self.is_closed.load(Ordering::Acquire) {
            return Ok(());
        }
        match self.inner.handles.load(Ordering::Acquire) {
            1 => close(&mut branches, &self.name, 1)?,
            _ => _ = self.inner.handles.fetch_sub(1, Ordering::Release),
        }
        self.inner.end_reservations();
        self.is_closed.store(true, Ordering::Release);
        Ok(())
    }

    /// Makes all writes and discards durable, and the places free that the branch gave up.
    ///
    /// Blocks for the I/O: two flushes.
    ///
    /// # Errors
    /// Errors of the device, [`Error::Failed`] and [`Error::Closed`].
    pub fn checkpoint(&self) -> Result<(), Error> {
        self.inner()?.close()
    }

    /// Ends the use of this handle as dropping it does, with no I/O and no lock, although this
    /// value still exists: calls of it fail from now on, and the branch can be opened again. No
    /// other call may run concurrently.
    pub fn release(&self) {
        if !self.is_closed.swap(true, Ordering::AcqRel) {
            self.inner.end_reservations();
            self.inner.handles.fetch_sub(1, Ordering::Release);
        }
    }

    /// Returns the name that the branch had when it was opened.
    pub(crate) fn opened_as(&self) -> &str {
        &self.name
    }

    /// Returns whether the branch can only be read.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.inner.is_read_only()
    }

    /// Returns whether two branches have the same content in a range of blocks of 4096 bytes,
    /// because they share where it is stored. Blocks that differ in that may have equal contents
    /// nevertheless. Blocks beyond the end of one of the branches are not shared. Nobody may write
    /// the blocks during the call. Takes 16 bytes of memory for each.
    ///
    /// May block for the I/O: reads nodes of the maps.
    ///
    /// # Errors
    /// Errors of the device, [`Error::Damage`] and [`Error::Closed`].
    pub fn shares(&self, other: &Branch, blocks: Range<u64>) -> Result<bool, Error> {
        let (one, other) = (self.inner()?, other.inner()?);
        let end = one.blocks().min(other.blocks());
        let is_one_pool = Arc::ptr_eq(&one.shared, &other.shared);
        if !is_one_pool || blocks.end > end {
            return Ok(false);
        }
        one.shares(other, blocks)
    }

    /// Returns the blocks of 4096 bytes that two branches do not share, in order: all others have
    /// the same contents. `None` if one of them can be written, or they are in different pools.
    ///
    /// May block for the I/O: reads nodes of the maps, as many as lead to these blocks.
    ///
    /// # Errors
    /// Errors of the device, [`Error::Damage`] and [`Error::Closed`].
    pub fn differing(&self, other: &Branch) -> Result<Option<Vec<Range<u64>>>, Error> {
        let (one, other) = (self.inner()?, other.inner()?);
        let is_frozen = one.is_read_only() && other.is_read_only();
        let can_tell = is_frozen && Arc::ptr_eq(&one.shared, &other.shared);
        can_tell.then(|| one.differing(other)).transpose()
    }

    /// Returns where blocks of 4096 bytes are on the device of the pool: for each row of blocks
    /// whose places are in a row, its number of blocks and the first place; `None` for blocks that
    /// read as zeros. The places of a branch that can only be read keep their contents as long as
    /// it exists; any other must not be written during the call.
    ///
    /// May block for the I/O: reads nodes of the map.
    ///
    /// # Errors
    /// Errors of the device, [`Error::Damage`], also for a place outside of the pool, and
    /// [`Error::Closed`].
    pub fn places(&self, blocks: Range<u64>) -> Result<Vec<(u64, Option<u64>)>, Error> {
        self.inner()?.places(blocks)
    }

    /// Returns the size of the device of the pool, in places.
    #[must_use]
    pub fn pool_places(&self) -> u64 {
        self.inner.shared.disk.layout().places
    }

    /// Returns the id of the state that the branch goes on from, or, if it can only be read, of
    /// what it has: no other state of the pool gets the same one.
    #[must_use]
    pub fn state(&self) -> [u8; 16] {
        identity(self.inner.shared.disk.pool, self.inner.node()).unwrap_or_default()
    }

    fn inside(&self, operation: Operation, offset: u64, length: u64) -> Result<(), DeviceError> {
        if self.is_closed.load(Ordering::Acquire) {
            return Err(self.failed(operation, offset, length, Error::Closed));
        }
        let (device, size) = (self.inner.label().clone(), self.size());
        match offset.checked_add(length) {
            Some(end) if end <= size => Ok(()),
            _ => Err(DeviceError::OutOfRange { device, operation, offset, length, size }),
        }
    }

    /// Returns the branch, if it was not closed.
    pub(crate) fn inner(&self) -> Result<&Arc<Inner>, Error> {
        if self.is_closed.load(Ordering::Acquire) { Err(Error::Closed) } else { Ok(&self.inner) }
    }

    /// Checks the range of a write.
    pub(crate) fn check_write(&self, offset: u64, length: u64) -> Result<(), DeviceError> {
        self.inside(Operation::Write, offset, length)?;
        self.writable(Operation::Write)?;
        let (block_size, operation) = (self.block_size(), Operation::Write);
        if (offset | length).is_multiple_of(u64::from(block_size)) {
            return Ok(());
        }
        let device = self.inner.label().clone();
        Err(DeviceError::Misaligned { device, operation, offset, length, block_size })
    }

    fn writable(&self, operation: Operation) -> Result<(), DeviceError> {
        if self.inner.is_read_only() {
            return Err(DeviceError::ReadOnly { device: self.inner.label().clone(), operation });
        }
        Ok(())
    }

    /// Converts an error of the pool into one of a device. A pool below which storage is short
    /// names its image.
    fn failed(&self, operation: Operation, offset: u64, length: u64, error: Error) -> DeviceError {
        let shared = &self.inner.shared;
        let is_write = operation == Operation::Write;
        if is_write && error == Error::Full && shared.space.is_host_full() {
            return DeviceError::Full { device: shared.disk.device.name().into() };
        }
        let (device, source) = (self.inner.label().clone(), error.os_error());
        DeviceError::Io { device, operation, offset, length, source }
    }
}

impl Device for Branch {
    fn name(&self) -> &str {
        self.inner.label()
    }

    fn describe(&self) -> String {
        format!("branch {:?} of a pool on {}", self.name, self.inner.shared.disk.device.describe())
    }

    fn size(&self) -> u64 {
        self.inner.blocks() * PLACE_BYTES as u64
    }

    fn block_size(&self) -> u32 {
        self.inner.shared.disk.device.block_size()
    }

    /// Makes the branch larger, and the pool by twice as much, as far as its device can grow.
    fn set_size(&self, size: u64) -> Result<(), DeviceError> {
        self.inside(Operation::Resize, 0, 0)?;
        self.writable(Operation::Resize)?;
        let (blocks, operation) = (size / PLACE_BYTES as u64, Operation::Resize);
        let why = match blocks {
            _ if !size.is_multiple_of(PLACE_BYTES as u64) => "its size is in blocks of 4096 bytes",
            _ if size < self.size() => "a device does not shrink",
            blocks if blocks > BLOCKS_MAX => "a branch has 16 TiB at most",
            _ => {
                let shared = &self.inner.shared;
                let grown = shared.with_room(|| self.inner.grow(blocks));
                return grown.map_err(|error| self.failed(operation, 0, size, error));
            }
        };
        let device = self.inner.label().clone();
        Err(DeviceError::Unsupported { device, operation, why })
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        let length = buf.len() as u64;
        self.inside(Operation::Read, offset, length)?;
        let result = self.inner.read(offset, buf);
        result.map_err(|error| self.failed(Operation::Read, offset, length, error))
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), DeviceError> {
        let length = buf.len() as u64;
        self.check_write(offset, length)?;
        let result = self.inner.write(offset, buf);
        result.map_err(|error| self.failed(Operation::Write, offset, length, error))
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.inside(Operation::Flush, 0, 0)?;
        if self.inner.is_read_only() {
            return Ok(());
        }
        self.inner.flush().map_err(|error| self.failed(Operation::Flush, 0, 0, error))
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.inside(Operation::Discard, offset, len)?;
        self.writable(Operation::Discard)?;
        let unit = PLACE_BYTES as u64;
        let (first, end) = (offset.div_ceil(unit), (offset + len) / unit);
        let result = self.inner.discard(first..end.max(first));
        result.map_err(|error| self.failed(Operation::Discard, offset, len, error))
    }

    fn discards(&self) -> Option<Discards> {
        let granularity = PLACE_BYTES as u32;
        (!self.inner.is_read_only()).then_some(Discards { granularity, is_thin: true })
    }

    fn must_reserve(&self) -> bool {
        !self.inner.is_read_only()
    }

    fn room(&self) -> Option<u64> {
        let free = self.inner.shared.free_bytes();
        let left = self.inner.left().map_or(u64::MAX, |places| places * PLACE_BYTES as u64);
        self.must_reserve().then_some(free.min(left))
    }

    /// Reserves a place for each block, and one for each node of the map that leads to it.
    fn reserve(&self, blocks: u64, is_urgent: bool) -> Result<(), DeviceError> {
        self.inside(Operation::Write, 0, 0)?;
        self.writable(Operation::Write)?;
        let result = self.inner.reserve(blocks, is_urgent);
        result.map_err(|error| self.failed(Operation::Write, 0, 0, error))
    }

    fn unreserve(&self, blocks: u64) {
        if !self.is_closed.load(Ordering::Acquire) {
            self.inner.unreserve(blocks);
        }
    }

    fn renew(&self, blocks: u64, most: u64) -> u64 {
        if self.is_closed.load(Ordering::Acquire) { 0 } else { self.inner.renew(blocks, most) }
    }

    fn reserve_ranges(&self, ranges: &[Range<u64>]) -> Result<(), DeviceError> {
        for Range { start, end } in ranges {
            self.inside(Operation::Write, *start, end.saturating_sub(*start))?;
        }
        self.writable(Operation::Write)?;
        let result = self.inner.reserve_fixed(ranges);
        result.map_err(|error| self.failed(Operation::Write, 0, 0, error))
    }

    /// Returns an id made of those of the pool and of the branch. The branch retains it when others
    /// are forked from it. A rollback gives it a new one. A branch whose volume was there before
    /// the pool has none.
    fn identity(&self) -> Option<[u8; 16]> {
        self.inner.identity()
    }
}

impl fmt::Debug for Branch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl Drop for Branch {
    fn drop(&mut self) {
        if !*self.is_closed.get_mut() {
            self.inner.end_reservations();
            self.inner.handles.fetch_sub(1, Ordering::Release);
        }
    }
}
