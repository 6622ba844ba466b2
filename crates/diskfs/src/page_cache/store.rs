//! The operations of a volume that the data of a file needs.

use std::fmt;
use std::sync::Arc;

use vfscale_sync::page::PageBox;

use super::file_pages::FilePages;
use super::mapping::Mapping;
use crate::base::fault::Fault;
use crate::format::BlockRange;

/// A change of a file on the device. Each is one transaction: it is done as a whole, or not at
/// all.
#[derive(Clone, Copy, Debug)]
pub enum Change<'a> {
    /// The blocks of a claim belong to the file from `file_block` on.
    Insert {
        /// The first block of the file.
        file_block: u64,
        /// The claim.
        run: BlockRange,
        /// Whether nothing was written to them yet.
        is_unwritten: bool,
    },
    /// The unwritten blocks among `from` to `to` of the file have been written.
    Written {
        /// The first one.
        from: u64,
        /// Behind the last one.
        to: u64,
    },
    /// The whole content of the file up to its size, which has no blocks.
    Inline(&'a [u8]),
    /// Nothing but the size.
    Size,
}

/// The result of a truncation.
#[derive(Debug)]
pub enum Truncation {
    /// The file has its new size, and all blocks behind it are freed.
    Whole,
    /// The file has its new size; some blocks behind it remain.
    Part(Fault),
    /// Nothing has changed.
    Failed(Fault),
}

/// A write of pages that may be in flight ([`Store::begin_write`]). Dropping it waits for it.
#[must_use = "only waiting shows whether it has succeeded"]
pub struct Writing<'s>(Box<dyn FnOnce() -> Result<(), Fault> + 's>);

impl<'s> Writing<'s> {
    /// Returns a write that has ended.
    pub fn ended(result: Result<(), Fault>) -> Self {
        Self::in_flight(move || result)
    }

    /// Returns a write in flight. `wait` waits for its end; dropping `wait` waits too.
    pub fn in_flight(wait: impl FnOnce() -> Result<(), Fault> + 's) -> Self {
        Self(Box::new(wait))
    }

    /// Waits for the end of the write. Blocks for I/O.
    ///
    /// # Errors
    /// The errors of the device.
    pub fn wait(self) -> Result<(), Fault> {
        (self.0)()
    }
}

impl fmt::Debug for Writing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Writing")
    }
}

/// One file of a volume, as its data see it.
///
/// Space is reserved ([`reserve`](Self::reserve)) before it is needed: write-back must not run out
/// of it.
pub trait Store {
    /// Checks that changes are possible, for a call that would otherwise fail only at write-back.
    ///
    /// # Errors
    /// [`Fault::ReadOnly`]; the error of the log, if that is shut down.
    fn changeable(&self) -> Result<(), Fault>;

    /// Checks that a call which needs more space may be accepted; includes
    /// [`changeable`](Self::changeable).
    ///
    /// # Errors
    /// Errors of [`changeable`](Self::changeable); [`Fault::NoSpace`].
    fn extendable(&self) -> Result<(), Fault> {
        self.changeable()
    }

    /// Lets the device have what it can get back, since it lacks storage. May block for the I/O.
    ///
    /// # Errors
    /// Errors of the log.
    fn make_room(&self) -> Result<(), Fault> {
        Ok(())
    }

    /// Reserves storage on the device for writing `blocks` blocks besides those of pages, calls
    /// `write`, and gives back what was reserved.
    ///
    /// # Errors
    /// [`Fault::NoSpace`]; `write` was not called. Those of `write`.
    fn write_reserved(
        &self,
        blocks: u64,
        write: impl FnOnce() -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let _ = blocks;
        write()
    }

    /// Checks that the volume can be written at the moment.
    ///
    /// # Errors
    /// [`Fault::ReadOnly`]: dirty pages stay dirty.
    fn writable(&self) -> Result<(), Fault>;

    /// Reserves blocks.
    ///
    /// # Errors
    /// [`Fault::NoSpace`].
    fn reserve(&self, blocks: u64) -> Result<(), Fault>;

    /// Returns reserved blocks to free space.
    fn unreserve(&self, blocks: u64);

    /// Returns the number of blocks at whose multiples unwritten extents may be split
    /// ([`Space::grain`](crate::alloc::space::Space::grain)); 1 for anywhere.
    fn grain(&self) -> u64;

    /// Returns the mapping of a block of the file. May block for I/O. The caller prevents the
    /// removal of the extent, by `invalidate_lock`, `i_writeback` or the inode's lock.
    ///
    /// # Errors
    /// The errors of the device, and damage.
    fn lookup(&self, block: u64) -> Result<Mapping, Fault>;

    /// Returns the bytes of a file that is stored in its inode; zeros follow, up to its size.
    fn inline(&self) -> Option<Arc<[u8]>>;

    /// Returns the largest size at which the file can be stored in its inode; `None` if it has
    /// blocks.
    fn inline_room(&self) -> Option<u64>;

    /// Returns the size in the inode: the end of the bytes of the file that are on the device.
    fn disk_size(&self) -> u64;

    /// Reads consecutive blocks of the device into pages. Blocks for I/O.
    ///
    /// # Errors
    /// The errors of the device.
    fn read_pages(&self, start: u64, into: &[PageBox]) -> Result<(), Fault>;

    /// Writes consecutive blocks of the device; a transaction that is committed after the call has
    /// returned will not be durable before them. No thread changes the pages during the call.
    /// Blocks for I/O.
    ///
    /// # Errors
    /// The errors of the device.
    fn write_pages(&self, start: u64, from: &[PageBox]) -> Result<(), Fault>;

    /// Begins to write consecutive blocks of the device as [`write_pages`](Self::write_pages) does,
    /// and returns while they are being written, if the device can. They have been written when
    /// [`Writing::wait`] has returned.
    fn begin_write(&self, start: u64, from: &Arc<Vec<PageBox>>) -> Writing<'_> {
        Writing::ended(self.write_pages(start, from))
    }

    /// Claims one to `blocks` free blocks for block `file_block` of the file and those behind, near
    /// to its blocks or to the block `near`. The caller has reserved them before.
    ///
    /// # Errors
    /// [`Fault::NoSpace`].
    fn claim(&self, file_block: u64, near: Option<u64>, blocks: u32) -> Result<BlockRange, Fault>;

    /// Returns a claim; its blocks are reserved again.
    fn unclaim(&self, run: BlockRange);

    /// Sets the blocks of a claim aside, because they cannot be written, and reserves as many again
    /// for the file. Returns false if so many are not free; the claim is then returned, as by
    /// [`unclaim`](Self::unclaim).
    fn set_aside(&self, run: BlockRange) -> bool;

    /// Applies `change` to the file on the device, and sets its size there to `disk_size`. If this
    /// fails, a claim that was to be inserted was returned, as by [`unclaim`](Self::unclaim). May
    /// block.
    ///
    /// # Errors
    /// The errors of the log and of the device, damage, no space for the tree.
    fn change(&self, change: Change<'_>, disk_size: u64) -> Result<(), Fault>;

    /// Cuts the file on the device to `size`, or leaves its size if it is not larger, and frees its
    /// blocks behind `size`: in several transactions if need be, of which the first one cuts. If it
    /// fails later, or there is a crash, the rest is freed when the volume is mounted. May block.
    fn truncate(&self, size: u64) -> Truncation;

    /// Frees the blocks `from` to `to` of the file, in several transactions if need be. May block.
    ///
    /// # Errors
    /// The errors of [`change`](Self::change); some may be freed by then.
    fn free(&self, from: u64, to: u64) -> Result<(), Fault>;

    /// Makes the written blocks `from` to `to` of the file unwritten, in several transactions if
    /// need be. May block.
    ///
    /// # Errors
    /// The errors of [`change`](Self::change); some may be unwritten by then.
    fn unwrite(&self, from: u64, to: u64) -> Result<(), Fault>;

    /// Records a failed write-back of the file, which its open files report. Does not block.
    fn write_failed(&self, fault: &Fault);

    /// Queues the file, whose pages these are, for write-back, unless it is queued already.
    fn set_dirty(&self, pages: &FilePages);

    /// Queues the file, whose pages these are, for write-back before the log is forced for another
    /// reason: its new data replace those that were cut off. Does nothing if files are not ordered
    /// in this way.
    fn note_renewed(&self, pages: &FilePages);

    /// Writes one dirty file back because memory is short, this one or another. Returns false if
    /// none waits.
    fn write_back_one(&self) -> bool;

    /// Asks another thread to write back the pages `from` to `to`, which a sequential writer has
    /// filled. A hint. Does not wait for I/O.
    fn write_behind(&self, from: u64, to: u64);

    /// Asks another thread to read the pages `from` to `to` into memory. A hint. Does not block.
    fn read_ahead(&self, from: u64, to: u64);
}
