//! A sparse device in memory, for tests, and for volumes that need not outlive the process.
//!
//! # Layout
//!
//! A tree of three levels leads to the pages, like a page table: 2048 directories of 2048 tables of
//! 1024 pages of 4 KiB, 16 TiB in all. A directory or table is created when the first page of it is
//! written, and stays; so a lookup takes no lock. Each page has a lock of its own, so calls on
//! different pages never exclude each other. A page gets its memory with the first write to it; a
//! discard frees the memory.
//!
//! # Durability
//!
//! None: flushing is free and always succeeds.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use vfscale_sync::RwLock;
use vfscale_sync::page::{PAGE_SIZE, PageBox, read_pages};

use crate::device::CallRange;
use crate::{Device, Discards, Error, Operation};

vfscale_sync::lock_class! {
    /// One page of a [`MemoryDevice`]; a leaf.
    pub(crate) MemoryPage = ("memory_page", 64900);
}

const PAGE_BYTES: usize = 4096;
const TABLE_PAGES: usize = 1024;
const DIRECTORY_TABLES: usize = 2048;
const DIRECTORIES: usize = 2048;
/// Largest size: 16 TiB.
const SIZE_MAX: u64 = (PAGE_BYTES * TABLE_PAGES * DIRECTORY_TABLES * DIRECTORIES) as u64;

type Page = RwLock<Option<Box<[u8; PAGE_BYTES]>>, MemoryPage>;
type Table = Box<[Page]>;
type Directory = Box<[OnceLock<Table>]>;

/// A sparse device in memory. See the [module](self).
///
/// Reads and writes hold the lock of one page at a time, and only while they copy; otherwise they
/// never block. A page that was never written costs nothing and reads as zeros.
pub struct MemoryDevice {
    name: Arc<str>,
    block_size: u32,
    size: AtomicU64,
    directories: Box<[OnceLock<Directory>]>,
}

impl MemoryDevice {
    /// Creates a device of `size` bytes, rounded down to whole blocks of 512 bytes, all of them
    /// zero.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for more than 16 TiB.
    pub fn new(size: u64) -> Result<Self, Error> {
        Self::with_block_size(size, 512)
    }

    /// Creates a device in blocks of `block_size` bytes.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for more than 16 TiB, and for blocks of neither 512 nor 4096 bytes.
    pub fn with_block_size(size: u64, block_size: u32) -> Result<Self, Error> {
        let (device, operation): (Arc<str>, _) = ("memory".into(), Operation::Open);
        if block_size != 512 && block_size != 4096 {
            let why = "blocks have 512 or 4096 bytes";
            return Err(Error::Unsupported { device, operation, why });
        }
        if size > SIZE_MAX {
            return Err(Error::Unsupported { device, operation, why: TOO_LARGE });
        }
        let size = AtomicU64::new(size - size % u64::from(block_size));
        Ok(Self { name: device, block_size, size, directories: empty(DIRECTORIES) })
    }

    /// Returns the memory that the pages take, in bytes. Visits all pages that were ever written.
    pub fn bytes_used(&self) -> u64 {
        let tables =
            self.directories.iter().filter_map(OnceLock::get).flatten().filter_map(OnceLock::get);
        let used = tables.flatten().filter(|page| page.read().is_some()).count();
        (used * PAGE_BYTES) as u64
    }

    /// Returns page number `number` if it was ever written; the caller has checked the range.
    fn page(&self, number: u64) -> Option<&Page> {
        let (directory, table, page) = indices(number);
        Some(&self.directories[directory].get()?[table].get()?[page])
    }

    fn page_to_write(&self, number: u64) -> &Page {
        let (directory, table, page) = indices(number);
        let directory = self.directories[directory].get_or_init(|| empty(DIRECTORY_TABLES));
        let table =
            directory[table].get_or_init(|| (0..TABLE_PAGES).map(|_| RwLock::new(None)).collect());
        &table[page]
    }
}

const TOO_LARGE: &str = "16 TiB at most";

fn empty<T>(count: usize) -> Box<[OnceLock<T>]> {
    (0..count).map(|_| OnceLock::new()).collect()
}

fn indices(number: u64) -> (usize, usize, usize) {
    let tables = number / TABLE_PAGES as u64;
    let part = |number: u64, count: usize| (number % count as u64) as usize;
    (
        part(tables / DIRECTORY_TABLES as u64, DIRECTORIES),
        part(tables, DIRECTORY_TABLES),
        part(number, TABLE_PAGES),
    )
}

/// Returns the numbers of the pages of a range, each with the bytes of it that are in the range.
fn pages(offset: u64, length: u64) -> impl Iterator<Item = (u64, std::ops::Range<usize>)> {
    let (unit, end) = (PAGE_BYTES as u64, offset + length);
    (offset / unit..end.div_ceil(unit)).filter(move |_| length > 0).map(move |number| {
        let start = number * unit;
        let from = offset.saturating_sub(start) as usize;
        (number, from..(end - start).min(unit) as usize)
    })
}

impl Device for MemoryDevice {
    fn name(&self) -> &str {
        &self.name
    }

    fn describe(&self) -> String {
        format!("memory ({} bytes in blocks of {})", self.size(), self.block_size)
    }

    fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    fn block_size(&self) -> u32 {
        self.block_size
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        CallRange::new(Operation::Read, offset, buf.len()).inside(self)?;
        let mut rest = buf;
        for (number, bytes) in pages(offset, rest.len() as u64) {
            let (part, behind) = rest.split_at_mut(bytes.len());
            match self.page(number).map(RwLock::read).as_deref() {
                Some(Some(page)) => part.copy_from_slice(&page[bytes]),
                _ => part.fill(0),
            }
            rest = behind;
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), Error> {
        CallRange::new(Operation::Write, offset, buf.len()).inside(self)?.in_blocks(self)?;
        let mut rest = buf;
        for (number, bytes) in pages(offset, rest.len() as u64) {
            let (part, behind) = rest.split_at(bytes.len());
            let mut page = self.page_to_write(number).write();
            page.get_or_insert_with(|| Box::new([0; PAGE_BYTES]))[bytes].copy_from_slice(part);
            rest = behind;
        }
        Ok(())
    }

    /// Copies the pages once. Holds the locks of one page at a time.
    fn write_pages(&self, offset: u64, pages: &[PageBox]) -> Result<(), Error> {
        let length = pages.len() * PAGE_SIZE;
        CallRange::new(Operation::Write, offset, length).inside(self)?.in_blocks(self)?;
        let mut done = 0;
        for (number, bytes) in self::pages(offset, length as u64) {
            let from = pages[done / PAGE_SIZE..].iter().map(|page| &**page);
            let mut page = self.page_to_write(number).write();
            let to = page.get_or_insert_with(|| Box::new([0; PAGE_BYTES]));
            done += read_pages(from, done % PAGE_SIZE, &mut to[bytes]);
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), Error> {
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), Error> {
        let range =
            CallRange { operation: Operation::Discard, offset, length: len }.inside(self)?;
        let (from, to) = range.whole_blocks(self.block_size);
        for (number, bytes) in pages(from, to - from) {
            // A page without memory is already zero.
            let Some(mut page) = self.page(number).map(RwLock::write) else { continue };
            if bytes.len() == PAGE_BYTES {
                *page = None;
            } else if let Some(page) = page.as_deref_mut() {
                page[bytes].fill(0);
            }
        }
        Ok(())
    }

    fn discards(&self) -> Option<Discards> {
        Some(Discards { granularity: PAGE_BYTES as u32, is_thin: true })
    }

    fn set_size(&self, size: u64) -> Result<(), Error> {
        CallRange { operation: Operation::Resize, offset: 0, length: size }.in_blocks(self)?;
        let why = match size {
            size if size > SIZE_MAX => TOO_LARGE,
            size if self.size.fetch_max(size, Ordering::AcqRel) > size => {
                "a device does not shrink"
            }
            _ => return Ok(()),
        };
        Err(Error::Unsupported { device: self.name.clone(), operation: Operation::Resize, why })
    }
}

impl fmt::Debug for MemoryDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryDevice")
            .field("size", &self.size())
            .field("block_size", &self.block_size)
            .field("bytes_used", &self.bytes_used())
            .finish()
    }
}

#[cfg(test)]
mod tests;
