//! Writing to pages in memory.

use std::ops::Deref;

use vfscale_sync::atomic::{Ordering, thread};
use vfscale_sync::page::{PAGE_SIZE, Page, PageBox};

use super::file::RegularFile;
use super::store::{Act, Event, Store};
use crate::base::fault::Fault;
use crate::page_cache::{
    BEHIND_PAGES, CHUNK_PAGES, FilePages, PAGE, PageCredit, offset_of, page_of, pages_of,
};

impl<S: Store, P: Deref<Target = FilePages>> RegularFile<S, P> {
    /// Writes at `offset`; the file grows if it ends before. Returns the number of bytes written:
    /// fewer than `buf` has if space ran out. Blocks for I/O, of pages that are written in part,
    /// and while too much is dirty. The caller holds the inode's lock.
    ///
    /// # Errors
    /// The errors of [`Store::may`], [`Fault::NoSpace`], and those of reading a page;
    /// nothing was written then.
    pub fn write(&self, offset: u64, buf: &[u8]) -> Result<usize, Fault> {
        self.store.may(Act::Extend)?;
        let written = self.write_parts(offset, buf);
        if self.pages.is_renewed() {
            if page_of(self.size()) < BEHIND_PAGES {
                self.store.tell(Event::Renewed(&self.pages));
            } else {
                self.pages.end_renewal();
            }
        }
        written
    }

    /// Writes in parts of up to one chunk of pages.
    fn write_parts(&self, offset: u64, buf: &[u8]) -> Result<usize, Fault> {
        if buf.is_empty() {
            return Ok(0);
        }
        self.dirty_inline()?;
        if offset > self.size() {
            self.dirty_end()?;
        }
        // Many pages together, with one reservation; page by page when space runs out.
        let (mut done, mut most) = (0, self.pages.cache.batch().min(CHUNK_PAGES));
        while done < buf.len() {
            if done > 0 {
                // A write of more than memory holds waits for its own first pages.
                self.set_dirty();
            }
            self.balance();
            let at = offset + done as u64;
            let pages = most.min(CHUNK_PAGES - page_of(at) % CHUNK_PAGES);
            let len = (offset_of(page_of(at) + pages) - at).min((buf.len() - done) as u64);
            match self.write_some(at, &buf[done..done + len as usize], false) {
                Ok(written) => done += written,
                Err(fault) if fault.is_refusal() && most > 1 => {
                    most = 1;
                    continue;
                }
                Err(fault) if done == 0 => return Err(fault),
                Err(_) => break,
            }
            // After the pages: a reader that sees the size finds the bytes, and write-back finds
            // them dirty.
            let end = offset + done as u64;
            if end > self.size() {
                self.pages.size.store(end, Ordering::Release);
            }
            self.write_behind_of(at, end);
        }
        self.set_dirty();
        Ok(done)
    }

    /// Notes that the bytes `from` to `end` were written. If a sequential writer has filled many
    /// pages, asks for their write-back, but not of the last one if more of it will be written.
    fn write_behind_of(&self, from: u64, end: u64) {
        let (write_end, behind_from) = (&self.pages.write_end, &self.pages.behind_from);
        if write_end.swap(end, Ordering::Relaxed) != from {
            behind_from.store(page_of(from), Ordering::Relaxed);
        }
        let (first, to) = (behind_from.load(Ordering::Relaxed), page_of(end));
        if to.saturating_sub(first) >= BEHIND_PAGES {
            behind_from.store(to, Ordering::Relaxed);
            self.store.tell(Event::Filled(first..to));
        }
    }

    /// Writes dirty files back while too much is dirty.
    fn balance(&self) {
        while self.pages.cache.is_too_dirty() && self.store.write_back_one() {}
    }

    /// Makes the page of a file that is stored in its inode dirty, so write-back finds a block for
    /// it when the file has grown.
    pub(super) fn dirty_inline(&self) -> Result<(), Fault> {
        if !self.store.is_inline() {
            return Ok(());
        }
        self.write_all(0, &[])
    }

    /// Prepares growth: if the file ends within a block that has bytes, makes that page dirty, with
    /// zeros behind the end.
    pub(super) fn dirty_end(&self) -> Result<(), Fault> {
        let size = self.size();
        if size.is_multiple_of(PAGE) || self.store.is_inline() {
            return Ok(());
        }
        self.write_where_bytes_are(page_of(size), 0, &[])
    }

    /// Writes to a page if it is in memory or has bytes on the device; other pages are zeros
    /// already.
    pub(super) fn write_where_bytes_are(
        &self,
        index: u64,
        within: usize,
        chunk: &[u8],
    ) -> Result<(), Fault> {
        if self.has_bytes(index)? {
            self.write_all(offset_of(index) + within as u64, chunk)?;
            self.set_dirty();
        }
        Ok(())
    }

    /// Returns whether a page is in memory, or has bytes on the device, in a block or in the inode.
    fn has_bytes(&self, index: u64) -> Result<bool, Fault> {
        Ok(self.pages.read().contains(index) || self.store.map(index)?.has_bytes())
    }

    /// Looks up which of `count` pages from `index` on have a block and which need one, except for
    /// those that are `backed`. Existing blocks are not freed, because the caller holds the inode's
    /// lock.
    fn blocks_of(&self, index: u64, count: u64, backed: u64) -> Result<(u64, u64), Fault> {
        let (mut mapped, mut granted, mut mapping_end, mut has_blocks) = (0, 0, 0, false);
        for page in (0..count).filter(|page| backed >> page & 1 == 0) {
            let at = index + page;
            if at >= mapping_end {
                let mapping = self.store.map(at)?;
                (has_blocks, mapping_end) =
                    (mapping.has_blocks(), at.saturating_add(mapping.blocks()));
            }
            *(if has_blocks { &mut mapped } else { &mut granted }) |= 1_u64 << page;
        }
        Ok((mapped, granted))
    }

    /// Writes to one page, and makes it dirty. Nothing has changed if this fails.
    fn write_all(&self, at: u64, bytes: &[u8]) -> Result<(), Fault> {
        let index = page_of(at);
        loop {
            let written = self.write_some(at, bytes, true)?;
            if written == bytes.len() && self.pages.read().is_unstable(index) {
                return Ok(());
            }
        }
    }

    /// Writes to pages of one chunk, and makes them dirty; with no bytes it makes one page dirty.
    /// Returns the number of bytes written: possibly none, if another thread has changed these
    /// pages in the meantime. Nothing has changed if this fails. With `is_urgent` it may use what
    /// is kept on the device for removals.
    fn write_some(&self, at: u64, bytes: &[u8], is_urgent: bool) -> Result<usize, Fault> {
        let (index, within) = (page_of(at), (at % PAGE) as usize);
        let is_within = offset_of(index) < self.size();
        if is_within && self.pages.read().overwrite(index, within, bytes) {
            return Ok(bytes.len());
        }
        let wanted = pages_of((within + bytes.len()) as u64).max(1);
        let credit = self.reserve(wanted.min(CHUNK_PAGES), is_urgent)?;
        let (count, backed) = {
            let mut pages = self.pages.write();
            if let Some((written, stable)) = pages.write(index, within, bytes) {
                drop(pages);
                credit.keep(stable);
                return Ok(written);
            }
            let backed = pages.marks(index).map_or(0, |marks| marks.mapped | marks.reserved);
            (pages.without_memory(index, wanted).max(1), backed >> (index % CHUNK_PAGES))
        };
        let bytes = &bytes[..bytes.len().min(count as usize * PAGE_SIZE - within)];
        // Looked up again in each of these calls: a page that was dirty before may have been
        // written back and dropped since.
        let (mapped, granted) = self.blocks_of(index, count, backed)?;
        let partial = self.read_partial_pages(at, bytes.len())?;
        let mut reserved = self.store.reserve(u64::from(granted.count_ones()))?;
        self.wait_for_room(count);
        let memory = fresh(count as usize, within, bytes, &partial);
        let put = {
            let mut pages = self.pages.write();
            let put = pages.put_dirty(index, memory, mapped, granted);
            if put.reserved > 0 {
                // Before a thread finds the marks, which takes them off and subtracts.
                self.pages.delayed.fetch_add(put.reserved, Ordering::Relaxed);
            }
            put
        };
        reserved.keep(put.reserved);
        credit.keep(put.stable);
        self.pages.join_clock();
        drop(reserved);
        self.pages.cache.return_pages(count - put.pages);
        Ok(bytes.len().min((put.count as usize * PAGE_SIZE).saturating_sub(within)))
    }

    /// Reserves storage on the device for pages. Writes dirty files back if there is too little,
    /// and then what that has changed: what was reserved for these comes back.
    fn reserve(&self, pages: u64, is_urgent: bool) -> Result<PageCredit<'_>, Fault> {
        loop {
            match self.pages.cache.reserve(pages, is_urgent) {
                Err(fault) if fault.is_refusal() => {
                    if !self.store.write_back_one() {
                        break;
                    }
                }
                reserved => return reserved,
            }
        }
        self.store.make_room()?;
        self.pages.cache.reserve(pages, is_urgent)
    }

    /// Reads the first and the last page of a write of `len` bytes at `at`, if it covers them in
    /// part and they have bytes already.
    fn read_partial_pages(&self, at: u64, len: usize) -> Result<PartialPages, Fault> {
        let end = at + len as u64;
        let (first, last) = (page_of(at), page_of(end));
        let mut partial = PartialPages::default();
        if !at.is_multiple_of(PAGE) || end < offset_of(first + 1) {
            partial.first = self.read_partial_page(first)?;
        }
        if last > first && !end.is_multiple_of(PAGE) {
            partial.last = self.read_partial_page(last)?;
        }
        Ok(partial)
    }

    fn read_partial_page(&self, index: u64) -> Result<PartialPage, Fault> {
        let has_bytes = self.has_bytes(index)?;
        if has_bytes { Ok(Some(self.read_page(index)?)) } else { Ok(None) }
    }

    /// Waits for room for `pages` pages. If memory is full of dirty pages, writes them back.
    fn wait_for_room(&self, pages: u64) {
        while !self.pages.cache.take_pages(pages) {
            if !self.store.write_back_one() {
                // Other threads are writing the dirty pages back, or are about to fill the room
                // that they have taken.
                thread::yield_now();
            }
        }
    }

    /// Grows the file to `size`, with a hole. The caller holds the inode's lock.
    pub(super) fn grow_to(&self, size: u64) -> Result<(), Fault> {
        self.dirty_end()?;
        self.pages.size.store(size, Ordering::Release);
        self.set_dirty();
        Ok(())
    }

    /// Sets the bytes from `start` to `end`, which are within one page, to zero.
    pub(super) fn zero_within(&self, start: u64, end: u64) -> Result<(), Fault> {
        if start >= end {
            return Ok(());
        }
        let index = page_of(start);
        let zeros = [0; PAGE_SIZE];
        let within = (start - offset_of(index)) as usize;
        self.write_where_bytes_are(index, within, &zeros[..(end - start) as usize])
    }
}

/// The old bytes of a page that is written to in part; none if they are zeros.
type PartialPage = Option<Box<[u8; PAGE_SIZE]>>;

/// The old contents of the first and the last page.
#[derive(Debug, Default)]
struct PartialPages {
    first: PartialPage,
    last: PartialPage,
}

/// Creates `count` pages with `bytes` from `within` on; `partial` has the bytes before and behind.
fn fresh(count: usize, within: usize, bytes: &[u8], partial: &PartialPages) -> Vec<PageBox> {
    let pages = Page::many_with(count, within, bytes);
    let end = within + bytes.len();
    if let (Some(page), Some(older)) = (pages.first(), &partial.first) {
        page.write(0, &older[..within]);
        let behind = end.min(PAGE_SIZE);
        page.write(behind, &older[behind..]);
    }
    if let (Some(page), Some(older)) = (pages.last(), &partial.last) {
        let behind = end % PAGE_SIZE;
        page.write(behind, &older[behind..]);
    }
    pages
}
