//! Files that were truncated to nothing and are being rewritten.
//!
//! A crash should leave the old bytes of such a file or the new ones, and not the truncation alone,
//! although no call has synced it. The truncation is in the log already; so a thread that forces
//! the log for another file writes the new data back before ([`Renewed::write`]). A file is renewed
//! until all dirty files have been written back in the background: by then the program that
//! rewrites it has finished.
//!
//! That is for files of the size of configuration files. One that has grown to what is written
//! behind its writer (`write_behind.rs`) is not renewed any more: the old bytes are gone, and half
//! of the new ones protect nothing, while every `fsync` would wait for them.

use std::sync::Arc;

use vfscale_sync::atomic::{AtomicU64, Ordering};
use vfscale_sync::percpu::CachePadded;

use crate::inode::incore::Node;
use crate::page_cache::{DirtyFiles, FilePages};

/// Files with data that replaces what was cut off. `Send` and `Sync`.
#[derive(Debug)]
pub(super) struct Renewed {
    files: DirtyFiles<Arc<Node>>,
    /// The number of files that wait or are being written: usually none, and then a thread that
    /// forces the log reads only this.
    left: CachePadded<AtomicU64>,
}

impl Renewed {
    /// Creates `lists` empty lists.
    pub(super) fn new(lists: usize) -> Self {
        Self { files: DirtyFiles::new(lists), left: CachePadded::new(AtomicU64::new(0)) }
    }

    /// Queues a file that is being renewed and has just been written to, unless it is queued
    /// already.
    pub(super) fn note(&self, node: &Arc<Node>, data: &FilePages) {
        if data.queue_renewed() {
            self.left.fetch_add(1, Ordering::AcqRel);
            self.files.push(Arc::clone(node));
        }
    }

    /// Calls `write` for the files that are queued now, and waits for those that other threads are
    /// writing.
    pub(super) fn write(&self, write: impl Fn(&Arc<Node>)) {
        if self.left.load(Ordering::Acquire) == 0 {
            return;
        }
        self.files.write_all(|node| {
            if node.data().is_some_and(|data| data.unqueue_renewed()) {
                write(node);
            }
            self.left.fetch_sub(1, Ordering::AcqRel);
        });
    }
}
