//! Writing dirty pages back.

use vfscale_sync::atomic::Ordering;
use vfscale_sync::page::PAGE_SIZE;

use super::pages::Cached;
use super::{Change, FileData, PIECE_PAGES, Store, offset_of, page_of, pages_of};
use crate::extents::Mapping;
use crate::fault::Fault;
use crate::tx::Run;

/// How many pages are copied with the pages locked.
const COPY_PAGES: u64 = 32;

/// Dirty pages without a gap, and where they go.
#[derive(Clone, Copy, Debug)]
struct Piece {
    first: u64,
    pages: u64,
    /// How long the file was before the pages were copied.
    size: u64,
    place: Place,
}

#[derive(Clone, Copy, Debug)]
enum Place {
    /// Blocks that they have.
    Blocks { start: u64, is_unwritten: bool },
    /// Blocks that were claimed for them.
    Claimed(Run),
    /// The inode.
    Inline,
}

/// What became of a piece.
struct Outcome {
    /// The page behind it.
    next: u64,
    /// How many pages have been written.
    pages: u64,
    fault: Option<Fault>,
}

/// Whether a small file may lie in its inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Inline {
    Allowed,
    Forbidden,
}

impl FileData {
    /// Writes the pages back that are dirty by now, and the size. Does all it can also if a part of
    /// it fails; what failed is given up ([module](super)). Returns how many pages it has written.
    /// Blocks for I/O.
    ///
    /// # Errors
    /// The first error, which is kept for [`take_error`](Self::take_error) as well.
    pub fn write_back(&self, store: &impl Store) -> Result<u64, Fault> {
        self.write_back_as(store, Inline::Allowed)
    }

    pub(super) fn write_back_as(&self, store: &impl Store, inline: Inline) -> Result<u64, Fault> {
        self.clear_queued();
        let Some(last) = self.pages.read().unstable.last().copied() else {
            let _writing = self.writing_back.lock();
            return self.write_size_back(store).map(|()| 0);
        };
        let (mut cursor, mut written, mut first_fault) = (0, 0, None);
        loop {
            // For one piece at a time, so that whoever wants to cut the file need not wait for long.
            let _writing = self.writing_back.lock();
            let done = self.write_piece_back(store, cursor, last, inline);
            let Some(Outcome { next, pages, fault }) = done else { break };
            cursor = next;
            written += pages;
            first_fault = first_fault.or(fault);
        }
        let _writing = self.writing_back.lock();
        if let Err(fault) = self.write_size_back(store) {
            first_fault.get_or_insert(fault);
        }
        match first_fault {
            Some(fault) => Err(fault),
            None => Ok(written),
        }
    }

    /// Writes the first piece from `cursor` on, up to page `last`. `None` if there is none. The caller holds
    /// `i_writeback`.
    fn write_piece_back(
        &self,
        store: &impl Store,
        cursor: u64,
        last: u64,
        inline: Inline,
    ) -> Option<Outcome> {
        let size = self.size();
        let (first, run) = self.next_piece(store, cursor, last, size)?;
        let (place, pages) = match self.place(store, first, run, size, inline) {
            Ok(place) => place,
            Err(fault) => {
                // Without a place for the first page there is none for those behind it, probably.
                let fault = Some(self.give_up(store, first, run, fault));
                return Some(Outcome { next: first + run, pages: 0, fault });
            }
        };
        let piece = Piece { first, pages, size, place };
        let next = first + pages;
        self.begin(piece);
        if let Err(fault) = self.write_and_change(store, piece) {
            let fault = Some(self.give_up(store, first, pages, fault));
            return Some(Outcome { next, pages: 0, fault });
        }
        self.finish(store, piece);
        Some(Outcome { next, pages, fault: None })
    }

    /// Which pages are next: from `cursor` on, but nothing behind the size on the device is overtaken.
    fn next_piece(
        &self,
        store: &impl Store,
        cursor: u64,
        last: u64,
        size: u64,
    ) -> Option<(u64, u64)> {
        let on_disk = page_of(store.disk_size());
        let pages = self.pages.read();
        let next = pages.next_dirty(cursor)?;
        let behind = pages.next_dirty(on_disk).unwrap_or(next);
        let first = next.min(behind);
        // A page behind the end is one that is just coming: the size will follow.
        let end = pages_of(size).min(last.saturating_add(1));
        let most = end.checked_sub(first).filter(|most| *most > 0)?.min(PIECE_PAGES);
        Some((first, pages.dirty_run(first, most)))
    }

    /// Where up to `run` pages from `first` on go, and how many of them.
    fn place(
        &self,
        store: &impl Store,
        first: u64,
        run: u64,
        size: u64,
        inline: Inline,
    ) -> Result<(Place, u64), Fault> {
        let room = store.inline_room().filter(|_| inline == Inline::Allowed);
        if first == 0 && room.is_some_and(|room| size <= room) {
            return Ok((Place::Inline, 1));
        }
        if first > 0 && store.inline().is_some() {
            // The first page has just failed to leave the inode.
            return Err(self.error.lock().clone().unwrap_or(Fault::NoSpace));
        }
        match store.lookup(first)? {
            Mapping::Mapped { start, blocks, is_unwritten } => {
                Ok((Place::Blocks { start, is_unwritten }, run.min(blocks)))
            }
            Mapping::Hole { blocks } => {
                let wanted = run.min(blocks);
                self.pay(store, first, wanted)?;
                let run = store.claim(first, wanted as u32)?;
                Ok((Place::Claimed(run), u64::from(run.blocks)))
            }
        }
    }

    /// Sees to it that space is set aside for these pages, all of them dirty. It was when they
    /// became so, unless they had a block then.
    fn pay(&self, store: &impl Store, first: u64, pages: u64) -> Result<(), Fault> {
        let is_unpaid = |(_, cached): &(&u64, &mut Cached)| !cached.is_reserved;
        let mut locked = self.pages.write();
        let range = first..first + pages;
        let unpaid = locked.map.range_mut(range.clone()).filter(is_unpaid).count() as u64;
        if unpaid == 0 {
            return Ok(());
        }
        drop(locked);
        store.reserve(unpaid)?;
        self.delayed.fetch_add(unpaid, Ordering::Relaxed);
        // Nobody else sets a mark of a page that is dirty.
        locked = self.pages.write();
        locked.map.range_mut(range).for_each(|(_, cached)| cached.is_reserved = true);
        Ok(())
    }

    fn begin(&self, piece: Piece) {
        let mut pages = self.pages.write();
        for (_, cached) in pages.map.range_mut(piece.first..piece.first + piece.pages) {
            (cached.is_dirty, cached.is_writing) = (false, true);
        }
    }

    fn write_and_change(&self, store: &impl Store, piece: Piece) -> Result<(), Fault> {
        let bytes = self.copied(piece);
        let before = store.disk_size();
        let size = self.size_with(piece, before);
        let Piece { first, pages, .. } = piece;
        let change = match piece.place {
            Place::Inline => {
                let len = usize::try_from(piece.size).map_or(0, |size| size.min(bytes.len()));
                return store.change(Change::Inline(&bytes[..len]), piece.size);
            }
            Place::Blocks { start, is_unwritten } => {
                store.write_blocks(start, &bytes)?;
                match is_unwritten {
                    true => Change::Written { from: first, to: first + pages },
                    false if size == before => return Ok(()),
                    false => Change::Size,
                }
            }
            Place::Claimed(run) => {
                store.write_blocks(run.start, &bytes).inspect_err(|_| store.unclaim(run))?;
                Change::Insert { file_block: first, run, is_unwritten: false }
            }
        };
        store.change(change, size)
    }

    /// The bytes of the pages.
    fn copied(&self, piece: Piece) -> Vec<u8> {
        let mut bytes = vec![0; piece.pages as usize * PAGE_SIZE];
        let per_lock = COPY_PAGES as usize * PAGE_SIZE;
        for (at, part) in bytes.chunks_mut(per_lock).enumerate() {
            let first = piece.first + at as u64 * COPY_PAGES;
            let pages = self.pages.read();
            for (page, into) in (first..).zip(part.chunks_mut(PAGE_SIZE)) {
                if let Some(cached) = pages.map.get(&page) {
                    cached.page.read(0, into);
                }
            }
        }
        bytes
    }

    /// The size on the device with a piece that has been written: up to the next page that is dirty.
    fn size_with(&self, piece: Piece, before: u64) -> u64 {
        let end = piece.first + piece.pages;
        if end <= page_of(before) {
            return before;
        }
        let dirty = self.pages.read().next_dirty(end);
        let limit = dirty.map_or(u64::MAX, offset_of);
        before.max(piece.size.min(limit))
    }

    /// Everything is on its way to be durable.
    fn finish(&self, store: &impl Store, piece: Piece) {
        let is_inline = matches!(piece.place, Place::Inline);
        let (mut stable, mut reserved) = (0, 0);
        let mut pages = self.pages.write();
        for index in piece.first..piece.first + piece.pages {
            let Some(cached) = pages.map.get_mut(&index) else { continue };
            cached.is_writing = false;
            cached.is_mapped = !is_inline;
            // Who writes to a page in the inode again needs space for it again.
            if cached.is_reserved && !(is_inline && cached.is_dirty) {
                cached.is_reserved = false;
                reserved += 1;
            }
            if !cached.is_dirty {
                pages.unstable.remove(&index);
                stable += 1;
            }
        }
        drop(pages);
        self.cache.give_unstable(stable);
        match piece.place {
            // What was set aside has become the claim.
            Place::Claimed(_) => {
                self.delayed.fetch_sub(reserved, Ordering::Relaxed);
            }
            Place::Blocks { .. } | Place::Inline => self.unreserve(store, reserved),
        }
    }

    /// Drops pages that can't be written, unless they were written to since; keeps the error, and returns it.
    fn give_up(&self, store: &impl Store, first: u64, count: u64, fault: Fault) -> Fault {
        self.keep_error(&fault);
        let (mut gone, mut reserved) = (0, 0);
        let mut pages = self.pages.write();
        for index in first..first + count {
            let Some(cached) = pages.map.get_mut(&index) else { continue };
            let was_begun = std::mem::take(&mut cached.is_writing);
            if was_begun && cached.is_dirty {
                continue;
            }
            reserved += u64::from(cached.is_reserved);
            pages.map.remove(&index);
            pages.unstable.remove(&index);
            pages.dropped_written += 1;
            gone += 1;
        }
        drop(pages);
        self.cache.give_unstable(gone);
        self.cache.give_pages(gone);
        self.unreserve(store, reserved);
        tracing::error!(first, pages = gone, %fault, "written data are lost");
        fault
    }

    /// Lets the size on the device follow over what is a hole or has been written. The caller holds
    /// `i_writeback`.
    fn write_size_back(&self, store: &impl Store) -> Result<(), Fault> {
        let size = self.size();
        let before = store.disk_size();
        if size <= before {
            return Ok(());
        }
        let dirty = self.pages.read().next_dirty(page_of(before));
        let size = size.min(dirty.map_or(u64::MAX, offset_of));
        if size <= before {
            return Ok(());
        }
        store.change(Change::Size, size).inspect_err(|fault| self.keep_error(fault))
    }
}
