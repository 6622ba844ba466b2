//! Writing behind sequential writers.
//!
//! A writer that fills a file in order asks for the write-back of each few megabytes behind it
//! ([`RegularFile::write`](crate::file_io::RegularFile::write)). So the device works while the
//! writer copies, and a call that makes the file durable finds little left to write. Requests for
//! one file that no thread has taken yet are joined. A thread that serves a request begins with
//! nothing that another one writes: two files are written back by two threads, and as many as there
//! are lists of dirty files at most.
//!
//! A request is a hint. The file stays on the list of dirty files, so a thread that makes
//! everything durable finds it there, and waits for what is being written here (`i_writeback`). An
//! error is recorded as one of any write-back. A request that is served after the file was
//! truncated finds nothing.

use std::ops::Range;
use std::sync::Arc;

use vfscale_sync::lock_class;

use super::requests::{Request, Requests};
use crate::inode::incore::Node;

lock_class! {
    /// The queue of write-behind requests.
    pub WriteBehindLock = ("write_behind", 31152);
}

/// The most files that may wait.
const WAITING_MAX: usize = 64;

/// The queue of write-behind.
pub(super) type WriteBehind = Requests<WriteBehindLock>;

impl WriteBehind {
    /// Requests the write-back of pages of a file. Never waits for I/O.
    pub(super) fn request(&self, node: &Arc<Node>, pages: Range<u64>) {
        self.add(|waiting| {
            if let Some(same) = waiting.iter_mut().find(|other| Arc::ptr_eq(&other.node, node)) {
                let Range { start, end } = &mut same.pages;
                (*start, *end) = (pages.start.min(*start), pages.end.max(*end));
                return 0;
            }
            if waiting.len() == WAITING_MAX {
                return 0;
            }
            waiting.push_back(Request { node: Arc::clone(node), pages });
            1
        });
    }
}
