//! Image files and block devices.
//!
//! # I/O methods
//!
//! Direct I/O bypasses the page cache of the system: the volume has a cache of its own, and at a
//! flush the disk has already received the written data. If the file system of an image does not
//! support direct I/O (tmpfs), or the owner disables it, the page cache is used, which is equally
//! safe.
//!
//! A batch is submitted to the kernel through io_uring, up to 64 requests at a time
//! (`file/ring.rs`). A single request is one `pread` or `pwrite`: with a ring it would be one
//! system call as well, and needs a ring. Where io_uring is not permitted, as in many containers, a
//! batch is a loop of these. [`FileDevice::describe`](Device::describe) reports the chosen methods,
//! and why.
//!
//! # Durability
//!
//! A flush is `fdatasync`, which on files and block devices alike writes the data in the page cache
//! and makes the disk empty its own cache. When it fails, the system may have dropped data that it
//! could not write, and would report success the next time. So the failure is permanent: every
//! later flush of this device fails too.
//!
//! A created image is durable before it is returned, with its name in its directory.
//!
//! # Discards
//!
//! A discard punches a hole into an image, so the file system of the image gets the blocks back. An
//! image that is not sparse when [`Device::discards`] is first called counts as no thin device
//! ([`Discards::is_thin`]): its owner has allocated it so that no write fails for want of space. A
//! discard of a block device is `BLKDISCARD`, if the queue of the device has a limit for it.
//!
//! # Space of an image
//!
//! An image is sparse, so a write of a block that was never written fails when the file system of
//! the image is full ([`Error::Full`]). Reserving ranges has that file system allocate them, if it
//! can (`fallocate`); they read as zeros. A file system that copies on write may still be too full
//! for a write of them.
//!
//! # Exclusive access
//!
//! A device is opened for writing by one process; several processes may open it read-only. The lock
//! belongs to the open file, and so does the name of its holder: the kernel releases both when the
//! holder exits, for whatever reason (`file/lock.rs`). A block device is also claimed from the
//! system (`O_EXCL`), so that it can't be mounted while it is open; if it is already mounted, the
//! claim fails. The claim ends at a loop device, so the file below it is locked, too
//! (`file/backing.rs`): one image is open once, whatever the way to its bytes.
//!
//! # Locks
//!
//! `RingPool` for a moment, to take a ring; `DeviceSize` while a file grows. Neither is held while
//! a request waits.

use std::fmt;
use std::fs::File;
use std::io;
use std::mem::take;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::Errno;
use vfscale_sync::Mutex;
use vfscale_sync::page::{PAGE_SIZE, PageBox};

use crate::device::{CallRange, REQUEST_PAGES};
use crate::{Device, Discards, Error, Operation, OsError, PendingWrite};
use ring::{BatchFailure, BatchInFlight, DEPTH, Rings};
use segment::{
    Alignment, Segment, Transfer, page_segments, read_segments, shared_segments, write_segments,
};

mod backing;
mod direct_read;
mod discards;
mod lock;
mod mounted;
mod open;
mod ring;
mod segment;
mod sys;

pub use open::FileOptions;

vfscale_sync::lock_class! {
    /// Held while a file grows, so that a concurrent call can't shrink it.
    pub(crate) DeviceSize = ("device_size", 64850);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileKind {
    Image,
    BlockDevice,
}

/// An image file or a block device. See the [module](self).
///
/// Dropping it immediately releases it for other processes; it does not flush.
pub struct FileDevice {
    name: Arc<str>,
    file: File,
    /// The files below a block device, which are locked like it.
    below: Vec<File>,
    kind: FileKind,
    /// Opened read-only.
    read_only: bool,
    /// Released: no call reaches the device any more.
    released: AtomicBool,
    block_size: u32,
    size: AtomicU64,
    growing: Mutex<(), DeviceSize>,
    alignment: Alignment,
    rings: Option<Rings>,
    /// Number of batches that were submitted through a ring.
    batches: AtomicU64,
    /// The I/O methods of requests, in words.
    methods: String,
    /// The failure after which all flushes fail.
    lost: OnceLock<OsError>,
    /// How the file discards, as the first question has found.
    discards: OnceLock<Option<Discards>>,
    /// A discard has found that it is not supported.
    refuses_discards: AtomicBool,
}

impl FileDevice {
    /// Returns how many batches were submitted through io_uring.
    pub fn ring_batches(&self) -> u64 {
        self.batches.load(Ordering::Relaxed)
    }

    /// Releases the device for other processes although this value still exists: a program may drop
    /// the last reference to it only after a grace period. Later writes and flushes return
    /// [`Error::ReadOnly`], and later reads an error. The caller has ended all requests before. May
    /// be called again.
    pub fn release(&self) {
        self.released.store(true, Ordering::Release);
        self.unlock();
        // Releases the claim as well. If that fails, the claim ends when the value is dropped.
        for file in self.below.iter().chain([&self.file]) {
            let _ = sys::close_under(file);
        }
    }

    /// Tells other openers of the device that this process serves it as the mount with a device
    /// number, major and minor. From the end of that mount on they wait up to five seconds for the
    /// device, since `umount` returns before its server has closed the volume.
    ///
    /// # Errors
    /// Returns any error of the file system of the image.
    pub fn publish_mount(&self, device: (u32, u32)) -> io::Result<()> {
        self.below.iter().chain([&self.file]).try_for_each(|file| mounted::publish(file, device))
    }

    fn unlock(&self) {
        self.below.iter().chain([&self.file]).for_each(lock::unlock);
    }

    fn error(&self, call: CallRange, source: OsError) -> Error {
        let CallRange { operation, offset, length } = call;
        let device = self.name.clone();
        let is_full = matches!(source.code(), libc::ENOSPC | libc::EDQUOT);
        if is_full && self.kind == FileKind::Image {
            return Error::Full { device };
        }
        Error::Io { device, operation, offset, length, source }
    }

    fn whole(operation: Operation) -> CallRange {
        CallRange { operation, offset: 0, length: 0 }
    }

    fn is_read_only(&self) -> bool {
        self.read_only || self.released.load(Ordering::Relaxed)
    }

    fn check_writable(&self, operation: Operation) -> Result<(), Error> {
        if self.is_read_only() {
            return Err(Error::ReadOnly { device: self.name.clone(), operation });
        }
        Ok(())
    }

    fn check_read(&self, offset: u64, buf: &[u8]) -> Result<(), Error> {
        CallRange::new(Operation::Read, offset, buf.len()).inside(self)?;
        Ok(())
    }

    fn check_write(&self, offset: u64, buf: &[u8]) -> Result<(), Error> {
        self.check_writable(Operation::Write)?;
        CallRange::new(Operation::Write, offset, buf.len()).inside(self)?.in_blocks(self)?;
        Ok(())
    }

    /// Transfers segments one after the other, through an open file.
    fn transfer<'a>(
        &self,
        file: &File,
        segments: impl Iterator<Item = Segment<'a>>,
    ) -> Result<(), Error> {
        for mut segment in segments {
            loop {
                let advanced = match segment.rest() {
                    (offset, Transfer::Read(buf)) => rustix::io::pread(file, buf, offset),
                    (offset, Transfer::Write(buf)) => rustix::io::pwrite(file, buf, offset),
                    (offset, Transfer::ReadPages(rest)) => sys::read_pages(file, rest, offset),
                    (offset, Transfer::WritePages(rest)) => sys::write_pages(file, rest, offset),
                };
                let advanced = match advanced {
                    Err(rustix::io::Errno::INTR) => continue,
                    Err(error) => Err(OsError::new(error.raw_os_error())),
                    Ok(count) => segment.advance(count),
                };
                match advanced {
                    Ok(true) => break,
                    Ok(false) => {}
                    Err(error) => {
                        let (operation, (offset, length)) =
                            (segment.operation(), segment.rest_range());
                        return Err(self.error(CallRange { operation, offset, length }, error));
                    }
                }
            }
        }
        Ok(())
    }

    /// Transfers segments in parallel if a ring is available. Returns `None` if not, or if the ring
    /// broke; then the caller must transfer the segments by other means.
    fn transfer_batch<'a>(
        &self,
        segments: impl Iterator<Item = Segment<'a>>,
    ) -> Option<Result<(), Error>> {
        let rings = self.rings.as_ref()?;
        let mut ring = rings.take()?;
        let result = self.batch_result(ring.run(self.file.as_fd(), segments))?;
        rings.put(ring);
        self.batches.fetch_add(1, Ordering::Relaxed);
        Some(result)
    }

    /// Returns the result of a batch; `None` if the ring broke.
    fn batch_result(&self, result: Result<(), BatchFailure>) -> Option<Result<(), Error>> {
        match result {
            Err(BatchFailure::Ring) => None,
            Err(BatchFailure::Request { operation, offset, length, error }) => {
                Some(Err(self.error(CallRange { operation, offset, length }, error)))
            }
            Ok(()) => Some(Ok(())),
        }
    }

    /// Begins to write pages in parallel. Returns `None` if the device can't.
    fn begin_batch(&self, offset: u64, pages: &Arc<Vec<PageBox>>) -> Option<PendingWrite<'_>> {
        let call = CallRange::new(Operation::Write, offset, pages.len() * PAGE_SIZE);
        let is_valid = call.inside(self).and_then(|call| call.in_blocks(self)).is_ok();
        let is_batch = pages.len() > REQUEST_PAGES
            && pages.len() <= REQUEST_PAGES * DEPTH as usize
            && self.alignment != Alignment::NONE;
        let rings = self.rings.as_ref().filter(|_| is_valid && is_batch)?;
        let segments = shared_segments(self.alignment, offset, pages);
        let batch = BatchInFlight::begin(rings.take()?, self.file.as_fd(), segments);
        let pages = Arc::clone(pages);
        Some(PendingWrite::in_flight(move || {
            let (result, ring) = batch.wait();
            if let Some(ring) = ring {
                rings.put(ring);
                self.batches.fetch_add(1, Ordering::Relaxed);
            }
            let again =
                || self.transfer(&self.file, page_segments(self.alignment, offset, &pages, false));
            self.batch_result(result).unwrap_or_else(again)
        }))
    }

    /// Reads or writes pages. Through the page cache of the system the requests run one after the
    /// other: it copies the data in any case, and a ring would have other threads do it.
    fn transfer_pages(&self, call: CallRange, pages: &[PageBox]) -> Result<(), Error> {
        let is_read = call.operation == Operation::Read;
        let segments = || page_segments(self.alignment, call.offset, pages, is_read);
        let is_batch = pages.len() > REQUEST_PAGES && self.alignment != Alignment::NONE;
        if is_batch && let Some(result) = self.transfer_batch(segments()) {
            return result;
        }
        match self.transfer(&self.file, segments()) {
            Err(error) if is_read => {
                let (file, alignment) = self.reopen_direct(error)?;
                self.transfer(&file, page_segments(alignment, call.offset, pages, is_read))
            }
            done => done,
        }
    }

    /// Reads by one request after the other.
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        let Err(error) = self.transfer(&self.file, read_segments(self.alignment, offset, buf))
        else {
            return Ok(());
        };
        let (file, alignment) = self.reopen_direct(error)?;
        self.transfer(&file, read_segments(alignment, offset, buf))
    }

    fn grow(&self, size: u64) -> io::Result<bool> {
        let there = match self.kind {
            FileKind::Image => self.file.metadata()?.len(),
            FileKind::BlockDevice => sys::block_device_size(&self.file)?,
        };
        if size > there {
            if self.kind == FileKind::BlockDevice {
                return Ok(false);
            }
            self.file.set_len(size)?;
        }
        self.file.sync_all()?;
        Ok(true)
    }
}

impl Device for FileDevice {
    fn name(&self) -> &str {
        &self.name
    }

    fn describe(&self) -> String {
        let kind = match self.kind {
            FileKind::Image => "image file",
            FileKind::BlockDevice => "block device",
        };
        let access = if self.is_read_only() { ", read-only" } else { "" };
        let (name, size, block_size, methods) =
            (&self.name, self.size(), self.block_size, &self.methods);
        format!("{name}: {kind}{access}, {size} bytes in blocks of {block_size}, {methods}")
    }

    fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    fn block_size(&self) -> u32 {
        self.block_size
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        self.check_read(offset, buf)?;
        self.read(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), Error> {
        self.check_write(offset, buf)?;
        self.transfer(&self.file, write_segments(self.alignment, offset, buf))
    }

    fn flush(&self) -> Result<(), Error> {
        if self.read_only {
            return Ok(());
        }
        self.check_writable(Operation::Flush)?;
        let call = Self::whole(Operation::Flush);
        if let Some(lost) = self.lost.get() {
            return Err(self.error(call, *lost));
        }
        loop {
            match self.file.sync_data() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    return Err(self.error(call, *self.lost.get_or_init(|| (&error).into())));
                }
                // Two flushes may overlap, and the system may report the failure to the other one.
                Ok(()) => {
                    return self.lost.get().map_or(Ok(()), |lost| Err(self.error(call, *lost)));
                }
            }
        }
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), Error> {
        self.check_writable(Operation::Discard)?;
        let call = CallRange { operation: Operation::Discard, offset, length: len }.inside(self)?;
        let (start, end) = call.whole_blocks(self.block_size);
        if start == end {
            return Ok(());
        }
        let result = match self.kind {
            FileKind::Image => {
                let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                rustix::fs::fallocate(&self.file, how, start, end - start).map_err(Into::into)
            }
            FileKind::BlockDevice => sys::block_device_discard(&self.file, start, end - start),
        };
        match result {
            Err(error) if is_unsupported(&error) => {
                self.refuses_discards.store(true, Ordering::Relaxed);
                Ok(())
            }
            Err(error) => Err(self.error(call, (&error).into())),
            Ok(()) => Ok(()),
        }
    }

    /// Asks the file system of an image for its holes.
    fn data_from(&self, offset: u64) -> Option<Range<u64>> {
        let size = self.size();
        let rest = Some(offset..size).filter(|data| !data.is_empty());
        if self.kind == FileKind::BlockDevice {
            return rest;
        }
        match rustix::fs::seek(&self.file, SeekFrom::Data(offset)) {
            Ok(start) => {
                let end = rustix::fs::seek(&self.file, SeekFrom::Hole(start)).unwrap_or(size);
                Some(start..end.min(size)).filter(|data| !data.is_empty())
            }
            Err(Errno::NXIO) => None,
            Err(_) => rest,
        }
    }

    /// Has the file system of an image allocate the ranges.
    fn reserve_ranges(&self, ranges: &[Range<u64>]) -> Result<(), Error> {
        let operation = Operation::Reserve;
        self.check_writable(operation)?;
        if self.kind == FileKind::BlockDevice {
            return Ok(());
        }
        for Range { start: offset, end } in ranges.iter().cloned() {
            let length = end.saturating_sub(offset);
            let call = CallRange { operation, offset, length }.inside(self)?;
            let how = FallocateFlags::KEEP_SIZE;
            let allocate = || rustix::fs::fallocate(&self.file, how, offset, length);
            match rustix::io::retry_on_intr(allocate).map_err(io::Error::from) {
                Err(error) if is_unsupported(&error) => return Ok(()),
                Err(error) => return Err(self.error(call, (&error).into())),
                Ok(()) => {}
            }
        }
        Ok(())
    }

    fn discards(&self) -> Option<Discards> {
        if self.is_read_only() || self.refuses_discards.load(Ordering::Relaxed) {
            return None;
        }
        *self.discards.get_or_init(|| match self.kind {
            FileKind::Image => discards::of_image(&self.file),
            FileKind::BlockDevice => discards::of_block_device(&self.file),
        })
    }

    fn read_many(&self, reads: &mut [(u64, &mut [u8])]) -> Result<(), Error> {
        reads.iter().try_for_each(|(offset, buf)| self.check_read(*offset, buf))?;
        if reads.len() > 1 {
            let segments = reads.iter_mut();
            let segments = segments.flat_map(|(at, buf)| read_segments(self.alignment, *at, buf));
            match self.transfer_batch(segments) {
                // Reading each range alone shows which one can't be read.
                Some(Err(error)) if self.may_succeed_direct(&error) => {}
                Some(result) => return result,
                None => {}
            }
        }
        reads.iter_mut().try_for_each(|(at, buf)| self.read(*at, buf))
    }

    fn write_many(&self, writes: &[(u64, &[u8])]) -> Result<(), Error> {
        writes.iter().try_for_each(|(offset, buf)| self.check_write(*offset, buf))?;
        let segments =
            || writes.iter().flat_map(|(at, buf)| write_segments(self.alignment, *at, buf));
        if writes.len() > 1
            && let Some(result) = self.transfer_batch(segments())
        {
            return result;
        }
        self.transfer(&self.file, segments())
    }

    fn read_pages(&self, offset: u64, pages: &[PageBox]) -> Result<(), Error> {
        let call = CallRange::new(Operation::Read, offset, pages.len() * PAGE_SIZE);
        self.transfer_pages(call.inside(self)?.in_blocks(self)?, pages)
    }

    fn write_pages(&self, offset: u64, pages: &[PageBox]) -> Result<(), Error> {
        self.check_writable(Operation::Write)?;
        let call = CallRange::new(Operation::Write, offset, pages.len() * PAGE_SIZE);
        self.transfer_pages(call.inside(self)?.in_blocks(self)?, pages)
    }

    fn begin_write_pages<'d>(&'d self, offset: u64, pages: &Arc<Vec<PageBox>>) -> PendingWrite<'d> {
        if let Err(error) = self.check_writable(Operation::Write) {
            return PendingWrite::ended(Err(error));
        }
        let begun = self.begin_batch(offset, pages);
        begun.unwrap_or_else(|| PendingWrite::ended(self.write_pages(offset, pages)))
    }

    fn set_size(&self, size: u64) -> Result<(), Error> {
        let operation = Operation::Resize;
        self.check_writable(operation)?;
        let call = CallRange { operation, offset: 0, length: size }.in_blocks(self)?;
        let _growing = self.growing.lock();
        let unsupported =
            |why| Err(Error::Unsupported { device: self.name.clone(), operation, why });
        if size < self.size() {
            return unsupported("a device does not shrink");
        }
        match self.grow(size) {
            Ok(true) => {
                self.size.store(size, Ordering::Release);
                Ok(())
            }
            Ok(false) => unsupported("the block device is smaller"),
            Err(error) => Err(self.error(call, (&error).into())),
        }
    }
}

/// Returns whether an error means that a hint is not supported, or that a filter of system calls
/// forbids the call.
fn is_unsupported(error: &io::Error) -> bool {
    use libc::{EINVAL, ENOSYS, ENOTTY, EOPNOTSUPP, EPERM};
    let code = error.raw_os_error();
    matches!(code, Some(EOPNOTSUPP | ENOSYS | ENOTTY | EINVAL | EPERM))
}

impl Drop for FileDevice {
    fn drop(&mut self) {
        // The rings have no pending requests, but the kernel frees them asynchronously.
        drop(take(&mut self.rings));
        self.unlock();
    }
}

impl fmt::Debug for FileDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileDevice")
            .field("name", &self.name)
            .field("kind", &self.kind)
            .field("read_only", &self.is_read_only())
            .field("size", &self.size())
            .field("block_size", &self.block_size)
            .field("methods", &self.methods)
            .field("ring_batches", &self.ring_batches())
            .field("lost", &self.lost.get())
            .finish_non_exhaustive()
    }
}
