//! Writing dirty pages back.

mod within;

use std::collections::VecDeque;
use std::ops::{ControlFlow, Deref};

use vfscale_sync::atomic::Ordering;
use vfscale_sync::lock::assert_held;
use vfscale_sync::page::PAGE_SIZE;

use super::file::RegularFile;
use super::store::{Act, Change, Event, Store, Writing};
use crate::base::fault::Fault;
use crate::format::BlockRange;
use crate::format::extent::Extent;
use crate::page_cache::{
    FilePages, Mapping, PAGE, READ_PAGES_MAX, WRITE_PAGES_MAX, WriteBackLock, WritebackBatch,
    offset_of, page_of, pages_of,
};

/// The number of writes that may fail in a pass over a file before whole segments are given up:
/// finding a few bad blocks is worth the time, trying each block of a dead device is not.
const FAILURES_MAX: u32 = 64;
/// The number of segments that a thread begins to write behind others before it lets others have
/// the file: 32 megabytes.
const BEGINS_MAX: u32 = 7;
/// The most segments of a file that are being written at a time: 16 megabytes. A device in a
/// network answers late, and the oldest request may be the slowest.
const FLIGHTS_MAX: usize = 4;
/// The number of blocks that are tried for a new page.
const BLOCKS_TRIED_MAX: u32 = 3;

/// Consecutive dirty pages, and their target.
#[derive(Clone, Copy, Debug)]
struct Segment {
    first: u64,
    pages: u64,
    /// The size of the file before the pages were copied.
    size: u64,
    target: SegmentTarget,
}

impl Segment {
    /// Returns its first page, and the page behind its last.
    fn range(self) -> (u64, u64) {
        (self.first, self.first + self.pages)
    }
}

#[derive(Clone, Copy, Debug)]
enum SegmentTarget {
    /// The blocks of the pages, from this one on.
    Mapped(u64),
    /// Their blocks, from this one on, to which nothing was written yet.
    Unwritten(u64),
    /// Blocks that were claimed for them.
    Claimed(BlockRange),
    /// The inode.
    Inline,
}

/// A segment whose pages are being written.
struct Flight<'s> {
    segment: Segment,
    batch: WritebackBatch,
    writing: Writing<'s>,
}

/// One pass over the dirty pages of a file.
struct Pass<'s> {
    /// The next page, and the last page of the pass.
    cursor: u64,
    last: u64,
    /// Whether a small file may be stored in its inode.
    may_inline: bool,
    /// Number of pages that have been written.
    written: u64,
    first_fault: Option<Fault>,
    /// The most pages of the next segment: fewer behind a write that has failed, so the pages that
    /// can be written are written.
    pages_max: u64,
    /// The number of writes that may still fail before whole segments are given up.
    failures_left: u32,
    /// The number of blocks to which the page at `cursor` could not be written.
    blocks_tried: u32,
    /// The segments behind the current one whose writes have begun already, in order. The thread
    /// that has one holds `i_writeback`.
    next: VecDeque<Flight<'s>>,
    /// The number of writes that may still begin before the thread releases `i_writeback`.
    begins_left: u32,
}

/// The step of a segment's write-back that has failed.
enum Failed {
    /// The device did not accept its pages; a claim still exists.
    Write(Fault),
    /// The file could not be changed; a claim has been returned.
    Change(Fault),
}

impl Pass<'_> {
    /// Creates a pass over the dirty pages `from` to `last`.
    fn new(from: u64, last: u64) -> Self {
        Self {
            cursor: from,
            last,
            may_inline: true,
            written: 0,
            first_fault: None,
            pages_max: WRITE_PAGES_MAX,
            failures_left: FAILURES_MAX,
            blocks_tried: 0,
            next: VecDeque::new(),
            begins_left: 0,
        }
    }

    /// Notes that a segment was written.
    fn succeed(&mut self, segment: Segment) {
        self.cursor = segment.range().1;
        self.written += segment.pages;
        self.pages_max = (self.pages_max * 2).min(WRITE_PAGES_MAX);
        self.blocks_tried = 0;
    }

    /// Notes that the pages up to `next` were given up, or cannot be written now.
    fn fail(&mut self, fault: Fault, next: u64) {
        self.cursor = next;
        self.first_fault.get_or_insert(fault);
        self.blocks_tried = 0;
    }

    /// Handles a segment that the device did not accept. Returns whether to try its pages again:
    /// half of them, or, for a single page with a new block, another block. Gives a claim back.
    fn tries_again(&mut self, store: &impl Store, segment: Segment, fault: &Fault) -> bool {
        let Segment { first, pages, target, .. } = segment;
        self.cursor = first;
        let is_hopeless = self.failures_left == 0 || is_no_space(fault);
        self.failures_left = self.failures_left.saturating_sub(1);
        if self.failures_left == 0 {
            self.pages_max = WRITE_PAGES_MAX;
        } else if pages > 1 {
            self.pages_max = pages.div_ceil(2);
        }
        let SegmentTarget::Claimed(claim) = target else { return !is_hopeless && pages > 1 };
        let is_bad = !is_hopeless && pages == 1;
        let is_aside = store.give_back(claim, is_bad);
        if is_bad {
            self.blocks_tried += 1;
            return is_aside && self.blocks_tried < BLOCKS_TRIED_MAX;
        }
        !is_hopeless
    }

    /// Handles a segment whose new blocks can't be entered into their group, which is left out from
    /// now on. Returns whether to try its pages again, with other blocks.
    fn tries_elsewhere(&mut self, segment: Segment) -> bool {
        let is_claimed = matches!(segment.target, SegmentTarget::Claimed(_));
        let tries = is_claimed && self.failures_left > 0;
        if tries {
            self.failures_left -= 1;
            self.cursor = segment.first;
        }
        tries
    }
}

impl<S: Store, P: Deref<Target = FilePages>> RegularFile<S, P> {
    /// Writes back the pages that are dirty at the call, and the size. Continues after an error;
    /// pages that cannot be written are given up ([module](super)). Returns the number of pages
    /// written. Blocks for I/O.
    ///
    /// # Errors
    /// The first error. The store records each ([`Event::Failed`]) except
    /// [`Fault::ReadOnly`]: nothing can be written now, and dirty pages stay dirty.
    pub fn write_back(&self) -> Result<u64, Fault> {
        self.write_back_as(true)
    }

    /// Writes back as [`write_back`](Self::write_back) does; without `may_inline` a small file gets
    /// a block.
    pub(super) fn write_back_as(&self, may_inline: bool) -> Result<u64, Fault> {
        let Some(last) = self.pages.read().last_unstable() else {
            let _writing = self.pages.writing_back.lock();
            return self.write_size_back().map(|()| 0);
        };
        let mut pass = Pass { may_inline, ..Pass::new(0, last) };
        self.write_pass_back(&mut pass)?;
        let _writing = self.pages.writing_back.lock();
        if let Err(fault) = self.write_size_back() {
            pass.first_fault.get_or_insert(fault);
        }
        match pass.first_fault {
            Some(fault) => Err(fault),
            None => Ok(pass.written),
        }
    }

    /// Writes back the pages `from` to `to` that are dirty, behind a sequential writer. Continues
    /// after an error, which the store records, as [`write_back`](Self::write_back) does. Blocks
    /// for I/O.
    ///
    /// # Errors
    /// The first error.
    pub fn write_behind(&self, from: u64, to: u64) -> Result<(), Fault> {
        let Some(last) = to.checked_sub(1) else { return Ok(()) };
        let mut pass = Pass::new(from, last);
        self.write_pass_back(&mut pass)?;
        pass.first_fault.map_or(Ok(()), Err)
    }

    /// Writes the segments of a pass.
    fn write_pass_back<'s>(&'s self, pass: &mut Pass<'s>) -> Result<(), Fault> {
        loop {
            // For a few segments at a time, so a thread that truncates the file does not wait for
            // long.
            let _writing = self.pages.writing_back.lock();
            self.store.may(Act::WriteBack)?;
            pass.begins_left = BEGINS_MAX;
            loop {
                if !self.write_segment_back(pass) {
                    return Ok(());
                }
                if pass.next.is_empty() {
                    break;
                }
            }
        }
    }

    /// Writes the next segment of a pass, and begins to write those behind it before the first one
    /// has ended, so the device always has requests. Returns false if no page is left. The caller
    /// holds `i_writeback`, until no segment is being written.
    fn write_segment_back<'s>(&'s self, pass: &mut Pass<'s>) -> bool {
        let flight = match pass.next.pop_front() {
            Some(flight) => flight,
            None => match self.start_first(pass) {
                ControlFlow::Continue(flight) => flight,
                ControlFlow::Break(is_more) => return is_more,
            },
        };
        while pass.next.len() + 1 < FLIGHTS_MAX {
            let before = pass.next.back().map_or(flight.segment, |last| last.segment);
            let Some(behind) = self.start_behind(pass, before) else { break };
            pass.next.push_back(behind);
        }
        let Flight { segment, batch, writing } = flight;
        let written = self.wait_and_change(segment, writing);
        if written.is_err() {
            pass.next.drain(..).for_each(|behind| self.take_back(behind));
        }
        let Segment { first, pages, .. } = segment;
        match written {
            Ok(()) => {
                self.finish(segment, batch);
                pass.succeed(segment);
            }
            Err(Failed::Write(fault)) if pass.tries_again(&self.store, segment, &fault) => {
                self.redirty(first, pages, Some(batch));
            }
            Err(Failed::Write(fault)) if self.hides_old_bytes(segment) => {
                self.redirty(first, pages, Some(batch));
                // A block for which storage is short is not bad, and no other one is better.
                let unmapped = if is_no_space(&fault) { Err(fault) } else { self.unmap_end() };
                if let Err(fault) = unmapped {
                    self.store.tell(Event::Failed(&fault));
                    pass.fail(fault, u64::MAX);
                }
            }
            Err(Failed::Change(Fault::Local(_))) if pass.tries_elsewhere(segment) => {
                self.redirty(first, pages, Some(batch));
            }
            Err(Failed::Change(fault)) if fault.is_refusal() && self.has_left_inode(segment) => {
                self.redirty(first, pages, Some(batch));
            }
            Err(Failed::Write(fault) | Failed::Change(fault)) => {
                pass.fail(self.give_up(first, pages, Some(batch), fault), first + pages);
            }
        }
        true
    }

    /// Begins to write the next segment. Breaks with false if no page is left, and with true if the
    /// next pages were given up.
    fn start_first(&self, pass: &mut Pass<'_>) -> ControlFlow<bool, Flight<'_>> {
        let size = self.size();
        let Some((first, run)) = self.next_segment(pass, size) else {
            return ControlFlow::Break(false);
        };
        match self.find_target(pass, first, run, size, None) {
            Ok((target, pages)) => {
                ControlFlow::Continue(self.start(Segment { first, pages, size, target }))
            }
            Err(fault) => {
                // Without a target for the first page the later ones probably have none either.
                pass.fail(self.give_up(first, run, None, fault), first + run);
                ControlFlow::Break(true)
            }
        }
    }

    /// Begins to write the pages right behind a segment that is being written, if they are many and
    /// neither of the two needs zeros around it, which would lie in the other one. A failure is
    /// left to the time when the segment has been written.
    fn start_behind<'s>(&'s self, pass: &mut Pass<'s>, segment: Segment) -> Option<Flight<'s>> {
        let near = match segment.target {
            SegmentTarget::Claimed(run) => Some(run.start + u64::from(run.blocks)),
            SegmentTarget::Mapped(_) => None,
            SegmentTarget::Unwritten(_) | SegmentTarget::Inline => return None,
        };
        if pass.begins_left == 0 || pass.pages_max < WRITE_PAGES_MAX {
            return None;
        }
        let (size, first) = (self.size(), segment.range().1);
        let end = pages_of(size).min(pass.last.saturating_add(1));
        let most = end.checked_sub(first)?.min(WRITE_PAGES_MAX);
        let run = self.pages.read().dirty_run(first, most);
        if run < READ_PAGES_MAX {
            return None;
        }
        let (target, pages) = self.find_target(pass, first, run, size, near).ok()?;
        if matches!(target, SegmentTarget::Unwritten(_)) {
            return None;
        }
        pass.begins_left -= 1;
        Some(self.start(Segment { first, pages, size, target }))
    }

    /// Begins to write a segment.
    fn start(&self, segment: Segment) -> Flight<'_> {
        let batch = self.begin(segment);
        let writing = match segment.target {
            SegmentTarget::Inline => Writing::ended(Ok(())),
            SegmentTarget::Mapped(start) | SegmentTarget::Unwritten(start) => {
                self.store.begin_write(start, &batch)
            }
            SegmentTarget::Claimed(run) => self.store.begin_write(run.start, &batch),
        };
        Flight { segment, batch, writing }
    }

    /// Makes the pages of a segment dirty again that was begun behind one that has failed: they are
    /// written in their turn.
    fn take_back(&self, flight: Flight<'_>) {
        let Flight { segment, batch, writing } = flight;
        // The result does not matter: these pages are written again.
        let _ = writing.wait();
        if let SegmentTarget::Claimed(claim) = segment.target {
            self.store.give_back(claim, false);
        }
        self.redirty(segment.first, segment.pages, Some(batch));
    }

    /// Returns the next pages: from `cursor` on, but in ascending order behind the size on the
    /// device.
    fn next_segment(&self, pass: &Pass<'_>, size: u64) -> Option<(u64, u64)> {
        let on_disk = page_of(self.store.disk_size());
        let pages = self.pages.read();
        let next = pages.next_dirty(pass.cursor)?;
        let behind = pages.next_dirty(on_disk).unwrap_or(next);
        let first = next.min(behind);
        // A page behind the end is being added by a writer: the size will follow.
        let end = pages_of(size).min(pass.last.saturating_add(1));
        let most = end.checked_sub(first)?.min(pass.pages_max);
        if most == 0 {
            return None;
        }
        Some((first, pages.dirty_run(first, most)))
    }

    /// Finds the target of up to `run` pages from `first` on, claims near the block `near` if that
    /// is given. Returns it and the number of pages.
    fn find_target(
        &self,
        pass: &Pass<'_>,
        first: u64,
        run: u64,
        size: u64,
        near: Option<u64>,
    ) -> Result<(SegmentTarget, u64), Fault> {
        let room = self.store.inline_room().filter(|_| pass.may_inline);
        if first == 0 && room.is_some_and(|room| size <= room) {
            return Ok((SegmentTarget::Inline, 1));
        }
        let wanted = match self.store.map(first)? {
            Mapping::Mapped { start, blocks } => {
                return Ok((SegmentTarget::Mapped(start), run.min(blocks)));
            }
            Mapping::Unwritten { start, blocks } => {
                return Ok((SegmentTarget::Unwritten(start), run.min(blocks)));
            }
            Mapping::Hole { .. } if first > 0 && self.store.is_inline() => {
                // The first page has just failed to move out of the inode.
                return Err(pass.first_fault.clone().unwrap_or(Fault::NoSpace));
            }
            Mapping::Hole { blocks } => run.min(blocks),
            // The pages behind it have no blocks either.
            Mapping::Inline(_) => run,
        };
        self.reserve_missing(first, wanted)?;
        let claim = self.store.claim(first, near, wanted as u32)?;
        Ok((SegmentTarget::Claimed(claim), u64::from(claim.blocks)))
    }

    /// Reserves the space that these dirty pages still need. Space was reserved when they became
    /// dirty, unless they had a block then.
    fn reserve_missing(&self, first: u64, pages: u64) -> Result<(), Fault> {
        let range = (first, first + pages);
        let reserved_before = self.pages.read().count(range.0, range.1, |marks| marks.reserved);
        let missing = pages - reserved_before;
        if missing > 0 {
            self.store.reserve(missing)?.keep(missing);
            self.pages.delayed.fetch_add(missing, Ordering::Relaxed);
            // No other thread sets a mark of a dirty page.
            let mut pages = self.pages.write();
            pages.each(range.0, range.1, |marks, bits| marks.reserved |= bits);
        }
        Ok(())
    }

    fn begin(&self, segment: Segment) -> WritebackBatch {
        let (from, to) = segment.range();
        let mut pages = self.pages.write();
        match segment.target {
            SegmentTarget::Inline => pages.begin_in_place(from, to),
            _ => pages.begin(from, to),
        }
    }

    /// Waits until a segment has been written, and changes the file on the device accordingly.
    fn wait_and_change(&self, segment: Segment, writing: Writing<'_>) -> Result<(), Failed> {
        writing.wait().map_err(Failed::Write)?;
        self.with_change(segment, |change| {
            change.map_or(Ok(()), |change| self.store.change(change)).map_err(Failed::Change)
        })
    }

    /// Calls `make` with the change of the file on the device after a segment was written; `None`
    /// for no change.
    fn with_change<T>(&self, segment: Segment, make: impl FnOnce(Option<Change<'_>>) -> T) -> T {
        let (first, end) = segment.range();
        if let SegmentTarget::Inline = segment.target {
            let (mut bytes, size) = ([0; PAGE_SIZE], segment.size);
            let bytes = &mut bytes[..usize::try_from(size).map_or(0, |len| len.min(PAGE_SIZE))];
            self.pages.copy(first, 0, bytes);
            return make(Some(Change::Inline(bytes, size)));
        }
        let before = self.store.disk_size();
        let size = self.size_with(segment, before);
        make(match segment.target {
            SegmentTarget::Inline => None,
            SegmentTarget::Mapped(_) => (size != before).then_some(Change::Size(size)),
            SegmentTarget::Unwritten(_) => Some(Change::Written(first..end, size)),
            SegmentTarget::Claimed(BlockRange { start, blocks }) => {
                let extent = Extent { file_block: first, start, blocks, is_unwritten: false };
                Some(Change::Insert(extent, size))
            }
        })
    }

    /// Returns the size on the device after a segment was written: up to the next page behind it
    /// that is dirty or still being written.
    fn size_with(&self, segment: Segment, before: u64) -> u64 {
        let (_, end) = segment.range();
        if end <= page_of(before) {
            return before;
        }
        let unstable = self.pages.read().next_unstable(end);
        let limit = unstable.map_or(u64::MAX, offset_of);
        before.max(segment.size.min(limit))
    }

    /// Ends the write-back of a segment that was written and whose change is committed.
    fn finish(&self, segment: Segment, batch: WritebackBatch) {
        let is_inline = matches!(segment.target, SegmentTarget::Inline);
        let (from, to) = segment.range();
        let mut reserved = 0;
        let mut pages = self.pages.write();
        let completed = pages.complete(from, to, batch);
        pages.each(from, to, |marks, bits| {
            // Another write to a page in the inode needs space for it again.
            let retained = if is_inline { marks.dirty } else { 0 };
            let settled = marks.reserved & bits & !retained;
            marks.reserved &= !settled;
            marks.mapped = if is_inline { marks.mapped & !bits } else { marks.mapped | bits };
            reserved += u64::from(settled.count_ones());
        });
        drop(pages);
        self.pages.cache.remove_unstable(completed.stable);
        self.pages.cache.return_pages(completed.older.len() as u64);
        match segment.target {
            // The reserved space has become the claim.
            SegmentTarget::Claimed(_) => {
                self.pages.delayed.fetch_sub(reserved, Ordering::Relaxed);
            }
            _ => self.unreserve(reserved),
        }
    }

    /// Drops pages that can't be written, unless they were written to in the meantime; records the
    /// error, and returns it. If the volume is only sealed, they stay dirty instead.
    fn give_up(
        &self,
        first: u64,
        count: u64,
        batch: Option<WritebackBatch>,
        fault: Fault,
    ) -> Fault {
        if matches!(fault, Fault::ReadOnly) {
            self.redirty(first, count, batch);
            return fault;
        }
        self.store.tell(Event::Failed(&fault));
        let removed = self.pages.write().give_up(first, first + count, batch);
        self.release(&removed);
        if !is_no_space(&fault) {
            tracing::error!(first, pages = removed.pages, %fault, "written data are lost");
        }
        fault
    }

    /// Returns whether the pages of a segment hide old bytes: the file ends within one of them on
    /// the device, and has grown since. Behind that end the block has bytes that must not become
    /// bytes of the file.
    fn hides_old_bytes(&self, segment: Segment) -> bool {
        let end = self.store.disk_size();
        let (from, to) = segment.range();
        matches!(segment.target, SegmentTarget::Mapped(_))
            && !end.is_multiple_of(PAGE)
            && self.size() > end
            && (from..to).contains(&page_of(end))
    }

    /// Returns whether a segment was to lie in the inode, where attributes have taken its room.
    fn has_left_inode(&self, segment: Segment) -> bool {
        matches!(segment.target, SegmentTarget::Inline)
            && self.store.inline_room().is_none_or(|room| segment.size > room)
    }

    /// Frees the block of the page in which the file ends on the device, which the device does not
    /// accept. As a hole the page gets another block, or reads as zeros if it is given up.
    ///
    /// # Errors
    /// The errors of [`Store::change`]. The page must stay dirty then: the size on the device does
    /// not pass it.
    fn unmap_end(&self) -> Result<(), Fault> {
        assert_held::<WriteBackLock>();
        let page = page_of(self.store.disk_size());
        let _invalidate = self.pages.invalidate.write();
        self.pages.write().each(page, page + 1, |marks, bits| marks.mapped &= !bits);
        self.store.change(Change::Free(page..page + 1))
    }

    /// Marks pages dirty again that were not written.
    fn redirty(&self, first: u64, count: u64, batch: Option<WritebackBatch>) {
        let Some(batch) = batch else { return };
        let older = self.pages.write().redirty(first, first + count, batch);
        self.pages.cache.return_pages(older.len() as u64);
    }

    /// Raises the size on the device over holes and pages that have been written.
    fn write_size_back(&self) -> Result<(), Fault> {
        assert_held::<WriteBackLock>();
        let size = self.size();
        let before = self.store.disk_size();
        if size <= before {
            return Ok(());
        }
        let dirty = self.pages.read().next_dirty(page_of(before));
        let size = size.min(dirty.map_or(u64::MAX, offset_of));
        if size <= before {
            return Ok(());
        }
        let changed = self.store.change(Change::Size(size));
        changed.inspect_err(|fault| {
            if !matches!(fault, Fault::ReadOnly) {
                self.store.tell(Event::Failed(fault));
            }
        })
    }
}

/// Returns whether storage is short below the device: other blocks can't be written either.
fn is_no_space(fault: &Fault) -> bool {
    matches!(fault, Fault::Device(error) if error.is_no_space())
}
