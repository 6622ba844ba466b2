//! The operations of a volume that the data of a file needs.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use vfscale_sync::page::PageBox;

use crate::base::fault::Fault;
use crate::format::BlockRange;
use crate::format::extent::Extent;
use crate::page_cache::{FilePages, Mapping};

/// A change of a file on the device. Each is one transaction, done as a whole or not at all; only
/// [`Free`](Self::Free) and [`Unwrite`](Self::Unwrite) may take several. A number is the size of
/// the file on the device from then on.
#[derive(Clone, Debug)]
pub enum Change<'a> {
    /// The extent, whose blocks were claimed, belongs to the file.
    Insert(Extent, u64),
    /// The unwritten blocks in the range have been written. The store may make others around them
    /// written too, with zeros.
    Written(Range<u64>, u64),
    /// All bytes of the file, which has no blocks.
    Inline(&'a [u8], u64),
    /// Nothing but the size.
    Size(u64),
    /// The blocks in the range are freed.
    Free(Range<u64>),
    /// The blocks in the range are unwritten from then on: they read as zeros.
    Unwrite(Range<u64>),
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

/// An act that a volume may refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// To change the file, by a call that would otherwise fail only at write-back.
    Change,
    /// To change it by a call that needs more space.
    Extend,
    /// To make written blocks unwritten, by a call.
    Unwrite,
    /// To write dirty pages back. They stay dirty otherwise.
    WriteBack,
}

/// An event of the file.
#[derive(Clone, Debug)]
pub enum Event<'a> {
    /// The file, whose pages these are, is to be written back: queues it, unless it is queued
    /// already.
    Dirty(&'a FilePages),
    /// The new data of the file, whose pages these are, replaces what was cut off: queues it for
    /// write-back before the log is forced for another reason, if files are ordered in this way.
    Renewed(&'a FilePages),
    /// A sequential writer has filled these pages. A hint to write them back in another thread.
    Filled(Range<u64>),
    /// A sequential reader will come to these pages. A hint to read them in another thread.
    Awaited(Range<u64>),
    /// Write-back has failed: open files report it.
    Failed(&'a Fault),
}

/// Reserved blocks. Dropping this returns those that were not [kept](Self::keep) to free space.
#[derive(Debug)]
#[must_use = "the blocks are free again when this is dropped"]
pub struct Reserved<'s, S: Store> {
    store: &'s S,
    blocks: u64,
}

impl<'s, S: Store> Reserved<'s, S> {
    /// Returns `blocks` reserved blocks of `store`.
    pub fn new(store: &'s S, blocks: u64) -> Self {
        Self { store, blocks }
    }

    /// Notes that `blocks` of them stay reserved without this: for pages, or by a claim.
    pub fn keep(&mut self, blocks: u64) {
        debug_assert!(blocks <= self.blocks, "more blocks than were reserved");
        self.blocks -= blocks;
    }
}

impl<S: Store> Drop for Reserved<'_, S> {
    fn drop(&mut self) {
        if self.blocks > 0 {
            self.store.unreserve(self.blocks);
        }
    }
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

/// One file of a volume, as its data see it: where its blocks are ([`map`](Self::map)), room for
/// more, its device, and whom to tell.
///
/// Space is reserved ([`reserve`](Self::reserve)) before it is needed: write-back must not run out
/// of it.
pub trait Store: Sized {
    /// Checks that an act is possible at the moment.
    ///
    /// # Errors
    /// [`Fault::ReadOnly`]; the error of the log, if that is shut down; [`Fault::NoSpace`].
    fn may(&self, act: Act) -> Result<(), Fault>;

    /// Lets the device have what it can get back, since it lacks storage. May block for the I/O.
    ///
    /// # Errors
    /// Errors of the log.
    fn make_room(&self) -> Result<(), Fault> {
        Ok(())
    }

    /// Reserves blocks.
    ///
    /// # Errors
    /// [`Fault::NoSpace`].
    fn reserve(&self, blocks: u64) -> Result<Reserved<'_, Self>, Fault>;

    /// Returns reserved blocks to free space.
    fn unreserve(&self, blocks: u64);

    /// Returns the mapping of a block of the file: [`Mapped`](Mapping::Mapped) only up to the size
    /// on the device. May block for I/O. The caller prevents the removal of the extent, by
    /// `invalidate_lock`, `i_writeback` or the inode's lock.
    ///
    /// # Errors
    /// The errors of the device, and damage.
    fn map(&self, block: u64) -> Result<Mapping, Fault>;

    /// Returns whether the file has bytes in its inode ([`Mapping::Inline`]).
    fn is_inline(&self) -> bool;

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

    /// Begins to write consecutive blocks of the device, and returns while they are being written,
    /// if the device can. They have been written when [`Writing::wait`] has returned: a transaction
    /// that is committed afterwards will not be durable before them. No thread changes the pages
    /// until then. Blocks for I/O.
    fn begin_write(&self, start: u64, from: &Arc<Vec<PageBox>>) -> Writing<'_>;

    /// Claims one to `blocks` free blocks for block `file_block` of the file and those behind, near
    /// to its blocks or to the block `near`. The caller has reserved them before.
    ///
    /// # Errors
    /// [`Fault::NoSpace`].
    fn claim(&self, file_block: u64, near: Option<u64>, blocks: u32) -> Result<BlockRange, Fault>;

    /// Returns a claim; its blocks are reserved again. Those of a bad one cannot be written: they
    /// are set aside, and as many others are reserved. Returns whether this was done.
    fn give_back(&self, claim: BlockRange, is_bad: bool) -> bool;

    /// Changes the file on the device. If this fails, a claim that was to be inserted was
    /// [given back](Self::give_back), and some blocks of a range may be freed or unwritten by then.
    /// May block.
    ///
    /// # Errors
    /// The errors of the log and of the device, damage, no space for the tree.
    fn change(&self, change: Change<'_>) -> Result<(), Fault>;

    /// Cuts the file on the device to `size`, or leaves its size if it is not larger, and frees its
    /// blocks behind `size`: in several transactions if need be, of which the first one cuts. If it
    /// fails later, or there is a crash, the rest is freed when the volume is mounted. May block.
    fn truncate(&self, size: u64) -> Truncation;

    /// Takes note of an event. Does not wait for I/O.
    fn tell(&self, event: Event<'_>);

    /// Writes one dirty file back because memory is short, this one or another. Returns false if
    /// none waits.
    fn write_back_one(&self) -> bool;
}
