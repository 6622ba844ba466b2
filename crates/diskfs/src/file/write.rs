//! Writing to pages in memory.

use vfscale_sync::atomic::{Ordering, thread};
use vfscale_sync::page::{PAGE_SIZE, Page};

use super::pages::Cached;
use super::{FileData, PAGE, Store, offset_of, page_of, pages_of};
use crate::extents::Mapping;
use crate::fault::Fault;

/// After how many pages a writer looks whether too much is dirty.
const BALANCE_PAGES: u64 = 64;

/// What is known of the device: from page `from` up to page `to` it is all the same.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Known {
    from: u64,
    to: u64,
    is_mapped: bool,
    is_written: bool,
}

impl FileData {
    /// Writes at `offset`; the file grows if it ends before. Returns how many bytes: fewer if space
    /// ran out. Blocks for I/O, of parts of pages, and if much is dirty. The caller has the inode's
    /// lock.
    ///
    /// # Errors
    /// [`Fault::NoSpace`], and what can stop a page from being read; nothing was written then.
    pub fn write(&self, store: &impl Store, offset: u64, buf: &[u8]) -> Result<usize, Fault> {
        if buf.is_empty() {
            return Ok(0);
        }
        let mut known = Known::default();
        self.leave_inode(store)?;
        if offset > self.size() {
            self.dirty_end(store)?;
        }
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            if done == 0 || page_of(at).is_multiple_of(BALANCE_PAGES) {
                self.balance(store);
            }
            let within = (at % PAGE) as usize;
            let len = (buf.len() - done).min(PAGE_SIZE - within);
            let chunk = &buf[done..done + len];
            match self.write_page(store, &mut known, page_of(at), within, chunk) {
                Ok(()) => done += len,
                Err(fault) if done == 0 => return Err(fault),
                Err(_) => break,
            }
            // After the page: who sees the size finds the bytes, and write-back finds them dirty.
            let end = offset + done as u64;
            if end > self.size() {
                self.size.store(end, Ordering::Release);
            }
        }
        store.set_dirty();
        Ok(done)
    }

    /// Waits for write-back while too much is dirty, by doing it.
    fn balance(&self, store: &impl Store) {
        while self.cache.is_too_dirty() && store.relieve() {}
    }

    /// If the file lies in its inode, makes the page of it dirty, so that write-back will know where to put
    /// it when it has grown.
    pub(super) fn leave_inode(&self, store: &impl Store) -> Result<(), Fault> {
        if store.inline().is_none() {
            return Ok(());
        }
        self.write_page(store, &mut Known::default(), 0, 0, &[])
    }

    /// The file is about to grow: if it ends within a block that has bytes, that page becomes
    /// dirty, with zeros behind the end.
    pub(super) fn dirty_end(&self, store: &impl Store) -> Result<(), Fault> {
        let size = self.size();
        if size.is_multiple_of(PAGE) || store.inline().is_some() {
            return Ok(());
        }
        self.write_where_bytes_are(store, page_of(size), 0, &[])
    }

    /// Writes to a page if it is in memory or has bytes on the device; others are zeros already.
    pub(super) fn write_where_bytes_are(
        &self,
        store: &impl Store,
        index: u64,
        within: usize,
        chunk: &[u8],
    ) -> Result<(), Fault> {
        let mut known = Known::default();
        let is_cached = self.pages.read().map.contains_key(&index);
        if is_cached || self.know(store, &mut known, index)?.is_written {
            self.write_page(store, &mut known, index, within, chunk)?;
            store.set_dirty();
        }
        Ok(())
    }

    /// What there is on the device at page `index`, which is not in memory, or was not just now.
    /// Blocks that are there stay, since the caller has the inode's lock.
    fn know<'k>(
        &self,
        store: &impl Store,
        known: &'k mut Known,
        index: u64,
    ) -> Result<&'k Known, Fault> {
        if !(known.from..known.to).contains(&index) {
            let mapping = store.lookup(index)?;
            let on_disk = pages_of(store.disk_size());
            *known = match mapping {
                Mapping::Hole { blocks } => {
                    Known { from: index, to: index.saturating_add(blocks), ..Known::default() }
                }
                Mapping::Mapped { blocks, is_unwritten, .. } => {
                    let to = index.saturating_add(blocks);
                    let is_written = !is_unwritten && index < on_disk;
                    let to = if is_written { to.min(on_disk) } else { to };
                    Known { from: index, to, is_mapped: true, is_written }
                }
            };
        }
        Ok(known)
    }

    /// Writes to one page, and makes it dirty. Nothing has changed if this fails.
    pub(super) fn write_page(
        &self,
        store: &impl Store,
        known: &mut Known,
        index: u64,
        within: usize,
        chunk: &[u8],
    ) -> Result<(), Fault> {
        let is_cached = {
            let mut pages = self.pages.write();
            match pages.map.get(&index) {
                Some(cached) if cached.is_mapped || cached.is_reserved => {
                    cached.page.write(within, chunk);
                    if pages.mark_dirty(index) {
                        self.cache.add_unstable(1);
                    }
                    return Ok(());
                }
                found => found.is_some(),
            }
        };
        let here = *self.know(store, known, index)?;
        let mut base = None;
        if !is_cached && chunk.len() < PAGE_SIZE {
            let is_inline = index == 0 && store.inline().is_some();
            if here.is_written || is_inline {
                base = Some(self.read_page(store, index)?);
            }
        }
        let reserved = u64::from(!here.is_mapped);
        if reserved > 0 {
            store.reserve(reserved)?;
            self.delayed.fetch_add(reserved, Ordering::Relaxed);
        }
        self.wait_for_room(store);
        let unused = self.put_dirty(here.is_mapped, index, base, within, chunk);
        self.unreserve(store, if unused.space { reserved } else { 0 });
        self.cache.give_pages(u64::from(unused.page));
        Ok(())
    }

    /// Room for one page. If memory is full of what is dirty, that is written back.
    fn wait_for_room(&self, store: &impl Store) {
        while !self.cache.take_pages(1) {
            if !store.relieve() {
                // Others write back what there is; or hold what they are about to fill.
                thread::yield_now();
            }
        }
    }

    /// Puts a page in, dirty, or changes the one that is there by now.
    fn put_dirty(
        &self,
        is_mapped: bool,
        index: u64,
        base: Option<Box<[u8; PAGE_SIZE]>>,
        within: usize,
        chunk: &[u8],
    ) -> Unused {
        let mut unused = Unused { space: false, page: true };
        let mut pages = self.pages.write();
        let cached = pages.map.entry(index).or_insert_with(|| {
            unused.page = false;
            let page = match base {
                Some(base) => Page::with(0, &*base),
                None => Page::zeroed(),
            };
            Cached::clean(page, is_mapped)
        });
        cached.page.write(within, chunk);
        if cached.is_mapped || cached.is_reserved {
            unused.space = true;
        } else {
            cached.is_reserved = true;
        }
        if pages.mark_dirty(index) {
            self.cache.add_unstable(1);
        }
        self.cache.join(self);
        unused
    }

    /// The file is `size` long from now on, and longer than it was: what is between is a hole. The
    /// caller has the inode's lock.
    pub(super) fn grow_to(&self, store: &impl Store, size: u64) -> Result<(), Fault> {
        self.dirty_end(store)?;
        self.size.store(size, Ordering::Release);
        store.set_dirty();
        Ok(())
    }

    /// Sets the bytes from `start` to `end`, which are within one page, to zero.
    pub(super) fn zero_within(
        &self,
        store: &impl Store,
        start: u64,
        end: u64,
    ) -> Result<(), Fault> {
        if start >= end {
            return Ok(());
        }
        let index = page_of(start);
        let zeros = [0; PAGE_SIZE];
        let within = (start - offset_of(index)) as usize;
        self.write_where_bytes_are(store, index, within, &zeros[..(end - start) as usize])
    }
}

/// What was taken and then not needed.
struct Unused {
    space: bool,
    page: bool,
}
