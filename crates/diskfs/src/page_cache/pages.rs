//! The pages of one file in memory.
//!
//! # Shape
//!
//! Pages are in chunks of 64, with each mark as bits of a word. A call on many pages looks a chunk
//! up once, and handles all of its pages with a few operations on words.
//!
//! # Pages in write-back
//!
//! The memory of pages that are being written back moves out of its chunk, and is shared with the
//! writing thread until the write completes ([`WritebackBatch`]). No thread changes it during that
//! time: the device gets the bytes of one moment, however it transfers them, and without a copy.
//! Readers find the memory through the batch; a thread that writes to such a page allocates other
//! memory for it, which is in the chunk from then on.
//!
//! # Overwriting dirty pages
//!
//! A write to pages that are dirty already changes bytes, but no mark: it needs the pages shared
//! only, so that it and the readers copy side by side. A reader learns by the chunk's sequence
//! count that such a write was under way, and copies again; so a read of a page still sees all or
//! nothing of a write.
//!
//! # Invariants
//!
//! * A page that is present has memory in its chunk, or is being written back and has it in the
//!   batch.
//! * `unstable` contains the chunks with pages that are dirty or being written back.
//! * A chunk has a page.
//! * A dirty page has memory in its chunk.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use vfscale_sync::atomic::{AtomicU64, Ordering};
use vfscale_sync::page::{PAGE_SIZE, Page, PageBox, read_pages, write_pages};
use vfscale_sync::seqcount::SeqCount;

/// The number of pages of a chunk.
pub(crate) const CHUNK_PAGES: u64 = 64;

/// The marks of the pages of a chunk, a bit for each.
///
/// A page that is neither dirty nor being written back is what is on the device: in its block, or
/// in the inode.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    /// Pages in memory.
    pub(crate) present: u64,
    /// Pages with bytes whose write-back has not begun.
    pub(crate) dirty: u64,
    /// Pages that are being written back.
    pub(crate) writing: u64,
    /// Pages that have a block.
    pub(crate) mapped: u64,
    /// The pages for whose blocks space is reserved.
    pub(crate) reserved: u64,
    /// Pages that were dirty at some time.
    was_dirty: u64,
    /// Pages that were used since the clock scanned them.
    used: AtomicU64,
}

impl Marks {
    pub(crate) fn unstable(&self) -> u64 {
        self.dirty | self.writing
    }

    fn touch(&self, pages: u64) {
        // Most pages that are read were read before: then nothing is written.
        if self.used.load(Ordering::Relaxed) & pages != pages {
            self.used.fetch_or(pages, Ordering::Relaxed);
        }
    }

    /// Clears all marks of some pages.
    fn clear(&mut self, pages: u64) {
        let Self { present, dirty, writing, mapped, reserved, was_dirty, used } = self;
        for mark in [present, dirty, writing, mapped, reserved, was_dirty] {
            *mark &= !pages;
        }
        used.fetch_and(!pages, Ordering::Relaxed);
    }
}

/// Consecutive pages.
#[derive(Debug)]
struct PageChunk {
    marks: Marks,
    /// Odd while a writer that shares the pages with readers changes bytes.
    overwrites: SeqCount,
    memory: [Option<PageBox>; CHUNK_PAGES as usize],
}

impl Default for PageChunk {
    fn default() -> Self {
        Self {
            marks: Marks::default(),
            overwrites: SeqCount::new(),
            memory: [const { None }; CHUNK_PAGES as usize],
        }
    }
}

/// The memory of pages that are being written back.
pub(crate) type WritebackBatch = Arc<Vec<PageBox>>;

/// Pages that were removed. Dropping this frees their memory.
#[derive(Debug, Default)]
pub(crate) struct RemovedPages {
    pub(crate) pages: u64,
    pub(crate) unstable: u64,
    pub(crate) reserved: u64,
    memory: Vec<Option<PageBox>>,
    #[expect(clippy::vec_box, reason = "they are moved as they are, not copied")]
    chunks: Vec<Box<PageChunk>>,
}

/// A part of a chunk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChunkPart {
    /// The number of the chunk, and its first page.
    chunk: u64,
    base: u64,
    /// The pages.
    pub(crate) bits: u64,
}

/// The pages of a file that are in memory.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    chunks: BTreeMap<u64, Box<PageChunk>>,
    /// The chunks with pages that are dirty or being written back, and how many such pages there
    /// are.
    unstable: BTreeSet<u64>,
    unstable_pages: u64,
    /// The batches in write-back, each with its first page. They don't overlap.
    batches: Vec<(u64, WritebackBatch)>,
    /// The number of pages that were dropped and had been dirty.
    pub(crate) dropped_written: u64,
    /// The page at which the clock continues.
    hand: u64,
}

/// Returns the bits of pages from `index` on, to the end of its chunk.
fn bits_from(index: u64) -> u64 {
    u64::MAX << (index % CHUNK_PAGES)
}

/// Splits the pages `from` to `to` into parts of chunks.
fn parts(from: u64, to: u64) -> impl Iterator<Item = ChunkPart> {
    let chunks = if from < to { from / CHUNK_PAGES..to.div_ceil(CHUNK_PAGES) } else { 0..0 };
    chunks.map(move |chunk| part_of(chunk, from, to))
}

/// Returns the part of a chunk that lies within the pages `from` to `to`.
fn part_of(chunk: u64, from: u64, to: u64) -> ChunkPart {
    let base = chunk * CHUNK_PAGES;
    let begin = from.saturating_sub(base).min(CHUNK_PAGES - 1);
    let left = to.saturating_sub(base);
    let end = if left >= CHUNK_PAGES { u64::MAX } else { (1 << left) - 1 };
    ChunkPart { chunk, base, bits: end & (u64::MAX << begin) }
}

/// Iterates over the indices of set bits.
fn indices(mut bits: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let slot = (bits != 0).then(|| bits.trailing_zeros() as usize)?;
        bits &= bits - 1;
        Some(slot)
    })
}

impl Pages {
    pub(crate) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Returns the number of pages.
    pub(crate) fn len(&self) -> u64 {
        let present = |chunk: &PageChunk| u64::from(chunk.marks.present.count_ones());
        let in_batch = self.batches.iter().map(|(_, pages)| pages.len() as u64).sum::<u64>();
        // Memory, not pages: a page in write-back that is written to again has it twice.
        let doubled = |chunk: &PageChunk| {
            let has_memory = |slot: &usize| chunk.memory[*slot].is_some();
            indices(chunk.marks.writing).filter(has_memory).count() as u64
        };
        debug_assert!(
            in_batch > 0 || self.chunks.values().map(|chunk| doubled(chunk)).sum::<u64>() == 0
        );
        self.chunks.values().map(|chunk| present(chunk) + doubled(chunk)).sum()
    }

    /// Returns the number of pages that are dirty or being written back.
    pub(crate) fn unstable_pages(&self) -> u64 {
        self.unstable_pages
    }

    /// Returns the marks of the chunk that has page `index`.
    pub(crate) fn marks(&self, index: u64) -> Option<&Marks> {
        self.chunks.get(&(index / CHUNK_PAGES)).map(|chunk| &chunk.marks)
    }

    /// Returns whether a page has a mark.
    fn has(&self, index: u64, mark: impl Fn(&Marks) -> u64) -> bool {
        self.marks(index).is_some_and(|marks| mark(marks) >> (index % CHUNK_PAGES) & 1 == 1)
    }

    pub(crate) fn contains(&self, index: u64) -> bool {
        self.has(index, |marks| marks.present)
    }

    pub(crate) fn is_unstable(&self, index: u64) -> bool {
        self.has(index, Marks::unstable)
    }

    fn memory<'p>(&'p self, chunk: &'p PageChunk, base: u64, slot: usize) -> Option<&'p Page> {
        let of = |(first, pages): &'p (u64, WritebackBatch)| {
            pages.get(usize::try_from((base + slot as u64).checked_sub(*first)?).ok()?)
        };
        let in_batch = || self.batches.iter().find_map(of);
        chunk.memory[slot].as_ref().or_else(in_batch).map(|page| &**page)
    }

    /// Returns a page that is in memory.
    pub(crate) fn page(&self, index: u64) -> Option<&Page> {
        let chunk = self.chunks.get(&(index / CHUNK_PAGES))?;
        let slot = (index % CHUNK_PAGES) as usize;
        self.memory(chunk, index - slot as u64, slot)
    }

    /// Copies bytes of pages in memory from `within` of page `index` on, up to the first that
    /// is not, and to the end of the chunk at most. Returns how many; `None` if another thread
    /// has overwritten pages of the chunk meanwhile: then the bytes may be those of two moments.
    pub(crate) fn read(&self, index: u64, within: usize, into: &mut [u8]) -> Option<usize> {
        let Some(chunk) = self.chunks.get(&(index / CHUNK_PAGES)) else { return Some(0) };
        let slot = (index % CHUNK_PAGES) as usize;
        let run = (chunk.marks.present >> slot).trailing_ones() as usize;
        let wanted = (within + into.len()).div_ceil(PAGE_SIZE);
        let base = index - slot as u64;
        let run = slot..slot + run.min(wanted);
        if run.is_empty() {
            return Some(0);
        }
        chunk.marks.touch(part_of(index / CHUNK_PAGES, index, index + run.len() as u64).bits);
        let start = chunk.overwrites.try_begin()?;
        let done = read_pages(run.filter_map(|slot| self.memory(chunk, base, slot)), within, into);
        (!chunk.overwrites.retry(start)).then_some(done)
    }

    /// Returns the first page at or after `index`.
    pub(crate) fn next(&self, index: u64) -> Option<u64> {
        let mut chunks = self.chunks.range(index / CHUNK_PAGES..);
        chunks.find_map(|(number, chunk)| {
            let base = number * CHUNK_PAGES;
            let present =
                chunk.marks.present & if base < index { bits_from(index) } else { u64::MAX };
            indices(present).next().map(|slot| base + slot as u64)
        })
    }

    fn next_unstable_as(&self, index: u64, mark: impl Fn(&Marks) -> u64) -> Option<u64> {
        let mut chunks = self.unstable.range(index / CHUNK_PAGES..);
        chunks.find_map(|number| {
            let base = number * CHUNK_PAGES;
            let of_chunk = self.chunks.get(number).map_or(0, |chunk| mark(&chunk.marks));
            let bits = of_chunk & if base < index { bits_from(index) } else { u64::MAX };
            indices(bits).next().map(|slot| base + slot as u64)
        })
    }

    /// Returns the first page at or after `index` that is dirty or being written back.
    pub(crate) fn next_unstable(&self, index: u64) -> Option<u64> {
        self.next_unstable_as(index, Marks::unstable)
    }

    /// Returns the first dirty page at or after `index`.
    pub(crate) fn next_dirty(&self, index: u64) -> Option<u64> {
        self.next_unstable_as(index, |marks| marks.dirty)
    }

    /// Returns the last page that is dirty or being written back.
    pub(crate) fn last_unstable(&self) -> Option<u64> {
        let last = *self.unstable.last()?;
        let unstable = self.chunks.get(&last)?.marks.unstable();
        Some(last * CHUNK_PAGES + u64::from(unstable.checked_ilog2()?))
    }

    /// Returns the number of consecutive pages with a mark from `index` on, at most `most`.
    pub(crate) fn run(&self, index: u64, most: u64, mark: impl Fn(&Marks) -> u64) -> u64 {
        let mut run = 0;
        while run < most {
            let slot = (index + run) % CHUNK_PAGES;
            let marked = self.marks(index + run).map_or(0, &mark);
            let here = u64::from((marked >> slot).trailing_ones());
            run += here;
            if here + slot < CHUNK_PAGES {
                break;
            }
        }
        run.min(most)
    }

    /// Returns the number of consecutive dirty pages from `index` on, at most `most`.
    pub(crate) fn dirty_run(&self, index: u64, most: u64) -> u64 {
        self.run(index, most, |marks| marks.dirty)
    }

    /// Does `work` on the marks of each chunk that has some of the pages `from` to `to`.
    pub(crate) fn each(&mut self, from: u64, to: u64, mut work: impl FnMut(&mut Marks, u64)) {
        for part in parts(from, to) {
            if let Some(chunk) = self.chunks.get_mut(&part.chunk) {
                work(&mut chunk.marks, part.bits);
            }
        }
    }

    /// Updates the set of chunks with unstable pages, after marks of the pages `from` to `to` have
    /// changed. Returns the change of the number of unstable pages.
    fn recount(&mut self, from: u64, to: u64, before: u64) -> i64 {
        let after = self.count(from, to, Marks::unstable);
        for part in parts(from, to) {
            match self.chunks.get(&part.chunk).is_some_and(|chunk| chunk.marks.unstable() != 0) {
                true => self.unstable.insert(part.chunk),
                false => self.unstable.remove(&part.chunk),
            };
        }
        self.unstable_pages = self.unstable_pages + after - before;
        after as i64 - before as i64
    }

    /// Counts the pages `from` to `to` that have a mark.
    pub(crate) fn count(&self, from: u64, to: u64, mark: impl Fn(&Marks) -> u64) -> u64 {
        let marked = |part: ChunkPart| {
            let chunk = self.chunks.get(&part.chunk);
            chunk.map_or(0, |chunk| u64::from((mark(&chunk.marks) & part.bits).count_ones()))
        };
        parts(from, to).map(marked).sum()
    }

    /// Returns the number of pages from `index` on, up to `most` and the end of the chunk, that
    /// have memory of their own and need no space, so they can be written to immediately.
    fn ready(&self, index: u64, most: u64) -> u64 {
        let Some(chunk) = self.chunks.get(&(index / CHUNK_PAGES)) else { return 0 };
        let slot = (index % CHUNK_PAGES) as usize;
        let backed = (chunk.marks.mapped | chunk.marks.reserved) >> slot;
        let backed = (backed.trailing_ones() as usize).min(most as usize);
        let memory = &chunk.memory[slot..slot + backed];
        memory.iter().take_while(|memory| memory.is_some()).count() as u64
    }

    /// Returns the number of pages from `index` on, up to `most` and the end of the chunk, without
    /// memory that can be written to.
    pub(crate) fn without_memory(&self, index: u64, most: u64) -> u64 {
        let slot = (index % CHUNK_PAGES) as usize;
        let most = (most as usize).min(CHUNK_PAGES as usize - slot);
        self.chunks.get(&(index / CHUNK_PAGES)).map_or(most as u64, |chunk| {
            let memory = &chunk.memory[slot..slot + most];
            memory.iter().take_while(|memory| memory.is_none()).count() as u64
        })
    }

    /// Writes to pages from `within` of page `index` on, all in one chunk, if all of them are
    /// dirty. Returns whether it has written. The caller holds the inode's lock, so that there is
    /// no other writer; readers may be there.
    pub(crate) fn overwrite(&self, index: u64, within: usize, from: &[u8]) -> bool {
        let Some(chunk) = self.chunks.get(&(index / CHUNK_PAGES)) else { return false };
        let slot = (index % CHUNK_PAGES) as usize;
        let wanted = (within + from.len()).div_ceil(PAGE_SIZE).max(1);
        if ((chunk.marks.dirty >> slot).trailing_ones() as usize) < wanted {
            return false;
        }
        let memory = &chunk.memory[slot..slot + wanted];
        debug_assert!(memory.iter().all(Option::is_some), "a dirty page without memory");
        chunk.marks.touch(part_of(index / CHUNK_PAGES, index, index + wanted as u64).bits);
        let _overwriting = chunk.overwrites.write();
        write_pages(memory.iter().flatten().map(|page| &**page), within, from) == from.len()
    }

    /// Writes to pages from `within` of page `index` on, as far as they can be written to at once,
    /// and to the end of the chunk at most. Returns how many bytes, and how many pages were stable;
    /// `None` if page `index` can't be.
    pub(crate) fn write(&mut self, index: u64, within: usize, from: &[u8]) -> Option<(usize, u64)> {
        let wanted = (within + from.len()).div_ceil(PAGE_SIZE).max(1);
        let ready = self.ready(index, wanted as u64);
        if ready == 0 {
            return None;
        }
        let chunk = self.chunks.get(&(index / CHUNK_PAGES))?;
        let slot = (index % CHUNK_PAGES) as usize;
        let memory = chunk.memory[slot..slot + ready as usize].iter().flatten();
        let written = write_pages(memory.map(|page| &**page), within, from);
        Some((written, self.mark_dirty(index, index + ready)))
    }

    /// Marks pages that are there as dirty. Returns how many were stable.
    fn mark_dirty(&mut self, from: u64, to: u64) -> u64 {
        let before = self.count(from, to, Marks::unstable);
        self.each(from, to, |marks, bits| {
            let bits = bits & marks.present;
            marks.dirty |= bits;
            marks.was_dirty |= bits;
            marks.touch(bits);
        });
        self.recount(from, to, before).unsigned_abs()
    }

    /// Inserts a clean page. Returns false if the page is present already.
    pub(crate) fn insert_clean(&mut self, index: u64, page: PageBox, is_mapped: bool) -> bool {
        let chunk = self.chunks.entry(index / CHUNK_PAGES).or_default();
        let (slot, bit) = ((index % CHUNK_PAGES) as usize, 1 << (index % CHUNK_PAGES));
        if chunk.marks.present & bit != 0 {
            return false;
        }
        chunk.memory[slot] = Some(page);
        chunk.marks.present |= bit;
        chunk.marks.mapped |= if is_mapped { bit } else { 0 };
        true
    }

    /// Makes `memory` the dirty pages from `index` on, all in one chunk. A page that has memory by
    /// now gets the bytes of the new one. `mapped` says which of them have a block, and `granted`
    /// for which space was set aside, by bits from page `index` on; it ends before a page that
    /// needs space and has none.
    pub(crate) fn put_dirty(
        &mut self,
        index: u64,
        memory: Vec<PageBox>,
        mapped: u64,
        granted: u64,
    ) -> Put {
        let slot = (index % CHUNK_PAGES) as usize;
        let chunk = self.chunks.entry(index / CHUNK_PAGES).or_default();
        let marks = &mut chunk.marks;
        let backed = (marks.mapped | marks.reserved) >> slot;
        let count = memory.len().min((backed | mapped | granted).trailing_ones() as usize);
        let mut put = Put { count: count as u64, ..Put::default() };
        if count > 0 {
            let bits = u64::MAX >> (CHUNK_PAGES as usize - count);
            let unbacked = bits & !backed;
            marks.mapped |= (unbacked & mapped) << slot;
            marks.reserved |= (unbacked & !mapped) << slot;
            marks.present |= bits << slot;
            put.reserved = u64::from((unbacked & !mapped).count_ones());
        }
        for (held, page) in chunk.memory[slot..].iter_mut().zip(memory).take(count) {
            match held {
                Some(older) => {
                    let mut bytes = [0; PAGE_SIZE];
                    page.read(0, &mut bytes);
                    older.write(0, &bytes);
                }
                None => {
                    *held = Some(page);
                    put.pages += 1;
                }
            }
        }
        put.stable = self.mark_dirty(index, index + count as u64);
        if self.marks(index).is_some_and(|marks| marks.present == 0) {
            self.chunks.remove(&(index / CHUNK_PAGES));
        }
        put
    }

    /// Moves the memory of dirty pages to a batch: they are being written back. No other batch has
    /// any of them.
    pub(crate) fn begin(&mut self, from: u64, to: u64) -> WritebackBatch {
        let mut memory = Vec::with_capacity((to - from) as usize);
        for part in parts(from, to) {
            let Some(chunk) = self.chunks.get_mut(&part.chunk) else { continue };
            chunk.marks.writing |= part.bits;
            chunk.marks.dirty &= !part.bits;
            memory.extend(indices(part.bits).filter_map(|slot| chunk.memory[slot].take()));
        }
        debug_assert!(memory.len() as u64 == to - from);
        let batch = Arc::new(memory);
        self.batches.push((from, Arc::clone(&batch)));
        batch
    }

    /// Begins write-back as [`begin`](Self::begin), of pages whose bytes the caller copies: their
    /// memory stays.
    pub(crate) fn begin_in_place(&mut self, from: u64, to: u64) -> WritebackBatch {
        self.each(from, to, |marks, bits| {
            marks.writing |= bits;
            marks.dirty &= !bits;
        });
        WritebackBatch::default()
    }

    /// Ends the write-back of the pages `from` to `to`, whose memory the caller returns. Pages that
    /// were not written to in the meantime are stable now; the batch memory of the others is
    /// returned.
    pub(crate) fn complete(&mut self, from: u64, to: u64, batch: WritebackBatch) -> Completed {
        let before = self.count(from, to, Marks::unstable);
        self.batches.retain(|(first, _)| *first != from);
        debug_assert_eq!(Arc::strong_count(&batch), 1, "the device shares the batch");
        // A thread that reads from it holds the lock of the pages.
        let mut memory = Arc::into_inner(batch).unwrap_or_default().into_iter();
        let mut completed = Completed::default();
        for part in parts(from, to) {
            let Some(chunk) = self.chunks.get_mut(&part.chunk) else { continue };
            for slot in indices(part.bits) {
                match &mut chunk.memory[slot] {
                    Some(_) => completed.older.extend(memory.next()),
                    none => *none = memory.next(),
                }
            }
            chunk.marks.writing &= !part.bits;
        }
        completed.stable = self.recount(from, to, before).unsigned_abs();
        completed
    }

    /// Ends the write-back of the pages `from` to `to` as if it had not begun: all of them are
    /// dirty. Returns the batch memory of those that were written to in the meantime.
    pub(crate) fn redirty(&mut self, from: u64, to: u64, batch: WritebackBatch) -> Vec<PageBox> {
        let completed = self.complete(from, to, batch);
        let dirty = self.mark_dirty(from, to);
        debug_assert_eq!(dirty, completed.stable, "nothing is dirty that was not");
        completed.older
    }

    /// Removes the pages `from` to `to`. None of them is in write-back.
    pub(crate) fn remove(&mut self, from: u64, to: u64) -> RemovedPages {
        let mut removed = RemovedPages::default();
        let numbers = from / CHUNK_PAGES..to.div_ceil(CHUNK_PAGES);
        let numbers: Vec<u64> = self.chunks.range(numbers).map(|(number, _)| *number).collect();
        for number in numbers {
            let Some(chunk) = self.chunks.get_mut(&number) else { continue };
            let bits = part_of(number, from, to).bits & chunk.marks.present;
            let count = |mark: u64| u64::from((mark & bits).count_ones());
            removed.pages += count(bits);
            removed.unstable += count(chunk.marks.unstable());
            removed.reserved += count(chunk.marks.reserved);
            removed.memory.extend(indices(bits).map(|slot| chunk.memory[slot].take()));
            chunk.marks.clear(bits);
            if chunk.marks.unstable() == 0 {
                self.unstable.remove(&number);
            }
            if chunk.marks.present == 0 {
                removed.chunks.extend(self.chunks.remove(&number));
            }
        }
        self.unstable_pages -= removed.unstable;
        removed
    }

    /// Drops pages `from` to `to` that can't be written back: without a batch all of them,
    /// otherwise those that were not written to in the meantime.
    pub(crate) fn give_up(
        &mut self,
        from: u64,
        to: u64,
        batch: Option<WritebackBatch>,
    ) -> RemovedPages {
        let mut rewritten = Vec::new();
        let mut completed = Completed::default();
        if let Some(batch) = batch {
            completed = self.complete(from, to, batch);
            rewritten.extend(parts(from, to).filter_map(|part| {
                let dirty = self.chunks.get(&part.chunk)?.marks.dirty & part.bits;
                (dirty != 0).then_some(ChunkPart { bits: dirty, ..part })
            }));
        }
        let pages = completed.older.len() as u64;
        let mut removed =
            RemovedPages { pages, unstable: completed.stable, ..RemovedPages::default() };
        removed.memory.extend(completed.older.into_iter().map(Some));
        let mut at = from;
        let rewritten =
            rewritten.iter().flat_map(|part| indices(part.bits).map(|p| part.base + p as u64));
        for end in rewritten.chain([to]) {
            let part = self.remove(at, end.max(at));
            removed.pages += part.pages;
            removed.unstable += part.unstable;
            removed.reserved += part.reserved;
            removed.memory.extend(part.memory);
            at = end + 1;
        }
        self.dropped_written += 1;
        removed
    }

    /// Drops up to `want` clean pages that were not used lately, of the next `scan` ones.
    pub(crate) fn evict(&mut self, want: u64, scan: u64) -> RemovedPages {
        let (mut removed, mut looked, mut empty) = (RemovedPages::default(), 0, Vec::new());
        let hand = std::mem::take(&mut self.hand);
        for (number, chunk) in self.chunks.range_mut(hand / CHUNK_PAGES..) {
            let base = number * CHUNK_PAGES;
            let bits = if base < hand { bits_from(hand) } else { u64::MAX };
            let marks = &mut chunk.marks;
            let clean = marks.present & bits & !marks.unstable();
            looked += u64::from((marks.present & bits).count_ones());
            let left = (want - removed.pages) as usize;
            let used = marks.used.load(Ordering::Relaxed);
            let victims: Vec<usize> = indices(clean & !used).take(left).collect();
            let is_enough = victims.len() == left;
            let end = victims.last().filter(|_| is_enough).map_or(CHUNK_PAGES, |p| *p as u64 + 1);
            marks.used.fetch_and(!(clean & part_of(0, 0, end).bits), Ordering::Relaxed);
            removed.pages += victims.len() as u64;
            let victims_bits = victims.iter().fold(0, |bits, slot| bits | 1_u64 << slot);
            self.dropped_written += u64::from((marks.was_dirty & victims_bits).count_ones());
            removed.memory.extend(victims.iter().map(|slot| chunk.memory[*slot].take()));
            marks.clear(victims_bits);
            if marks.present == 0 {
                empty.push(*number);
            }
            // At the end it restarts from the first page.
            if is_enough || looked >= scan {
                self.hand = base + end;
                break;
            }
        }
        removed.chunks.extend(empty.iter().filter_map(|number| self.chunks.remove(number)));
        removed
    }
}

/// The result of inserting pages.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Put {
    /// The number of pages that were inserted or written to.
    pub(crate) count: u64,
    /// The number of pages that are new memory of the file.
    pub(crate) pages: u64,
    /// The number of pages that need the space that was reserved for them.
    pub(crate) reserved: u64,
    /// The number of pages that were stable.
    pub(crate) stable: u64,
}

/// The result of ending a write-back batch.
#[derive(Debug, Default)]
pub(crate) struct Completed {
    /// The number of pages that are stable now.
    pub(crate) stable: u64,
    /// The batch memory of pages that have other memory now.
    pub(crate) older: Vec<PageBox>,
}

#[cfg(all(test, not(shuttle)))]
mod tests;
