//! The state that the regular files of a volume share.

use std::sync::Arc;

use vfscale_sync::atomic::{AtomicU32, Ordering};
use vfscale_sync::errseq::ErrorSeq;

use super::bad_blocks::BadBlocks;
use super::discarder::Discarder;
use super::flusher::Flusher;
use super::gate::Gate;
use super::read_ahead::ReadAhead;
use super::renewed::Renewed;
use super::write_behind::WriteBehind;
use crate::inode::incore::Node;
use crate::page_cache::{DirtyFiles, FilePages, PageCache};
use crate::volume::Volume;

/// The number of writes of data after which a lack of storage is a new one.
const WRITES_UNTOLD: u32 = 1000;

/// The state that the regular files of a volume share. `Send` and `Sync`.
pub(super) struct FilesState {
    pub(super) volume: Arc<Volume>,
    pub(super) pages: Arc<PageCache>,
    /// Files with data or times to be written back.
    pub(super) dirty: DirtyFiles<Arc<Node>>,
    /// Errors of write-back of any file (`s_wb_err`).
    pub(super) write_errors: ErrorSeq,
    /// Files that were truncated to nothing and are being rewritten, if their data are to reach the
    /// device before the log does.
    pub(super) renewed: Option<Renewed>,
    pub(super) bad_blocks: BadBlocks,
    /// The number of writes of data that must succeed before a lack of storage is told again.
    pub(super) untold: AtomicU32,
    /// Calls that change data are inside.
    pub(super) gate: Gate,
    /// The most log blocks that a transaction reserves.
    pub(super) log_blocks_max: u32,
    pub(super) flusher: Arc<Flusher>,
    pub(super) discarder: Arc<Discarder>,
    pub(super) read_ahead: Arc<ReadAhead>,
    pub(super) write_behind: Arc<WriteBehind>,
}

impl FilesState {
    /// Notes that data were written.
    pub(super) fn has_room(&self) {
        let untold = self.untold.load(Ordering::Relaxed);
        if untold > 0 {
            self.untold.store(untold - 1, Ordering::Relaxed);
        }
    }

    /// Notes that data could not be written for lack of storage. Returns whether to tell it: some
    /// writes may still succeed, and the lack is the same.
    pub(super) fn is_new_lack(&self) -> bool {
        self.untold.swap(WRITES_UNTOLD, Ordering::Relaxed) == 0
    }

    /// Queues a file with these pages for write-back, unless it is queued already, and asks for
    /// write-back in the background if much is dirty.
    pub(super) fn set_dirty(&self, node: &Arc<Node>, pages: &FilePages) {
        self.dirty.add(pages, || Arc::clone(node));
        if self.pages.is_dirty() {
            self.flusher.ask();
        }
    }
}
