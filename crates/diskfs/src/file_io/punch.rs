//! Holes and zeros in the middle of a file.

use std::ops::{Deref, Range};

use super::file::RegularFile;
use super::store::{Act, Change, Store};
use crate::base::fault::Fault;
use crate::page_cache::{FilePages, PAGE, offset_of};

impl<S: Store, P: Deref<Target = FilePages>> RegularFile<S, P> {
    /// Makes a hole of `len` bytes from `offset` on. Pages that are covered in part keep their
    /// blocks, and that part is zeroed. The size stays. Blocks for I/O. The caller holds the
    /// inode's lock.
    ///
    /// # Errors
    /// The errors of [`Store::may`], the device and the log; damage; [`Fault::NoSpace`] for
    /// pages that are covered in part. Part of the range may be a hole then.
    pub fn punch(&self, offset: u64, len: u64) -> Result<(), Fault> {
        self.store.may(Act::Change)?;
        self.zero(offset, len, Change::Free)
    }

    /// Sets `len` bytes from `offset` on to zero, and allocates their blocks. The file grows if it
    /// ends before, unless `keep_size`. Blocks for I/O. The caller holds the inode's lock.
    ///
    /// # Errors
    /// The errors of [`Store::may`] and [`Fault::NoSpace`], with nothing changed; the latter
    /// also if the volume is full and tree blocks are short. The errors of the device and the log,
    /// and damage, with part of the range zeroed.
    pub fn zero_range(&self, offset: u64, len: u64, keep_size: bool) -> Result<(), Fault> {
        self.store.may(Act::Unwrite)?;
        self.allocate(offset, len, true)?;
        self.zero(offset, len, Change::Unwrite)?;
        // Last: after a crash a file that has grown by the range has none of the old bytes in it.
        self.grow_over(offset.saturating_add(len), keep_size)
    }

    /// Sets `len` bytes from `offset` on to zero: bytes of pages that are covered in part, and by
    /// `change` the blocks of those that are covered as a whole, whose pages are dropped.
    fn zero(
        &self,
        offset: u64,
        len: u64,
        change: impl FnOnce(Range<u64>) -> Change<'static>,
    ) -> Result<(), Fault> {
        let range = offset..offset.saturating_add(len);
        let whole = self.zero_partial_pages(&range)?;
        if whole.is_empty() {
            return Ok(());
        }
        let writing = self.pages.writing_back.lock();
        let invalidate = self.pages.invalidate.write();
        // The pages first: none may remain that is marked as having a block.
        self.drop_pages(whole.start, whole.end);
        let done = self.store.change(change(whole));
        drop(invalidate);
        drop(writing);
        self.set_dirty();
        done
    }

    /// Zeroes the part of `range` in pages that it covers in part, and in a page that is stored in
    /// the inode. Returns the remaining pages, which it covers as a whole.
    fn zero_partial_pages(&self, range: &Range<u64>) -> Result<Range<u64>, Fault> {
        let mut whole = range.start.div_ceil(PAGE)..range.end / PAGE;
        if whole.start > whole.end {
            // Within one page.
            self.zero_within(range.start, range.end)?;
            return Ok(0..0);
        }
        self.zero_within(range.start, offset_of(whole.start))?;
        self.zero_within(offset_of(whole.end), range.end)?;
        if whole.start == 0 && !whole.is_empty() && self.store.is_inline() {
            self.dirty_inline()?;
            self.zero_within(0, PAGE)?;
            whole.start = 1;
        }
        Ok(whole)
    }
}
