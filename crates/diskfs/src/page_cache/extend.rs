//! Sizes, and space ahead of time.

use std::ops::Range;

use vfscale_sync::atomic::Ordering;
use vfscale_sync::page::PAGE_SIZE;

use super::file_pages::FilePages;
use super::mapping::Mapping;
use super::store::{Change, Cut, Store};
use super::units::{PAGE, page_of, pages_of};
use super::write_back::Inline;
use crate::base::fault::Fault;

impl FilePages {
    /// Cuts the file, or extends it with a hole; with the same size, gives back what was allocated
    /// behind the end. Blocks for I/O. The caller has the inode's lock.
    ///
    /// # Errors
    /// Of the device, the log, damage. The file may have been cut then, and have blocks behind its
    /// end until the volume is mounted the next time.
    pub fn set_size(&self, store: &impl Store, size: u64) -> Result<(), Fault> {
        if size > self.size() {
            return self.grow_to(store, size);
        }
        let writing = self.writing_back.lock();
        let invalidate = self.invalidate.write();
        let outcome = match store.truncate(size) {
            Cut::Whole => Ok(()),
            Cut::Part(fault) => Err(fault),
            Cut::Failed(fault) => return Err(fault),
        };
        self.size.store(size, Ordering::Release);
        self.drop_pages(store, pages_of(size), u64::MAX);
        // Nothing is in flight, and nobody else writes.
        if let Some(page) = self.pages.write().page(page_of(size)) {
            page.zero((size % PAGE) as usize..PAGE_SIZE);
        }
        drop(invalidate);
        drop(writing);
        // The size on the device may still have to follow.
        store.set_dirty();
        outcome
    }

    /// Sets blocks aside for `len` bytes from `offset` on, where there are none: they read as zeros
    /// until they are written. The file grows if it ends before, unless `keep_size`. Blocks for
    /// I/O. The caller has the inode's lock.
    ///
    /// # Errors
    /// [`Fault::NoSpace`] and others, with nothing allocated.
    pub fn allocate(
        &self,
        store: &impl Store,
        offset: u64,
        len: u64,
        keep_size: bool,
    ) -> Result<(), Fault> {
        self.grow_out(store)?;
        let end = offset.saturating_add(len);
        let blocks = page_of(offset)..pages_of(end);
        {
            let _writing = self.writing_back.lock();
            let wanted = holes(store, blocks.clone())?;
            let missing: u64 = wanted.iter().map(|hole| hole.end - hole.start).sum();
            store.reserve(missing)?;
            self.fill_holes(store, &wanted, missing)?;
            self.settle(store, &wanted);
        }
        if !keep_size && end > self.size() {
            self.grow_to(store, end)?;
        }
        Ok(())
    }

    /// Gives back what was set aside for pages that have blocks by now. The caller holds
    /// `i_writeback`.
    fn settle(&self, store: &impl Store, blocks: &[Range<u64>]) {
        let mut settled = 0;
        let mut pages = self.pages.write();
        for range in blocks {
            pages.each(range.start, range.end, |marks, bits| {
                let reserved = marks.reserved & bits;
                marks.reserved &= !reserved;
                marks.mapped |= reserved;
                settled += u64::from(reserved.count_ones());
            });
        }
        drop(pages);
        self.unreserve(store, settled);
    }

    /// Makes unwritten extents of holes, for which `left` blocks are set aside. All or none.
    fn fill_holes(
        &self,
        store: &impl Store,
        wanted: &[Range<u64>],
        mut left: u64,
    ) -> Result<(), Fault> {
        let mut done = Vec::new();
        for hole in wanted {
            let mut at = hole.start;
            while at < hole.end {
                match insert_unwritten(store, at, hole.end - at) {
                    Ok(blocks) => {
                        done.push(at..at + blocks);
                        (at, left) = (at + blocks, left - blocks);
                    }
                    Err(fault) => {
                        store.unreserve(left);
                        for range in done {
                            // If this fails, too, the file keeps blocks that read as zeros.
                            let freed = store.free(range.start, range.end);
                            freed.unwrap_or_else(|fault| store.write_failed(&fault));
                        }
                        return Err(fault);
                    }
                }
            }
        }
        Ok(())
    }

    /// Gives the file blocks if it lies in its inode.
    pub(super) fn grow_out(&self, store: &impl Store) -> Result<(), Fault> {
        if store.inline().is_some() {
            self.leave_inode(store)?;
            self.write_back_as(store, Inline::Forbidden)?;
        }
        Ok(())
    }
}

/// Finds the holes among these blocks.
fn holes(store: &impl Store, blocks: Range<u64>) -> Result<Vec<Range<u64>>, Fault> {
    let (mut found, mut at) = (Vec::new(), blocks.start);
    while at < blocks.end {
        let here = match store.lookup(at)? {
            Mapping::Mapped { blocks: here, .. } => here,
            Mapping::Hole { blocks: here } => {
                let end = at.saturating_add(here.max(1)).min(blocks.end);
                found.push(at..end);
                end - at
            }
        };
        at = at.saturating_add(here.max(1));
    }
    Ok(found)
}

/// Allocates one to `blocks` blocks in a hole. Returns how many.
fn insert_unwritten(store: &impl Store, file_block: u64, blocks: u64) -> Result<u64, Fault> {
    let run = store.claim(file_block, u32::try_from(blocks).unwrap_or(u32::MAX))?;
    let change = Change::Insert { file_block, run, is_unwritten: true };
    store.change(change, store.disk_size())?;
    Ok(u64::from(run.blocks))
}
