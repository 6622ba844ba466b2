//! The data of files: their pages in memory, and how these are read and written back.
//!
//! # Purpose
//!
//! A [`RegularFile`] is a file during one call: its pages in memory
//! ([`FilePages`](crate::page_cache::FilePages)), and the [`Store`] with all that it needs of its
//! volume. Writing changes pages and reserves space; write-back decides where the data will lie, so
//! much of it lies in consecutive blocks, and data that is removed before never costs a block.
//!
//! # Concurrent calls on a file
//!
//! | call | holds |
//! | --- | --- |
//! | [`read`](RegularFile::read) of missing pages, read-ahead | `invalidate_lock` as a reader, the lock of the megabyte that is read |
//! | [`write`](RegularFile::write) | the VFS's lock of the inode |
//! | [`write_back_within`](RegularFile::write_back_within) a rename | `i_writeback` |
//! | [`write_back`](RegularFile::write_back), [`write_behind`](RegularFile::write_behind) | `i_writeback`, for up to eight segments of at most four megabytes at a time |
//! | [`set_size`](RegularFile::set_size) to less, punching, zeroing | the VFS's lock, `i_writeback`, `invalidate_lock` as the writer |
//! | [`allocate`](RegularFile::allocate) | the VFS's lock, `i_writeback` |
//! | dropping clean pages | nothing |
//!
//! Locks are taken in this order; then the volume's transactions, the lock of the extents, and
//! those below it, and last `i_pages` of the pages in memory. The expensive steps for new pages are
//! done before it, once for all pages of a call that lie in one chunk of 64: reserving space,
//! allocating memory, and filling it.
//!
//! # Why no data gets lost
//!
//! 1. **A page that is written to during its write-back.** Write-back takes the mark *dirty* from a
//!    page together with its memory, under `i_pages`, and passes that memory to the device. A
//!    thread that writes to the page from then on has to take other memory for it, and marks it
//!    again. So the device gets the bytes of one moment, and later ones will be written again. One
//!    thread at a time writes a file back (`i_writeback`), so older bytes never reach the device
//!    after newer ones.
//! 2. **A clean page that is dropped.** Pages that are dirty or being written back are not dropped.
//!    Write-back of a page ends when its transaction has been committed: a thread that does not
//!    find the page finds its block.
//! 3. **Reading against writing.** A thread that misses a page reads its block without `i_pages`,
//!    and inserts the page afterwards if none was inserted in the meantime. It could be out of date
//!    only if, in between, the page was inserted, written back and dropped again: dropping a page
//!    that was ever written increments `Pages::dropped_written`, and if the count has changed, the
//!    bytes that were read do not enter the cache. (The reader may return them: it began before the
//!    write did.)
//! 4. **Reading against truncation.** A thread that misses a page holds `invalidate_lock` from
//!    before it looks into memory until it has inserted the page. A thread that frees blocks holds
//!    it as the writer until both the blocks and the pages are removed. So no block is read that
//!    belongs to another file by then, and no page of a freed block remains.
//! 5. **Write-back against truncation.** Both hold `i_writeback`, so none is under way.
//! 6. **Memory is exhausted.** Reading then bypasses the cache. A writer writes files back itself,
//!    which needs no lock that a writer of another file holds, and no page.
//!
//! # Why no old bytes reappear
//!
//! The size on the device says where the bytes of the file end there, whatever a block holds behind
//! it. These rules maintain that:
//!
//! * Bytes of a page behind the end of the file are zero in memory.
//! * A file is written back in ascending order, and the size on the device grows in the transaction
//!   that adds the blocks, only over holes and bytes that have been written: up to the first page
//!   that is dirty by then, and to no more than the size was before the pages were copied. So
//!   blocks with bytes never lie behind the size on the device; unwritten ones may.
//! * A file that grows from within a block that has bytes makes that page dirty, including zeros
//!   behind the old end; so the size on the device passes it only after they were written. If they
//!   can't be, the block is freed first: the page gets another one, or is a hole.
//! * Data reaches the device before the transaction that leads to it is durable: the store marks
//!   it, and the log flushes the device first.
//! * Allocated blocks are unwritten until data was written to them.
//!
//! # Two segments in flight
//!
//! Write-back begins to write a segment while the one before is still being written, so the device
//! has requests at all times. Nothing above depends on a single one:
//!
//! * The transaction of a segment is committed after its own write has ended, and the store marks
//!   the data as written before. The blocks of the next segment are only claimed by then: no
//!   transaction refers to them.
//! * The changes are made in ascending order. The size on the device advances up to the first page
//!   that is dirty or still being written.
//! * `i_writeback` is released when nothing is being written. So a thread that truncates the file,
//!   or makes it durable, finds no write in flight.
//! * If a segment fails, the next one is waited for and taken back: its claim is returned, and its
//!   pages are dirty again. So a failure is handled as if nothing else was in flight.
//! * A segment that makes unwritten blocks around it written, with zeros, is the only one.
//!
//! # Errors of the device
//!
//! If a page can't be read, the call fails. If a segment can't be written back, it is halved until
//! the pages are found that the device does not accept. For a page without a block another block is
//! tried, and the bad one is set aside for now (`bad_blocks`). A page that still can't be written
//! is given up, as it would stay in memory forever otherwise: it is dropped, so the file reads as
//! what is on the device (a hole if the page had no block), its space is returned, and the store
//! records the error ([`Event::Failed`]). Each open file reports it once, from its next call
//! that makes the file durable.

mod extend;
mod file;
mod punch;
mod read;
mod seek;
mod store;
mod write;
mod write_back;

pub use file::RegularFile;
pub use store::{Act, Change, Event, Reserved, Store, Truncation, Writing};

#[cfg(test)]
pub(crate) mod tests;
