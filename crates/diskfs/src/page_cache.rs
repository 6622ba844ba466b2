//! The data of files: what of it is in memory, and how it comes from the device and goes there.
//!
//! # Purpose
//!
//! A [`FilePages`] belongs to each file that was read or written. It keeps pages of 4 KiB, which all
//! files of a volume share one budget for ([`PageCache`]). Writing changes pages and sets space
//! aside; where the data will lie is decided when it is written back, so that much of it lies in
//! one piece, and what is gone before never costs a block. What a file needs of its volume is a
//! [`Store`].
//!
//! # Who is where at the same time
//!
//! | call | holds |
//! | --- | --- |
//! | [`read`](RegularFile::read), and reading ahead | of what it does not find in memory: `invalidate_lock` as a reader, the lock of its megabyte |
//! | [`write`](RegularFile::write) | the VFS's lock of the inode |
//! | [`write_back`](RegularFile::write_back) | `i_writeback`, for one piece of at most four megabytes at a time |
//! | [`set_size`](RegularFile::set_size) to less, punching, zeroing | the VFS's lock, `i_writeback`, `invalidate_lock` as the writer |
//! | [`allocate`](RegularFile::allocate) | the VFS's lock, `i_writeback` |
//! | dropping clean pages | nothing |
//!
//! In this order; then the volume's transactions, the lock of the extents, and those below it.
//! `i_pages`, of the pages in memory, is a leaf: with it bytes of at most 64 pages are copied, and
//! nothing is waited for. A page is written to, or put in full, with it held, so that each read of
//! a page sees a write to it wholly or not at all. What is costly about new pages is done before,
//! and once for all of a call that lie in one chunk of 64 (`pages`): space is set aside, memory is
//! taken, and filled.
//!
//! # Why nothing gets lost
//!
//! 1. **A page that is written to while it is being written back.** Write-back takes the mark
//!    *dirty* from a page together with its memory, with `i_pages` held, and hands that memory to
//!    the device; whoever writes to the page from then on has to take other memory for it, and
//!    marks it again. So the device gets what was there at one moment, and what came later will be
//!    written again. One thread at a time writes a file back (`i_writeback`), so that older bytes
//!    never reach the device after newer ones.
//! 2. **A clean page that is dropped.** Pages that are dirty or being written back are not. A page
//!    stops being written back when its transaction has been committed: whoever does not find it
//!    finds its block.
//! 3. **Reading against writing.** Who misses a page reads its block without `i_pages`, and puts it
//!    in afterwards if there is none by then. It could be out of date only if meanwhile the page
//!    came, was written back and dropped again: dropping a page that was ever written counts up
//!    `Pages::dropped_written`, and a count that has changed keeps what was read out of the cache.
//!    (The reader may have it all the same: it began before the write did.)
//! 4. **Reading against cutting.** Who misses a page holds `invalidate_lock` from before it looks
//!    into memory until it has put the page in; whoever takes blocks away holds it as the writer
//!    until the blocks and the pages are both gone. So no block is read that belongs to somebody
//!    else by then, and no page stays behind of a block that is gone.
//! 5. **Write-back against cutting.** Both hold `i_writeback`, so none is under way.
//! 6. **Memory that runs out.** Reading does without the cache then. A writer writes files back
//!    itself, which needs no lock that a writer of another file holds, and no page.
//!
//! # Why no old bytes ever come back
//!
//! The size on the device says where the bytes of the file end there, whatever the block holds
//! behind it, and these rules keep it so:
//!
//! * Bytes of a page behind the end of the file are zero in memory.
//! * A file is written back in ascending order, and the size on the device goes up in the same
//!   transaction as blocks come, over nothing but bytes that have been written and holes: up to the
//!   first page that is dirty by then, and to no more than the size was before the pages were
//!   copied. So blocks with bytes never lie behind the size on the device; unwritten ones may.
//! * A file that grows out of the middle of a block that has bytes makes that page dirty, zeros
//!   behind the old end included; so the size on the device passes it only after they were written.
//! * Data reach the device before the transaction that leads to them is durable: the store marks
//!   them, and the log flushes the device first.
//! * Blocks that are set aside are unwritten until something was written there.
//!
//! # Errors of the device
//!
//! What can't be read fails the call. Of what can't be written back, pieces are halved until the
//! pages are found that the device does not take. For a page that has no block yet another one is
//! tried, and the bad one is left out for now (`bad_blocks`). A page that is left is given up, as
//! otherwise it would stay in memory for ever: it is dropped, so that the file reads as what is on
//! the device (a hole if it had no block there), its space is given back, and the store is told
//! ([`Store::write_failed`]), so that each open file is told of it once, by its next call that
//! makes the file durable.

mod cache;
mod dirty;
mod extend;
mod file_pages;
mod mapping;
mod pages;
mod punch;
mod read;
mod regular_file;
mod seek;
mod store;
mod units;
mod write;
mod write_back;

pub use cache::{ClockLock, FillLock, PageCache};
pub use dirty::{DirtyFiles, DirtyFilesLock};
pub use file_pages::{FilePages, InvalidateLock, PagesLock, WriteBackLock};
pub use mapping::Mapping;
pub use regular_file::RegularFile;
pub use store::{Change, Cut, Store};
pub(crate) use units::{PAGE, READ_PAGES_MAX, pages_of};

#[cfg(test)]
pub(crate) mod tests;
