//! Pieces of a request, as the file takes them.
//!
//! Direct I/O wants offsets, lengths and memory in multiples of a unit. A request that has them all
//! goes as it is; any other is cut into pieces with a copy of their own each (a *bounce buffer*),
//! which for a read covers the whole units around it. Writes are in whole blocks already, so only
//! their memory can be elsewhere. Pages have every alignment, and go by a list of where they are.

use vfscale_sync::page::{PAGE_SIZE, PageBox};

use crate::aligned::ALIGNMENT;
use crate::device::requests;
use crate::{AlignedBuf, Operation, OsError};

/// The most bytes of a copy.
const COPY_BYTES_MAX: usize = 1 << 20;
/// The most bytes of a system call, which takes less than 2 GiB.
const PIECE_BYTES_MAX: usize = 1 << 30;

/// What a file wants of a request: all of it in multiples of so many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Alignment {
    /// Addresses in memory.
    pub(super) memory: usize,
    /// Offsets and lengths.
    pub(super) offset: usize,
}

impl Alignment {
    /// That of buffered I/O.
    pub(super) const NONE: Self = Self { memory: 1, offset: 1 };

    /// That of direct I/O in blocks of `block_size` bytes, at addresses in multiples of `memory`;
    /// `None` if it wants more than a copy has.
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

/// The memory of a piece.
#[derive(Debug)]
enum Memory<'a> {
    Read(&'a mut [u8]),
    Write(&'a [u8]),
    /// The copy, where the caller's bytes begin in it, and where they belong.
    ReadCopy(AlignedBuf, usize, &'a mut [u8]),
    WriteCopy(AlignedBuf),
    Pages(Pages<'a>),
}

/// Pages that are read or written as they are.
#[derive(Debug)]
struct Pages<'a> {
    pages: &'a [PageBox],
    is_read: bool,
    /// The memory of what is still to be transferred.
    rest: Vec<libc::iovec>,
}

impl Pages<'_> {
    /// Names the memory from byte `done` on. What lies in one piece is named once.
    fn name_rest(&mut self, done: usize) {
        self.rest.clear();
        let (first, mut within) = (done / PAGE_SIZE, done % PAGE_SIZE);
        for page in &self.pages[first..] {
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

/// Bytes to transfer next.
#[derive(Debug)]
pub(super) enum Rest<'p> {
    Read(&'p mut [u8]),
    Write(&'p [u8]),
    /// The memory of pages. It is there as long as the piece.
    ReadPages(&'p [libc::iovec]),
    WritePages(&'p [libc::iovec]),
}

/// A part of a request, and how much of it is done.
#[derive(Debug)]
pub(super) struct Piece<'a> {
    memory: Memory<'a>,
    /// Where the transfer begins, with the unit around it.
    offset: u64,
    length: usize,
    done: usize,
    /// Transfers begin at multiples of it.
    unit: usize,
}

impl<'a> Piece<'a> {
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

    /// What kind of call it is part of.
    pub(super) fn operation(&self) -> Operation {
        match self.memory {
            Memory::Read(_) | Memory::ReadCopy(..) => Operation::Read,
            Memory::Write(_) | Memory::WriteCopy(_) => Operation::Write,
            Memory::Pages(Pages { is_read: true, .. }) => Operation::Read,
            Memory::Pages(Pages { is_read: false, .. }) => Operation::Write,
        }
    }

    /// What is still to be transferred, and where on the device.
    pub(super) fn rest(&mut self) -> (u64, Rest<'_>) {
        let done = self.done;
        let rest = match &mut self.memory {
            Memory::Read(bytes) => Rest::Read(&mut bytes[done..]),
            Memory::ReadCopy(copy, ..) => Rest::Read(&mut copy[done..]),
            Memory::Write(bytes) => Rest::Write(&bytes[done..]),
            Memory::WriteCopy(copy) => Rest::Write(&copy[done..]),
            Memory::Pages(Pages { is_read: true, rest, .. }) => Rest::ReadPages(rest),
            Memory::Pages(Pages { is_read: false, rest, .. }) => Rest::WritePages(rest),
        };
        (self.offset + done as u64, rest)
    }

    /// The range that is still to be transferred.
    pub(super) fn rest_range(&self) -> (u64, u64) {
        (self.offset + self.done as u64, (self.length - self.done) as u64)
    }

    /// Notes that `count` bytes more are transferred, and says whether that was all. What ends inside of
    /// a unit is done again from the unit's start.
    ///
    /// # Errors
    /// The transfer gets no further: the file has become shorter.
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

/// The pieces of a read or write of whole pages, which have any alignment that there is.
pub(super) fn page_pieces(
    alignment: Alignment,
    offset: u64,
    pages: &[PageBox],
    is_read: bool,
) -> impl Iterator<Item = Piece<'_>> {
    requests(offset, pages).map(move |(at, pages)| {
        let mut memory = Pages { pages, is_read, rest: Vec::new() };
        memory.name_rest(0);
        Piece::new(alignment, at, pages.len() * PAGE_SIZE, Memory::Pages(memory))
    })
}

/// The pieces of a read.
pub(super) fn read_pieces(
    alignment: Alignment,
    offset: u64,
    buf: &mut [u8],
) -> impl Iterator<Item = Piece<'_>> {
    let is_met = alignment.is_met(offset, buf);
    let (mut offset, mut rest) = (offset, buf);
    std::iter::from_fn(move || {
        let at = offset;
        // Copies end where units do, so that no unit is read twice.
        let most =
            if is_met { PIECE_BYTES_MAX } else { COPY_BYTES_MAX - at as usize % alignment.offset };
        let part = rest.split_off_mut(..most.min(rest.len())).filter(|part| !part.is_empty())?;
        offset += part.len() as u64;
        Some(if is_met {
            Piece::new(alignment, at, part.len(), Memory::Read(part))
        } else {
            Piece::read_copy(alignment, at, part)
        })
    })
}

/// The pieces of a write, which is in whole blocks.
pub(super) fn write_pieces(
    alignment: Alignment,
    offset: u64,
    bytes: &[u8],
) -> impl Iterator<Item = Piece<'_>> {
    let is_met = alignment.is_met(offset, bytes);
    let most = if is_met { PIECE_BYTES_MAX } else { COPY_BYTES_MAX };
    let starts = (offset..).step_by(most);
    starts.zip(bytes.chunks(most)).map(move |(at, part)| {
        let memory = if is_met { Memory::Write(part) } else { Memory::WriteCopy(part.into()) };
        Piece::new(alignment, at, part.len(), memory)
    })
}

#[cfg(test)]
mod tests;
