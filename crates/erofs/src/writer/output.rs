//! The file that is written: where things come to lie, and the bytes.

use std::fs::File;
use std::io;
use std::mem::offset_of;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use crate::format::{BLOCK, RawSuper, SLOT, SUPER_AT, checksum};

/// The bytes that wait in memory.
const BUFFER: usize = 1 << 20;

/// A file that grows. Most bytes are appended, and a directory is put where room was left for it.
///
/// Each append has a place of its own, and the bytes in memory begin and end with such a place. So
/// no later flush writes over what is already in the file.
pub(super) struct Output<'f> {
    file: &'f File,
    /// The end of what has a place.
    next: u64,
    /// Room that was left before a block, in one block.
    gap: Range<u64>,
    /// Where the bytes in memory begin.
    flushed: u64,
    buffer: Vec<u8>,
}

impl<'f> Output<'f> {
    /// Makes one whose first bytes up to `next` have a place.
    pub(super) fn new(file: &'f File, next: u64) -> Self {
        Self { file, next, gap: 0..0, flushed: 0, buffer: Vec::new() }
    }

    /// Returns the number of blocks.
    pub(super) fn blocks(&self) -> u64 {
        self.next.div_ceil(BLOCK)
    }

    /// Returns a place for an inode and what stands behind it: in one block, if `is_whole`.
    pub(super) fn place(&mut self, bytes: u64, is_whole: bool) -> u64 {
        let bytes = bytes.next_multiple_of(SLOT);
        if bytes <= self.gap.end - self.gap.start {
            let at = self.gap.start;
            self.gap.start += bytes;
            return at;
        }
        let crosses = self.next / BLOCK != (self.next + bytes - 1) / BLOCK;
        if is_whole && crosses {
            self.align();
        }
        let at = self.next;
        self.next += bytes;
        at
    }

    /// Returns the first of several blocks.
    pub(super) fn place_blocks(&mut self, count: u64) -> u64 {
        self.align();
        let first = self.next / BLOCK;
        self.next += count * BLOCK;
        first
    }

    /// Leaves the rest of a block to smaller inodes.
    fn align(&mut self) {
        let end = self.next.next_multiple_of(BLOCK);
        if end - self.next > self.gap.end - self.gap.start {
            self.gap = self.next..end;
        }
        self.next = end;
    }

    /// Writes bytes at a place.
    ///
    /// # Errors
    /// Errors of the file.
    pub(super) fn write(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        if at < self.flushed {
            return self.file.write_all_at(bytes, at);
        }
        if at + bytes.len() as u64 > self.flushed + 2 * BUFFER as u64 {
            self.flush()?;
        }
        if self.buffer.is_empty() {
            // Skipped bytes stay zeros: a hole of the file.
            self.flushed = at;
        }
        let from = (at - self.flushed) as usize;
        let end = from + bytes.len();
        if self.buffer.len() < end {
            self.buffer.resize(end, 0);
        }
        self.buffer[from..end].copy_from_slice(bytes);
        if self.buffer.len() > BUFFER { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.write_all_at(&self.buffer, self.flushed)?;
        self.flushed += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Writes what is in memory, and gives the file its size.
    ///
    /// # Errors
    /// Errors of the file.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        self.flush()?;
        self.file.set_len(self.blocks() * BLOCK)
    }

    /// Sums the first block, whose superblock has no checksum yet.
    ///
    /// # Errors
    /// Errors of the file.
    pub(super) fn seal(&mut self) -> io::Result<()> {
        let mut bytes = [0; (BLOCK - SUPER_AT) as usize];
        self.file.read_exact_at(&mut bytes, SUPER_AT)?;
        let at = SUPER_AT + offset_of!(RawSuper, checksum) as u64;
        self.file.write_all_at(&checksum(&bytes).to_le_bytes(), at)
    }
}
