//! Holes and zeros in the middle of a file.

use std::ops::Range;

use super::file_pages::FilePages;
use super::store::Store;
use super::units::{PAGE, offset_of};
use crate::base::fault::Fault;

impl FilePages {
    /// Makes a hole of `len` bytes from `offset` on. Pages that are covered in part keep their
    /// blocks, and that part is zeroed. The size stays. Blocks for I/O. The caller has the inode's
    /// lock.
    ///
    /// # Errors
    /// Of the device, the log, damage, and no space for the parts of pages; some of it may be a
    /// hole then.
    pub fn punch(&self, store: &impl Store, offset: u64, len: u64) -> Result<(), Fault> {
        self.zero(store, offset, len, |whole| store.free(whole.start, whole.end))
    }

    /// Sets `len` bytes from `offset` on to zero, and allocates their blocks. The file grows if it
    /// ends before, unless `keep_size`. Blocks for I/O. The caller has the inode's lock.
    ///
    /// # Errors
    /// [`Fault::NoSpace`] with nothing changed, also if the volume is full and tree blocks are
    /// short; of the device, the log, damage, with some of it done.
    pub fn zero_range(
        &self,
        store: &impl Store,
        offset: u64,
        len: u64,
        keep_size: bool,
    ) -> Result<(), Fault> {
        if store.grain() > 1 {
            // Splitting extents that are written is not what tree blocks are kept for.
            return Err(Fault::NoSpace);
        }
        self.allocate(store, offset, len, keep_size)?;
        self.zero(store, offset, len, |whole| store.unwrite(whole.start, whole.end))
    }

    /// Sets `len` bytes from `offset` on to zero: bytes of pages that are covered in part, and by
    /// `blocks` the blocks of those that are covered as a whole, whose pages are dropped.
    fn zero(
        &self,
        store: &impl Store,
        offset: u64,
        len: u64,
        blocks: impl FnOnce(Range<u64>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let range = offset..offset.saturating_add(len);
        let whole = self.zero_edges(store, &range)?;
        if whole.is_empty() {
            return Ok(());
        }
        let writing = self.writing_back.lock();
        let invalidate = self.invalidate.write();
        // The pages first: none may stay behind that believes that it has a block.
        self.drop_pages(store, whole.start, whole.end);
        let done = blocks(whole);
        drop(invalidate);
        drop(writing);
        store.set_dirty();
        done
    }

    /// Zeros what `range` covers of the pages that it covers in part, and of a page that lies in
    /// the inode. Returns the pages that are left, covered as a whole.
    fn zero_edges(&self, store: &impl Store, range: &Range<u64>) -> Result<Range<u64>, Fault> {
        let mut whole = range.start.div_ceil(PAGE)..range.end / PAGE;
        if whole.start > whole.end {
            // Within one page.
            self.zero_within(store, range.start, range.end)?;
            return Ok(0..0);
        }
        self.zero_within(store, range.start, offset_of(whole.start))?;
        self.zero_within(store, offset_of(whole.end), range.end)?;
        if whole.start == 0 && !whole.is_empty() && store.inline().is_some() {
            self.leave_inode(store)?;
            self.zero_within(store, 0, PAGE)?;
            whole.start = 1;
        }
        Ok(whole)
    }
}
