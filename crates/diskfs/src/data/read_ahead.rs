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

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use vfscale_sync::worker::{Priority, WorkItem};
use vfscale_sync::{Mutex, lock_class};

use crate::inode::incore::Node;
use crate::page_cache::READ_PAGES_MAX;

lock_class! {
    /// The queue of read-ahead requests.
    pub ReadAheadLock = ("read_ahead", 31155);
}

/// The number of threads, and so of megabytes that are read concurrently: more than a disk needs,
/// for devices that are reached by a network.
const READERS: usize = 6;
/// The most megabytes that may wait.
const WAITING_MAX: usize = 64;

/// Pages of a file, all in one megabyte.
struct Request {
    node: Arc<Node>,
    from: u64,
    to: u64,
}

#[derive(Default)]
struct ReadAheadQueue {
    waiting: VecDeque<Request>,
    is_over: bool,
}

/// Reads the pages from one to another, exclusive, of a file into memory. Returns false if the
/// volume's files have ended.
type ReadFn = dyn Fn(&Arc<Node>, u64, u64) -> bool + Send + Sync;

/// The queue of read-ahead, and the work item that serves it. `Send` and `Sync`.
pub(super) struct ReadAhead {
    read: Box<ReadFn>,
    item: WorkItem,
    queue: Mutex<ReadAheadQueue, ReadAheadLock>,
}

impl ReadAhead {
    /// Creates the queue, which threads serve by `read`. That returns false if the volume's files
    /// have ended.
    pub(super) fn new(
        read: impl Fn(&Arc<Node>, u64, u64) -> bool + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new_cyclic(|this: &Weak<Self>| {
            let this = Weak::clone(this);
            let run = move || this.upgrade().iter().for_each(|this| this.run());
            let item = WorkItem::new(Priority::Normal, READERS, run);
            Self { read: Box::new(read), item, queue: Mutex::default() }
        })
    }

    /// Requests the pages `from` to `to` of a file. Never waits for I/O.
    pub(super) fn request(&self, node: &Arc<Node>, from: u64, to: u64) {
        let mut queue = self.queue.lock();
        let (mut at, mut added) = (from, 0);
        while at < to && queue.waiting.len() < WAITING_MAX && !queue.is_over {
            let end = (at - at % READ_PAGES_MAX).saturating_add(READ_PAGES_MAX).min(to);
            queue.waiting.push_back(Request { node: Arc::clone(node), from: at, to: end });
            (at, added) = (end, added + 1);
        }
        drop(queue);
        (0..READERS.min(added)).for_each(|_| self.item.queue());
    }

    fn next(&self) -> Option<Request> {
        self.queue.lock().waiting.pop_front()
    }

    fn run(&self) {
        while let Some(Request { node, from, to }) = self.next() {
            if !(self.read)(&node, from, to) {
                return;
            }
        }
    }

    /// Ends it, and waits until the threads have read what they are reading.
    pub(super) fn stop(&self) {
        let mut queue = self.queue.lock();
        queue.is_over = true;
        let waiting = std::mem::take(&mut queue.waiting);
        drop(queue);
        drop(waiting);
        self.item.cancel();
    }
}
