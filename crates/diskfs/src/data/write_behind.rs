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

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use vfscale_sync::worker::{Priority, WorkItem};
use vfscale_sync::{Mutex, lock_class};

use crate::inode::incore::Node;

lock_class! {
    /// The queue of write-behind requests.
    pub WriteBehindLock = ("write_behind", 31152);
}

/// The most files that may wait.
const WAITING_MAX: usize = 64;

/// Pages of a file.
pub(super) struct Request {
    pub(super) node: Arc<Node>,
    pub(super) from: u64,
    /// Behind the last one.
    pub(super) to: u64,
}

#[derive(Default)]
struct WriteBehindQueue {
    waiting: VecDeque<Request>,
    is_over: bool,
}

/// Writes the pages of a request back. Returns false if the volume's files have ended.
type WriteFn = dyn Fn(&Request) -> bool + Send + Sync;

/// The queue of write-behind, and the work item that serves it. `Send` and `Sync`.
pub(super) struct WriteBehind {
    write: Box<WriteFn>,
    item: WorkItem,
    queue: Mutex<WriteBehindQueue, WriteBehindLock>,
}

impl WriteBehind {
    /// Creates the queue, which up to `writers_max` threads, at least one, serve by `write`. That
    /// returns false if the volume's files have ended.
    pub(super) fn new(
        writers_max: usize,
        write: impl Fn(&Request) -> bool + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new_cyclic(|this: &Weak<Self>| {
            let this = Weak::clone(this);
            let run = move || this.upgrade().iter().for_each(|this| this.run());
            let item = WorkItem::new(Priority::Normal, writers_max, run);
            Self { write: Box::new(write), item, queue: Mutex::default() }
        })
    }

    /// Requests the pages `from` to `to` of a file. Never waits for I/O.
    pub(super) fn request(&self, node: &Arc<Node>, from: u64, to: u64) {
        let mut queue = self.queue.lock();
        if queue.is_over {
            return;
        }
        if let Some(same) = queue.waiting.iter_mut().find(|other| Arc::ptr_eq(&other.node, node)) {
            (same.from, same.to) = (same.from.min(from), same.to.max(to));
            return;
        }
        if queue.waiting.len() == WAITING_MAX {
            return;
        }
        queue.waiting.push_back(Request { node: Arc::clone(node), from, to });
        drop(queue);
        self.item.queue();
    }

    fn next(&self) -> Option<Request> {
        self.queue.lock().waiting.pop_front()
    }

    fn run(&self) {
        while let Some(request) = self.next() {
            if !(self.write)(&request) {
                return;
            }
        }
    }

    /// Ends it, and waits until the threads have written what they are writing. What waits is left
    /// to others: it is dirty. May be called again.
    pub(super) fn stop(&self) {
        let mut queue = self.queue.lock();
        queue.is_over = true;
        let waiting = std::mem::take(&mut queue.waiting);
        drop(queue);
        drop(waiting);
        self.item.cancel();
    }
}
