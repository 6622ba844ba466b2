//! The segments of a request that are passed to the file.
//!
//! Direct I/O needs offsets, lengths and memory in multiples of a unit. A request that fulfils this
//! is passed on unchanged. Any other is cut into segments, each with a copy of its own (a *bounce
//! buffer*), which for a read covers the whole units around it. Writes are already in whole blocks,
//! so only their memory can be misaligned. Pages have every alignment, and are passed as a list of
//! addresses.

use std::ops::Range;
use std::sync::Arc;

use vfscale_sync::page::{PAGE_SIZE, PageBox};

use crate::aligned::ALIGNMENT;
use crate::device::requests;
use crate::{AlignedBuf, Operation, OsError};

/// Largest size of a copy, in bytes.
const COPY_BYTES_MAX: usize = 1 << 20;
/// Largest size of a segment, in bytes: a system call transfers less than 2 GiB.
const SEGMENT_BYTES_MAX: usize = 1 << 30;

/// The alignment that a file requires of a request, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Alignment {
    /// Alignment of addresses in memory.
    pub(super) memory: usize,
    /// Alignment of offsets and lengths.
    pub(super) offset: usize,
}

impl Alignment {
    /// Alignment of buffered I/O.
    pub(super) const NONE: Self = Self { memory: 1, offset: 1 };

    /// Returns the alignment of direct I/O in blocks of `block_size` bytes, at addresses in
    /// multiples of `memory`; `None` if it exceeds the alignment of a copy.
    pub(super) fn direct(memory: u32, block_size: u32) -> Option<Self> {
        let (memory, offset) = (memory.max(1) as usize, block_size as usize);
        let fits = |unit: usize| unit.is_power_of_two() && unit <= ALIGNMENT;
        (fits(memory) && fits(offset)).then_some(Self { memory, offset })
    }

    fn is_met(self, offset: u64, bytes: &[u8]) -> bool {
        offset.is_multiple_of(self.offset as u64)
            && bytes.len().is_multiple_of(self.offset)
            && bytes.as_ptr().addr().is_multiple_of(self.memory)
    }
}

/// The memory of a segment.
#[derive(Debug)]
enum Memory<'a> {
    Read(&'a mut [u8]),
    Write(&'a [u8]),
    /// The copy, the index of the caller's bytes in it, and the caller's buffer.
    ReadCopy(AlignedBuf, usize, &'a mut [u8]),
    WriteCopy(AlignedBuf),
    Pages(Pages<'a>),
}

/// The owner of the pages of a segment.
#[derive(Debug)]
enum PageSource<'a> {
    Caller(&'a [PageBox]),
    /// These pages of a list that the segment shares with others.
    Shared(Arc<Vec<PageBox>>, Range<usize>),
}

impl PageSource<'_> {
    fn pages(&self) -> &[PageBox] {
        match self {
            Self::Caller(pages) => pages,
            Self::Shared(all, range) => &all[range.clone()],
        }
    }
}

/// Pages that are read or written without a copy.
#[derive(Debug)]
struct Pages<'a> {
    pages: PageSource<'a>,
    is_read: bool,
    /// Memory that is still to be transferred.
    rest: Vec<libc::iovec>,
}

impl Pages<'_> {
    /// Lists the memory from byte `done` on. Contiguous memory gets one entry.
    fn name_rest(&mut self, done: usize) {
        self.rest.clear();
        let (first, mut within) = (done / PAGE_SIZE, done % PAGE_SIZE);
        for page in &self.pages.pages()[first..] {
            let (begin, len) = (page.as_ptr().wrapping_add(within), PAGE_SIZE - within);
            within = 0;
            match self.rest.last_mut() {
                Some(last) if last.iov_base.cast::<u8>().wrapping_add(last.iov_len) == begin => {
                    last.iov_len += len;
                }
                _ => self.rest.push(libc::iovec { iov_base: begin.cast(), iov_len: len }),
            }
        }
    }
}

/// The bytes to transfer next.
#[derive(Debug)]
pub(super) enum Transfer<'p> {
    Read(&'p mut [u8]),
    Write(&'p [u8]),
    /// Memory of pages. Valid as long as the segment.
    ReadPages(&'p [libc::iovec]),
    WritePages(&'p [libc::iovec]),
}

/// A part of a request, with its progress.
#[derive(Debug)]
pub(super) struct Segment<'a> {
    memory: Memory<'a>,
    /// Start of the transfer on the device, including the unit around it.
    offset: u64,
    length: usize,
    done: usize,
    /// Unit at whose multiples transfers begin.
    unit: usize,
}

impl<'a> Segment<'a> {
    fn new(alignment: Alignment, offset: u64, length: usize, memory: Memory<'a>) -> Self {
        Self { memory, offset, length, done: 0, unit: alignment.offset }
    }

    fn read_copy(alignment: Alignment, offset: u64, user: &'a mut [u8]) -> Self {
        let unit = alignment.offset;
        let skip = (offset % unit as u64) as usize;
        let length = (skip + user.len()).next_multiple_of(unit);
        let copy = AlignedBuf::zeroed(length);
        let memory = Memory::ReadCopy(copy, skip, user);
        Self::new(alignment, offset - skip as u64, length, memory)
    }

    /// Returns the kind of the call that it is a part of.
    pub(super) fn operation(&self) -> Operation {
        match self.memory {
            Memory::Read(_) | Memory::ReadCopy(..) => Operation::Read,
            Memory::Write(_) | Memory::WriteCopy(_) => Operation::Write,
            Memory::Pages(Pages { is_read: true, .. }) => Operation::Read,
            Memory::Pages(Pages { is_read: false, .. }) => Operation::Write,
        }
    }

    /// Returns the bytes that are still to be transferred, with their offset on the device.
    pub(super) fn rest(&mut self) -> (u64, Transfer<'_>) {
        let done = self.done;
        let rest = match &mut self.memory {
            Memory::Read(bytes) => Transfer::Read(&mut bytes[done..]),
            Memory::ReadCopy(copy, ..) => Transfer::Read(&mut copy[done..]),
            Memory::Write(bytes) => Transfer::Write(&bytes[done..]),
            Memory::WriteCopy(copy) => Transfer::Write(&copy[done..]),
            Memory::Pages(Pages { is_read: true, rest, .. }) => Transfer::ReadPages(rest),
            Memory::Pages(Pages { is_read: false, rest, .. }) => Transfer::WritePages(rest),
        };
        (self.offset + done as u64, rest)
    }

    /// Returns the range that is still to be transferred.
    pub(super) fn rest_range(&self) -> (u64, u64) {
        (self.offset + self.done as u64, (self.length - self.done) as u64)
    }

    /// Notes that `count` more bytes are transferred, and returns whether the segment is complete.
    /// A transfer that ends inside of a unit continues from the unit's start.
    ///
    /// # Errors
    /// [`OsError::IO`] if the transfer does not advance: the file has become shorter.
    pub(super) fn advance(&mut self, count: usize) -> Result<bool, OsError> {
        let before = self.done;
        self.done = (before + count).min(self.length);
        if self.done == self.length {
            if let Memory::ReadCopy(copy, skip, user) = &mut self.memory {
                user.copy_from_slice(&copy[*skip..][..user.len()]);
            }
            return Ok(true);
        }
        self.done -= self.done % self.unit;
        if let Memory::Pages(pages) = &mut self.memory {
            pages.name_rest(self.done);
        }
        if self.done > before { Ok(false) } else { Err(OsError::IO) }
    }
}

/// Returns the segments of a read or write of whole pages, which have every alignment.
pub(super) fn page_segments(
    alignment: Alignment,
    offset: u64,
    pages: &[PageBox],
    is_read: bool,
) -> impl Iterator<Item = Segment<'_>> {
    requests(offset, pages).map(move |(at, pages)| {
        let mut memory = Pages { pages: PageSource::Caller(pages), is_read, rest: Vec::new() };
        memory.name_rest(0);
        Segment::new(alignment, at, pages.len() * PAGE_SIZE, Memory::Pages(memory))
    })
}

/// Returns the segments of a write of whole pages, each of which shares the pages with its caller.
pub(super) fn shared_segments(
    alignment: Alignment,
    offset: u64,
    pages: &Arc<Vec<PageBox>>,
) -> impl Iterator<Item = Segment<'static>> {
    requests(offset, pages).map(move |(at, part)| {
        let first = ((at - offset) / PAGE_SIZE as u64) as usize;
        let source = PageSource::Shared(Arc::clone(pages), first..first + part.len());
        let mut memory = Pages { pages: source, is_read: false, rest: Vec::new() };
        memory.name_rest(0);
        Segment::new(alignment, at, part.len() * PAGE_SIZE, Memory::Pages(memory))
    })
}

/// Returns the segments of a read.
pub(super) fn read_segments(
    alignment: Alignment,
    offset: u64,
    buf: &mut [u8],
) -> impl Iterator<Item = Segment<'_>> {
    let is_met = alignment.is_met(offset, buf);
    let (mut offset, mut rest) = (offset, buf);
    std::iter::from_fn(move || {
        let at = offset;
        // Copies end at unit boundaries, so that no unit is read twice.
        let most = if is_met {
            SEGMENT_BYTES_MAX
        } else {
            COPY_BYTES_MAX - at as usize % alignment.offset
        };
        let part = rest.split_off_mut(..most.min(rest.len())).filter(|part| !part.is_empty())?;
        offset += part.len() as u64;
        Some(if is_met {
            Segment::new(alignment, at, part.len(), Memory::Read(part))
        } else {
            Segment::read_copy(alignment, at, part)
        })
    })
}

/// Returns the segments of a write, which is in whole blocks.
pub(super) fn write_segments(
    alignment: Alignment,
    offset: u64,
    bytes: &[u8],
) -> impl Iterator<Item = Segment<'_>> {
    let is_met = alignment.is_met(offset, bytes);
    let most = if is_met { SEGMENT_BYTES_MAX } else { COPY_BYTES_MAX };
    let starts = (offset..).step_by(most);
    starts.zip(bytes.chunks(most)).map(move |(at, part)| {
        let memory = if is_met { Memory::Write(part) } else { Memory::WriteCopy(part.into()) };
        Segment::new(alignment, at, part.len(), memory)
    })
}

#[cfg(test)]
mod tests;
