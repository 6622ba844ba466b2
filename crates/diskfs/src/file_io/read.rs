//! Reading, and reading ahead.

use std::ops::Deref;

use vfscale_sync::atomic::Ordering;
use vfscale_sync::page::{PAGE_SIZE, Page, PageBox, read_pages};

use super::file::RegularFile;
use super::store::{Event, Store};
use crate::base::fault::Fault;
use crate::page_cache::{
    FilePages, Mapping, PAGE, PageCache, READ_PAGES_MAX, offset_of, page_of, pages_of,
};

/// The number of pages that are read ahead when a reader first continues where it stopped.
const AHEAD_MIN: u32 = 16;
/// The most pages that are read ahead of a sequential reader: four megabytes.
const AHEAD_MAX: u32 = 4 * READ_PAGES_MAX as u32;

/// The most pages that may be requested beyond a reader when more are: a window, whose end is that
/// of a megabyte.
const AHEAD_REQUESTED_MAX: u64 = AHEAD_MAX as u64 + READ_PAGES_MAX;

/// The result of a fill.
enum Filled {
    /// The number of bytes in the buffer: 0 if another thread has filled the first page.
    Bytes(usize),
    /// Nothing is on the device, for this many pages.
    Zeros(u64),
}

/// Room for pages; dropping this returns the part that was not used.
struct Room<'c> {
    cache: &'c PageCache,
    pages: u64,
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.cache.return_pages(self.pages);
    }
}

/// Sets all bytes of pages from the byte `from` on to zero.
fn zero_from(pages: &[PageBox], from: u64) {
    let first = usize::try_from(page_of(from)).unwrap_or(usize::MAX);
    let mut within = (from % PAGE) as usize;
    for page in pages.iter().skip(first) {
        page.zero(std::mem::take(&mut within)..PAGE_SIZE);
    }
}

impl<S: Store, P: Deref<Target = FilePages>> RegularFile<S, P> {
    /// Reads from `offset` on, up to the end of the file. Returns the number of bytes. Blocks for
    /// I/O.
    ///
    /// # Errors
    /// The errors of the device, and damage; not if bytes before the error were read.
    pub fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize, Fault> {
        let left = self.size().saturating_sub(offset);
        let len = usize::try_from(left).map_or(buf.len(), |left| left.min(buf.len()));
        let buf = &mut buf[..len];
        let (mut done, mut is_in_order) = (0, None);
        let end = pages_of(offset + len as u64);
        let before = self.note_read(end);
        while done < len {
            let at = offset + done as u64;
            done += self.copy_cached(at, &mut buf[done..]);
            if done == len {
                break;
            }
            let at = offset + done as u64;
            let is_in_order = *is_in_order.get_or_insert_with(|| {
                if !self.is_near(end, before) {
                    self.pages.read_end.store(end, Ordering::Relaxed);
                }
                self.is_near(page_of(at), before)
            });
            match self.read_missing(at, &mut buf[done..], is_in_order) {
                Ok(more) => done += more,
                Err(_) if done > 0 => break,
                Err(fault) => return Err(fault),
            }
        }
        if done > 0 {
            let end = pages_of(offset + done as u64);
            if self.pages.ahead_mark.load(Ordering::Relaxed) < end {
                self.look_ahead(page_of(offset));
            }
        }
        Ok(done)
    }

    /// Notes where a read ends that continues the one before, ahead of its wait for the device:
    /// several threads may read for one reader, as a mount does whose kernel reads ahead. Returns
    /// where the one before ended. A read elsewhere is noted when a page is missing: readers of
    /// cached pages write no line that they share.
    fn note_read(&self, end: u64) -> u64 {
        let before = self.pages.read_end.load(Ordering::Relaxed);
        // A read that another has overtaken does not take the end back.
        if end > before && self.is_near(end, before) {
            self.pages.read_end.store(end, Ordering::Relaxed);
        }
        before
    }

    /// Returns whether a read at a page continues one that ended `before`: concurrent ones may
    /// overtake each other by as much as is read ahead.
    fn is_near(&self, page: u64, before: u64) -> bool {
        page.abs_diff(before) <= u64::from(self.pages.read_ahead.load(Ordering::Relaxed))
    }

    /// Copies from `offset` on, up to the first page that is not in memory. Returns the number of
    /// bytes.
    fn copy_cached(&self, offset: u64, buf: &mut [u8]) -> usize {
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            let within = (at % PAGE) as usize;
            // A chunk at a time: a writer waits for no more than that.
            match self.pages.copy(page_of(at), within, &mut buf[done..]) {
                0 => break,
                more => done += more,
            }
        }
        done
    }

    /// Reads missing pages from `offset` on. Returns the number of bytes in `buf`: none if another
    /// thread has filled the page.
    fn read_missing(&self, offset: u64, buf: &mut [u8], is_in_order: bool) -> Result<usize, Fault> {
        let index = page_of(offset);
        let end = self.plan(index, pages_of(offset + buf.len() as u64), is_in_order);
        match self.fill(index, end, offset, buf)? {
            Filled::Bytes(bytes) => Ok(bytes),
            Filled::Zeros(pages) => {
                let zeros = offset_of(index.saturating_add(pages)) - offset;
                let len = usize::try_from(zeros).map_or(buf.len(), |zeros| zeros.min(buf.len()));
                buf[..len].fill(0);
                Ok(len)
            }
        }
    }

    /// Reads pages from `index` on into memory, up to `end` at most, which is in the same megabyte,
    /// and copies their bytes from `offset` on, which is in the first page, to `buf`.
    fn fill(&self, index: u64, end: u64, offset: u64, buf: &mut [u8]) -> Result<Filled, Fault> {
        let _invalidate = self.pages.invalidate.read();
        let _fill = self.pages.cache.fill_lock(&*self.pages, index).lock();
        // Room first: taking it may drop pages of this file, which is counted.
        let mut room = Room { cache: &self.pages.cache, pages: 0 };
        if self.pages.cache.take_pages(end - index) {
            room.pages = end - index;
        }
        let (gap, seen) = {
            let pages = self.pages.read();
            match pages.next(index) {
                Some(next) if next == index => return Ok(Filled::Bytes(0)),
                next => (next.unwrap_or(u64::MAX), pages.dropped_written),
            }
        };
        let (pages, is_mapped) = match self.store.map(index)? {
            Mapping::Hole { blocks } | Mapping::Unwritten { blocks, .. } => {
                return Ok(Filled::Zeros(blocks.min(gap - index)));
            }
            Mapping::Inline(inline) => (Page::many_with(1, 0, &inline), false),
            Mapping::Mapped { start, blocks } => {
                let pages = Page::many_unfilled(blocks.min(end.min(gap) - index) as usize);
                self.store.read_pages(start, &pages)?;
                let valid = self.store.disk_size().saturating_sub(offset_of(index));
                zero_from(&pages, valid);
                (pages, true)
            }
        };
        let within = (offset % PAGE) as usize;
        let done = read_pages(pages.iter().map(|page| &**page), within, buf);
        self.put(index, pages, is_mapped, seen, &mut room, offset, &mut buf[..done]);
        Ok(Filled::Bytes(done))
    }

    /// Returns the end of the read if page `index` is missing and pages up to `wanted` are
    /// requested.
    fn plan(&self, index: u64, wanted: u64, is_in_order: bool) -> u64 {
        let is_in_order = index > 0 && is_in_order;
        let ahead = if is_in_order { self.widen() } else { 0 };
        let lock_end = index - index % READ_PAGES_MAX + READ_PAGES_MAX;
        let end = wanted.max(index.saturating_add(ahead));
        let end = end.min(lock_end).min(pages_of(self.size())).max(index + 1);
        // The next pages are requested when these were read. What was requested before and has not
        // come yet is not requested again.
        let requested = self.pages.ahead_to.load(Ordering::Relaxed);
        let ahead_to = if is_in_order { requested.max(end) } else { end };
        self.pages.ahead_to.store(ahead_to, Ordering::Relaxed);
        let mark = if is_in_order { index } else { u64::MAX };
        self.pages.ahead_mark.store(mark, Ordering::Relaxed);
        if !is_in_order {
            self.pages.read_ahead.store(0, Ordering::Relaxed);
        }
        end
    }

    /// Enlarges the read-ahead window. Returns it in pages.
    fn widen(&self) -> u64 {
        let before = self.pages.read_ahead.load(Ordering::Relaxed);
        let ahead = (before * 2).clamp(AHEAD_MIN, AHEAD_MAX);
        self.pages.read_ahead.store(ahead, Ordering::Relaxed);
        u64::from(ahead).min(self.pages.cache.batch())
    }

    /// Requests the next window, if the reader, which was at page `at`, has reached the one before.
    fn look_ahead(&self, at: u64) {
        self.pages.ahead_mark.store(u64::MAX, Ordering::Relaxed);
        let from = self.pages.ahead_to.load(Ordering::Relaxed);
        let end = pages_of(self.size());
        if at > from || from >= end {
            // The reader has moved elsewhere, or this is the end of the file.
            return;
        }
        if from - at > AHEAD_REQUESTED_MAX {
            // The device is slower than the reader.
            self.pages.ahead_mark.store(from - AHEAD_REQUESTED_MAX, Ordering::Relaxed);
            return;
        }
        let ahead = self.widen();
        let to = from.saturating_add(ahead);
        // Large windows in whole megabytes, each of which is one request.
        let to = if ahead >= READ_PAGES_MAX { to.next_multiple_of(READ_PAGES_MAX) } else { to };
        let to = to.min(end);
        self.pages.ahead_to.store(to, Ordering::Relaxed);
        self.pages.ahead_mark.store(from, Ordering::Relaxed);
        self.store.tell(Event::Awaited(from..to));
    }

    /// Reads the pages `from` to `to` into memory, as far as they are missing and room is left. A
    /// page that can't be read is left to its reader. Blocks for I/O.
    pub(crate) fn populate(&self, from: u64, to: u64) {
        let mut at = from;
        loop {
            at += self.pages.read().run(at, to.saturating_sub(at), |marks| marks.present);
            let end = to.min(pages_of(self.size()));
            if at >= end {
                return;
            }
            let lock_end = at - at % READ_PAGES_MAX + READ_PAGES_MAX;
            at += match self.fill(at, end.min(lock_end), offset_of(at), &mut []) {
                Ok(Filled::Bytes(_)) if self.pages.read().contains(at) => 1,
                Ok(Filled::Zeros(pages)) => pages.max(1),
                // No room was left for it, or it can't be read.
                Ok(Filled::Bytes(_)) | Err(_) => return,
            };
        }
    }

    /// Inserts pages that were read where none is in memory, as far as `room` lasts. Where another
    /// thread has inserted one, its bytes are newer: they replace those in `buf`.
    #[expect(clippy::too_many_arguments, reason = "one place calls it")]
    fn put(
        &self,
        first: u64,
        read: Vec<PageBox>,
        is_mapped: bool,
        seen: u64,
        room: &mut Room<'_>,
        offset: u64,
        buf: &mut [u8],
    ) {
        let mut left = Vec::new();
        let mut pages = self.pages.write();
        let is_current = pages.dropped_written == seen;
        for (index, page) in (first..).zip(read) {
            if let Some(newer) = pages.page(index) {
                let begin = offset_of(index).max(offset);
                let end = offset_of(index + 1).min(offset + buf.len() as u64);
                if begin < end {
                    let part = (begin - offset) as usize..(end - offset) as usize;
                    newer.read((begin % PAGE) as usize, &mut buf[part]);
                }
                left.push(page);
            } else if is_current && room.pages > 0 && pages.insert_clean(index, page, is_mapped) {
                room.pages -= 1;
            }
        }
        if !pages.is_empty() {
            self.pages.join_clock();
        }
        drop(pages);
        drop(left);
    }

    /// Returns the contents of a page; the caller prevents concurrent writes to it.
    pub(super) fn read_page(&self, index: u64) -> Result<Box<[u8; PAGE_SIZE]>, Fault> {
        let mut bytes = Box::new([0; PAGE_SIZE]);
        let mut done = 0;
        while done < PAGE_SIZE {
            let at = offset_of(index) + done as u64;
            done += self.copy_cached(at, &mut bytes[done..]);
            if done < PAGE_SIZE {
                done += self.read_missing(at, &mut bytes[done..], false)?;
            }
        }
        Ok(bytes)
    }
}
