//! The pages of files in memory.
//!
//! # Purpose
//!
//! A [`FilePages`] belongs to each file that was read or written: pages of 4 KiB, for which all
//! files of a volume share one budget ([`PageCache`]), and the queues of files that are to be
//! written back ([`DirtyFiles`]). This room knows no device: [`file_io`](crate::file_io) reads the
//! pages, and writes them back.
//!
//! # Locks
//!
//! [`FilePages`] has `i_writeback`, then `invalidate_lock`, which `file_io` takes, and `i_pages`,
//! of the pages in memory. That is a leaf: under it bytes of at most 64 pages are copied, and no
//! thread waits for anything. A page is written to, or inserted with its contents, under it. A
//! write to pages that are dirty already shares it with readers, who then copy again (`pages`). So
//! each read of a page sees all or nothing of a write to it.

mod budget;
mod cache;
mod dirty;
mod file_pages;
mod mapping;
mod pages;
mod units;

pub use budget::CacheBudget;
pub(crate) use cache::PageCredit;
pub use cache::{LowDirty, PageCache};
pub use dirty::DirtyFiles;
pub use file_pages::FilePages;
pub(crate) use file_pages::{InvalidateLock, WriteBackLock};
pub use mapping::Mapping;
#[cfg(test)]
pub(crate) use pages::Marks;
pub(crate) use pages::{CHUNK_PAGES, RemovedPages, WritebackBatch};
pub(crate) use units::{
    BEHIND_PAGES, PAGE, READ_PAGES_MAX, WRITE_PAGES_MAX, offset_of, page_of, pages_of,
};
