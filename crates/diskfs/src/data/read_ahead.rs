//! Reading ahead.
//!
//! A few threads read the pages that sequential readers will need next, so the device works while
//! the reader uses what it has. Each thread takes a megabyte at a time from one queue, so a window
//! of several megabytes becomes several large concurrent requests.
//!
//! A request is a hint. It is dropped if many are waiting, if the pages cannot be read (the reader
//! will get the error), and when the volume's files end. A request owns a reference to its node, as
//! the list of dirty files does. A request that is served after the file was truncated is harmless,
//! because it looks its blocks up as every reader does
//! (`RegularFile::populate`).

use std::ops::Range;
use std::sync::Arc;

use vfscale_sync::lock_class;

use super::requests::{Request, Requests};
use crate::inode::incore::Node;
use crate::page_cache::READ_PAGES_MAX;

lock_class! {
    /// The queue of read-ahead requests.
    pub ReadAheadLock = ("read_ahead", 31155);
}

/// The number of threads, and so of megabytes that are read concurrently: more than a disk needs,
/// for devices that are reached by a network.
pub(super) const READERS: usize = 6;
/// The most megabytes that may wait.
const WAITING_MAX: usize = 64;

/// The queue of read-ahead. The pages of a request are in one megabyte.
pub(super) type ReadAhead = Requests<ReadAheadLock>;

impl ReadAhead {
    /// Requests the reading of pages of a file. Never waits for I/O.
    pub(super) fn request(&self, node: &Arc<Node>, pages: Range<u64>) {
        self.add(|waiting| {
            let (mut at, mut added) = (pages.start, 0);
            while at < pages.end && waiting.len() < WAITING_MAX {
                let end = (at - at % READ_PAGES_MAX).saturating_add(READ_PAGES_MAX).min(pages.end);
                waiting.push_back(Request { node: Arc::clone(node), pages: at..end });
                (at, added) = (end, added + 1);
            }
            added.min(READERS)
        });
    }
}
