//! Files that were cut to nothing and are being written anew.
//!
//! A crash is to leave the old bytes of such a file or the new ones, and not the cut alone, though
//! nobody has synced it. The cut is in the log already; so whoever forces the log for the sake of
//! another file writes the new data back before ([`Renewed::write`]). A file stays one of these
//! until the background writer has written back all that is dirty: by then the program that renews
//! it is done.

use std::sync::Arc;

use vfscale_sync::atomic::{AtomicU64, Ordering};
use vfscale_sync::percpu::CachePadded;

use crate::inode::incore::Node;
use crate::page_cache::{DirtyFiles, FilePages};

/// Files with data that replace what was cut off. `Send` and `Sync`.
#[derive(Debug)]
pub(super) struct Renewed {
    files: DirtyFiles<Arc<Node>>,
    /// How many wait, or are being written: mostly none, which is all that whoever forces the log
    /// reads.
    left: CachePadded<AtomicU64>,
}

impl Renewed {
    /// Makes `lists` empty lists.
    pub(super) fn new(lists: usize) -> Self {
        Self { files: DirtyFiles::new(lists), left: CachePadded::new(AtomicU64::new(0)) }
    }

    /// Adds a file that has just been written to, if it is being renewed and not there already.
    pub(super) fn note(&self, node: &Arc<Node>, data: &FilePages) {
        if data.queue_renewed() {
            self.left.fetch_add(1, Ordering::AcqRel);
            self.files.push(Arc::clone(node));
        }
    }

    /// Writes those back with `write` that are there now, and waits for those that others are
    /// writing.
    pub(super) fn write(&self, write: impl Fn(&Arc<Node>)) {
        if self.left.load(Ordering::Acquire) == 0 {
            return;
        }
        let mark = self.files.mark();
        while let Some(node) = self.files.take_before(&mark) {
            if let Some(data) = node.data() {
                data.unqueue_renewed();
            }
            write(&node);
            self.left.fetch_sub(1, Ordering::AcqRel);
        }
        self.files.wait(&mark);
    }
}
