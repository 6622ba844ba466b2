//! Reading, and reading ahead.

use vfscale_sync::atomic::Ordering;
use vfscale_sync::page::{PAGE_SIZE, Page};

use super::pages::Cached;
use super::{FileData, PAGE, PIECE_PAGES, Store, offset_of, page_of, pages_of};
use crate::extents::Mapping;
use crate::fault::Fault;

/// How many pages are copied with the pages locked.
const COPY_PAGES: usize = 64;
/// How many pages are read ahead the first time that somebody reads on where he stopped.
const AHEAD_MIN: u32 = 16;

/// What there is on the device at a page that is not in memory.
enum Source {
    /// In these blocks, and how many pages of them have bytes.
    Blocks { start: u64, pages: u64 },
    /// In the inode.
    Inline(std::sync::Arc<[u8]>),
    /// Zeros, for this many pages.
    Nothing { pages: u64 },
}

impl FileData {
    /// Reads from `offset` on, to the end of the file at most. Returns how many bytes. Blocks for I/O.
    ///
    /// # Errors
    /// Of the device, damage; not if there was something to read before it.
    pub fn read(&self, store: &impl Store, offset: u64, buf: &mut [u8]) -> Result<usize, Fault> {
        let left = self.size().saturating_sub(offset);
        let len = usize::try_from(left).map_or(buf.len(), |left| left.min(buf.len()));
        let buf = &mut buf[..len];
        let mut done = 0;
        while done < len {
            let at = offset + done as u64;
            done += self.copy_cached(at, &mut buf[done..]);
            if done == len {
                break;
            }
            match self.read_missing(store, offset + done as u64, &mut buf[done..]) {
                Ok(more) => done += more,
                Err(_) if done > 0 => break,
                Err(fault) => return Err(fault),
            }
        }
        if done > 0 {
            self.read_end.store(pages_of(offset + done as u64), Ordering::Relaxed);
        }
        Ok(done)
    }

    /// Copies what is in memory from `offset` on, up to the first page that is not. Returns how many bytes.
    fn copy_cached(&self, offset: u64, buf: &mut [u8]) -> usize {
        let mut done = 0;
        'pieces: while done < buf.len() {
            let pages = self.pages.read();
            let first = page_of(offset + done as u64);
            let mut expected = first;
            for (index, cached) in pages.map.range(first..).take(COPY_PAGES) {
                if *index != expected || done == buf.len() {
                    break 'pieces;
                }
                expected += 1;
                let within = ((offset + done as u64) % PAGE) as usize;
                let len = (buf.len() - done).min(PAGE_SIZE - within);
                cached.page.read(within, &mut buf[done..done + len]);
                cached.touch();
                done += len;
            }
            if expected == first {
                break;
            }
        }
        done
    }

    /// Reads from `offset` on what is not in memory. Returns how many bytes there are now in `buf`: none if
    /// somebody else has brought the page.
    fn read_missing(
        &self,
        store: &impl Store,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<usize, Fault> {
        let index = page_of(offset);
        let invalidate = self.invalidate.read();
        let fill = self.cache.fill_lock(self, index).lock();
        let wanted = pages_of(offset + buf.len() as u64);
        let end = self.plan(index, wanted);
        // Room first: to make some may drop pages of this file, and count that.
        let mut room = if self.cache.take_pages(end - index) { end - index } else { 0 };
        let (gap, seen) = {
            let pages = self.pages.read();
            if pages.map.contains_key(&index) {
                self.cache.give_pages(room);
                return Ok(0);
            }
            let gap = pages.map.range(index..).next().map_or(u64::MAX, |(next, _)| *next);
            (gap, pages.dropped_written)
        };
        let source = self.source(store, index, end.min(gap)).inspect_err(|_| {
            self.cache.give_pages(room);
        })?;
        let mut bytes = Vec::new();
        let is_mapped = matches!(source, Source::Blocks { .. });
        match source {
            Source::Nothing { pages } => {
                self.cache.give_pages(room);
                let zeros = offset_of(index.saturating_add(pages.min(gap - index))) - offset;
                let len = usize::try_from(zeros).map_or(buf.len(), |zeros| zeros.min(buf.len()));
                buf[..len].fill(0);
                return Ok(len);
            }
            Source::Inline(inline) => {
                bytes.resize(PAGE_SIZE, 0);
                bytes.iter_mut().zip(inline.iter()).for_each(|(to, from)| *to = *from);
            }
            Source::Blocks { start, pages } => {
                bytes.resize(pages as usize * PAGE_SIZE, 0);
                let read = store.read_blocks(start, &mut bytes);
                read.inspect_err(|_| self.cache.give_pages(room))?;
                let valid = store.disk_size().saturating_sub(offset_of(index));
                let valid = usize::try_from(valid).map_or(bytes.len(), |v| v.min(bytes.len()));
                bytes[valid..].fill(0);
            }
        }
        let done = self.put(index, &bytes, is_mapped, seen, &mut room, offset, buf);
        self.cache.give_pages(room);
        drop(fill);
        drop(invalidate);
        Ok(done)
    }

    /// Up to which page is read if page `index` is missing and pages up to `wanted` are asked for.
    fn plan(&self, index: u64, wanted: u64) -> u64 {
        let ahead = if self.read_end.load(Ordering::Relaxed) == index && index > 0 {
            let before = self.read_ahead.load(Ordering::Relaxed);
            (before * 2).clamp(AHEAD_MIN, PIECE_PAGES as u32)
        } else {
            0
        };
        self.read_ahead.store(ahead, Ordering::Relaxed);
        let lock_end = index - index % PIECE_PAGES + PIECE_PAGES;
        let end = wanted.max(index.saturating_add(ahead.into()));
        end.min(lock_end).min(pages_of(self.size())).max(index + 1)
    }

    /// What there is at page `index`, of which pages up to `end` are asked for.
    fn source(&self, store: &impl Store, index: u64, end: u64) -> Result<Source, Fault> {
        if let Some(inline) = store.inline() {
            let behind = Source::Nothing { pages: u64::MAX };
            return Ok(if index == 0 { Source::Inline(inline) } else { behind });
        }
        let mapping = store.lookup(index)?;
        // After the mapping: it grows together with the blocks.
        let on_disk = pages_of(store.disk_size());
        Ok(match mapping {
            Mapping::Hole { blocks } | Mapping::Mapped { blocks, is_unwritten: true, .. } => {
                Source::Nothing { pages: blocks }
            }
            Mapping::Mapped { blocks, .. } if index >= on_disk => Source::Nothing { pages: blocks },
            Mapping::Mapped { start, blocks, .. } => {
                let pages = blocks.min(end - index).min(on_disk - index);
                Source::Blocks { start, pages }
            }
        })
    }

    /// Puts pages that were read into memory where there are none, as far as there is `room`, and
    /// copies what is asked for: what is in memory by now, or what was read.
    #[expect(clippy::too_many_arguments, reason = "one place calls it")]
    fn put(
        &self,
        first: u64,
        bytes: &[u8],
        is_mapped: bool,
        seen: u64,
        room: &mut u64,
        offset: u64,
        buf: &mut [u8],
    ) -> usize {
        let mut done = 0;
        let mut pages = self.pages.write();
        let is_current = pages.dropped_written == seen;
        for (index, chunk) in (first..).zip(bytes.chunks_exact(PAGE_SIZE)) {
            if is_current && *room > 0 {
                pages.map.entry(index).or_insert_with(|| {
                    *room -= 1;
                    Cached::clean(Page::with(0, chunk), is_mapped)
                });
            }
            let at = offset + done as u64;
            if done == buf.len() || page_of(at) != index {
                continue;
            }
            let within = (at % PAGE) as usize;
            let len = (buf.len() - done).min(PAGE_SIZE - within);
            let into = &mut buf[done..done + len];
            match pages.map.get(&index) {
                Some(cached) => {
                    cached.page.read(within, into);
                    cached.touch();
                }
                None => into.copy_from_slice(&chunk[within..within + len]),
            }
            done += len;
        }
        if !pages.map.is_empty() {
            self.cache.join(self);
        }
        done
    }

    /// What a page holds that nobody writes to meanwhile.
    pub(super) fn read_page(
        &self,
        store: &impl Store,
        index: u64,
    ) -> Result<Box<[u8; PAGE_SIZE]>, Fault> {
        let mut bytes = Box::new([0; PAGE_SIZE]);
        let mut done = 0;
        while done < PAGE_SIZE {
            let at = offset_of(index) + done as u64;
            done += self.copy_cached(at, &mut bytes[done..]);
            if done < PAGE_SIZE {
                done += self.read_missing(store, at, &mut bytes[done..])?;
            }
        }
        Ok(bytes)
    }
}
