//! Writing dirty pages back.

use vfscale_sync::atomic::Ordering;
use vfscale_sync::page::PAGE_SIZE;

use super::pages::Flight;
use super::{Change, FileData, Store, WRITE_PAGES, offset_of, page_of, pages_of};
use crate::extents::Mapping;
use crate::fault::Fault;
use crate::tx::Run;

/// Dirty pages without a gap, and where they go.
#[derive(Clone, Copy, Debug)]
struct Piece {
    first: u64,
    pages: u64,
    /// How long the file was before the pages were copied.
    size: u64,
    place: Place,
}

impl Piece {
    /// Its first page, and the one behind its last.
    fn range(self) -> (u64, u64) {
        (self.first, self.first + self.pages)
    }
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
    /// The first error. The store is told of each ([`Store::write_failed`]), but of [`Fault::ReadOnly`]:
    /// nothing can be written now, and what is dirty stays so.
    pub fn write_back(&self, store: &impl Store) -> Result<u64, Fault> {
        self.write_back_as(store, Inline::Allowed)
    }

    pub(super) fn write_back_as(&self, store: &impl Store, inline: Inline) -> Result<u64, Fault> {
        let Some(last) = self.pages.read().last_unstable() else {
            let _writing = self.writing_back.lock();
            return self.write_size_back(store).map(|()| 0);
        };
        let (mut cursor, mut written, mut first_fault) = (0, 0, None::<Fault>);
        loop {
            // For one piece at a time, so that whoever wants to cut the file need not wait for long.
            let _writing = self.writing_back.lock();
            store.writable()?;
            let done = self.write_piece_back(store, cursor, last, inline, first_fault.as_ref());
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
        earlier: Option<&Fault>,
    ) -> Option<Outcome> {
        let size = self.size();
        let (first, run) = self.next_piece(store, cursor, last, size)?;
        let (place, pages) = match self.place(store, first, run, size, inline, earlier) {
            Ok(place) => place,
            Err(fault) => {
                // Without a place for the first page there is none for those behind it, probably.
                let fault = Some(self.give_up(store, first, run, None, fault));
                return Some(Outcome { next: first + run, pages: 0, fault });
            }
        };
        let piece = Piece { first, pages, size, place };
        let next = first + pages;
        let flight = self.begin(piece);
        if let Err(fault) = self.write_and_change(store, piece, &flight) {
            let fault = Some(self.give_up(store, first, pages, Some(flight), fault));
            return Some(Outcome { next, pages: 0, fault });
        }
        self.finish(store, piece, flight);
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
        let most = end.checked_sub(first).filter(|most| *most > 0)?.min(WRITE_PAGES);
        Some((first, pages.dirty_run(first, most)))
    }

    /// Where up to `run` pages from `first` on go, and how many of them. `earlier` is what this write-back
    /// has met before.
    fn place(
        &self,
        store: &impl Store,
        first: u64,
        run: u64,
        size: u64,
        inline: Inline,
        earlier: Option<&Fault>,
    ) -> Result<(Place, u64), Fault> {
        let room = store.inline_room().filter(|_| inline == Inline::Allowed);
        if first == 0 && room.is_some_and(|room| size <= room) {
            return Ok((Place::Inline, 1));
        }
        if first > 0 && store.inline().is_some() {
            // The first page has just failed to leave the inode.
            return Err(earlier.cloned().unwrap_or(Fault::NoSpace));
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
        let range = (first, first + pages);
        let paid = self.pages.read().count(range.0, range.1, |marks| marks.reserved);
        let unpaid = pages - paid;
        if unpaid > 0 {
            store.reserve(unpaid)?;
            self.delayed.fetch_add(unpaid, Ordering::Relaxed);
            // Nobody else sets a mark of a page that is dirty.
            let mut pages = self.pages.write();
            pages.each(range.0, range.1, |marks, bits| marks.reserved |= bits);
        }
        Ok(())
    }

    fn begin(&self, piece: Piece) -> Flight {
        let (from, to) = piece.range();
        let mut pages = self.pages.write();
        match piece.place {
            Place::Inline => pages.begin_in_place(from, to),
            Place::Blocks { .. } | Place::Claimed(_) => pages.begin(from, to),
        }
    }

    fn write_and_change(
        &self,
        store: &impl Store,
        piece: Piece,
        flight: &Flight,
    ) -> Result<(), Fault> {
        let before = store.disk_size();
        let (first, end) = piece.range();
        let change = match piece.place {
            Place::Inline => {
                let mut bytes = [0; PAGE_SIZE];
                let len = usize::try_from(piece.size).map_or(0, |size| size.min(PAGE_SIZE));
                self.pages.read().read(first, 0, &mut bytes[..len]);
                return store.change(Change::Inline(&bytes[..len]), piece.size);
            }
            Place::Blocks { start, is_unwritten } => {
                store.write_pages(start, flight)?;
                match is_unwritten {
                    true => Change::Written { from: first, to: end },
                    false if self.size_with(piece, before) == before => return Ok(()),
                    false => Change::Size,
                }
            }
            Place::Claimed(run) => {
                store.write_pages(run.start, flight).inspect_err(|_| store.unclaim(run))?;
                Change::Insert { file_block: first, run, is_unwritten: false }
            }
        };
        store.change(change, self.size_with(piece, before))
    }

    /// The size on the device with a piece that has been written: up to the next page that is dirty.
    fn size_with(&self, piece: Piece, before: u64) -> u64 {
        let (_, end) = piece.range();
        if end <= page_of(before) {
            return before;
        }
        let dirty = self.pages.read().next_dirty(end);
        let limit = dirty.map_or(u64::MAX, offset_of);
        before.max(piece.size.min(limit))
    }

    /// Everything is on its way to be durable.
    fn finish(&self, store: &impl Store, piece: Piece, flight: Flight) {
        let is_inline = matches!(piece.place, Place::Inline);
        let (from, to) = piece.range();
        let mut reserved = 0;
        let mut pages = self.pages.write();
        let landed = pages.land(from, to, flight);
        pages.each(from, to, |marks, bits| {
            // Who writes to a page in the inode again needs space for it again.
            let kept = if is_inline { marks.dirty } else { 0 };
            let paid = marks.reserved & bits & !kept;
            marks.reserved &= !paid;
            marks.mapped = if is_inline { marks.mapped & !bits } else { marks.mapped | bits };
            reserved += u64::from(paid.count_ones());
        });
        drop(pages);
        self.cache.give_unstable(landed.stable);
        self.cache.give_pages(landed.older.len() as u64);
        match piece.place {
            // What was set aside has become the claim.
            Place::Claimed(_) => {
                self.delayed.fetch_sub(reserved, Ordering::Relaxed);
            }
            Place::Blocks { .. } | Place::Inline => self.unreserve(store, reserved),
        }
    }

    /// Drops pages that can't be written, unless they were written to since; tells of the error, and
    /// returns it. If that is only so for a time, they stay dirty instead.
    fn give_up(
        &self,
        store: &impl Store,
        first: u64,
        count: u64,
        flight: Option<Flight>,
        fault: Fault,
    ) -> Fault {
        if matches!(fault, Fault::ReadOnly) {
            self.take_back(first, count, flight);
            return fault;
        }
        store.write_failed(&fault);
        let gone = self.pages.write().give_up(first, first + count, flight);
        self.cache.give_unstable(gone.unstable);
        self.cache.give_pages(gone.pages);
        self.unreserve(store, gone.reserved);
        tracing::error!(first, pages = gone.pages, %fault, "written data are lost");
        fault
    }

    /// Makes pages dirty again that were not written.
    fn take_back(&self, first: u64, count: u64, flight: Option<Flight>) {
        let Some(flight) = flight else { return };
        let older = self.pages.write().take_back(first, first + count, flight);
        self.cache.give_pages(older.len() as u64);
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
        let changed = store.change(Change::Size, size);
        changed.inspect_err(|fault| {
            if !matches!(fault, Fault::ReadOnly) {
                store.write_failed(fault);
            }
        })
    }
}
