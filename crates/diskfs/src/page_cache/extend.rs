//! Sizes, and allocation of blocks in advance.

use std::ops::{Deref, Range};

use vfscale_sync::atomic::Ordering;
use vfscale_sync::page::PAGE_SIZE;

use super::file_pages::FilePages;
use super::mapping::Mapping;
use super::regular_file::RegularFile;
use super::store::{Change, Store, Truncation};
use super::units::{PAGE, page_of, pages_of};
use super::write_back::Inline;
use crate::base::fault::Fault;

impl<S: Store, P: Deref<Target = FilePages>> RegularFile<S, P> {
    /// Sets the size: truncates the file, or extends it with a hole. With the present size, frees
    /// blocks that were allocated behind the end. Blocks for I/O. The caller holds the inode's
    /// lock.
    ///
    /// # Errors
    /// The errors of [`Store::changeable`], the device and the log; damage. After an error of the
    /// latter kinds the file may be truncated, with blocks behind its end until the next mount.
    pub fn set_size(&self, size: u64) -> Result<(), Fault> {
        self.store.changeable()?;
        let is_renewed = size == 0 && self.size() > 0;
        if size > self.size() {
            self.grow_to(size)?;
        } else {
            self.truncate(size)?;
        }
        if is_renewed {
            self.pages.set_renewed(true);
        }
        Ok(())
    }

    /// Truncates the file to `size`, which is not more than its present size.
    fn truncate(&self, size: u64) -> Result<(), Fault> {
        let writing = self.pages.writing_back.lock();
        let invalidate = self.pages.invalidate.write();
        let outcome = match self.store.truncate(size) {
            Truncation::Whole => Ok(()),
            Truncation::Part(fault) => Err(fault),
            Truncation::Failed(fault) => return Err(fault),
        };
        self.pages.size.store(size, Ordering::Release);
        self.drop_pages(pages_of(size), u64::MAX);
        // No page is being written back, and no other thread writes.
        if let Some(page) = self.pages.write().page(page_of(size)) {
            page.zero((size % PAGE) as usize..PAGE_SIZE);
        }
        drop(invalidate);
        drop(writing);
        // Write-back may still have to change the size on the device.
        self.store.set_dirty(&self.pages);
        outcome
    }

    /// Allocates blocks for `len` bytes from `offset` on, where the file has none: they read as
    /// zeros until they are written. The file grows if it ends before, unless `keep_size`. Blocks
    /// for I/O. The caller holds the inode's lock.
    ///
    /// # Errors
    /// The errors of [`Store::changeable`], [`Fault::NoSpace`], and others; nothing was allocated
    /// then.
    pub fn allocate(&self, offset: u64, len: u64, keep_size: bool) -> Result<(), Fault> {
        self.store.extendable()?;
        self.move_out_of_inode()?;
        let end = offset.saturating_add(len);
        let blocks = page_of(offset)..pages_of(end);
        {
            let _writing = self.pages.writing_back.lock();
            let wanted = holes(&self.store, blocks.clone())?;
            let missing: u64 = wanted.iter().map(|hole| hole.end - hole.start).sum();
            self.store.reserve(missing)?;
            self.fill_holes(&wanted, missing)?;
            self.settle(&wanted);
        }
        self.grow_over(end, keep_size)
    }

    /// Lets the file grow to `end` if it ends before, unless `keep_size`. The caller holds the
    /// inode's lock.
    pub(super) fn grow_over(&self, end: u64, keep_size: bool) -> Result<(), Fault> {
        if keep_size || end <= self.size() { Ok(()) } else { self.grow_to(end) }
    }

    /// Returns the space that was reserved for pages that have blocks now. The caller holds
    /// `i_writeback`.
    fn settle(&self, blocks: &[Range<u64>]) {
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
        self.unreserve(settled);
    }

    /// Makes unwritten extents of holes, for which `left` blocks are reserved: of all, or of none.
    fn fill_holes(&self, wanted: &[Range<u64>], mut left: u64) -> Result<(), Fault> {
        let mut done = Vec::new();
        for hole in wanted {
            let mut at = hole.start;
            while at < hole.end {
                match insert_unwritten(&self.store, at, hole.end - at) {
                    Ok(blocks) => {
                        done.push(at..at + blocks);
                        (at, left) = (at + blocks, left - blocks);
                    }
                    Err(fault) => {
                        self.store.unreserve(left);
                        for range in done {
                            // If this fails, too, the file retains blocks that read as zeros.
                            let freed = self.store.free(range.start, range.end);
                            freed.unwrap_or_else(|fault| self.store.write_failed(&fault));
                        }
                        return Err(fault);
                    }
                }
            }
        }
        Ok(())
    }

    /// Moves the bytes of a file that is stored in its inode to a block.
    pub(super) fn move_out_of_inode(&self) -> Result<(), Fault> {
        if self.store.inline().is_some() {
            self.dirty_inline()?;
            self.write_back_as(Inline::Forbidden)?;
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

/// Allocates one to `blocks` blocks in a hole. Returns the number.
fn insert_unwritten(store: &impl Store, file_block: u64, blocks: u64) -> Result<u64, Fault> {
    let run = store.claim(file_block, None, u32::try_from(blocks).unwrap_or(u32::MAX))?;
    let change = Change::Insert { file_block, run, is_unwritten: true };
    store.change(change, store.disk_size())?;
    Ok(u64::from(run.blocks))
}
