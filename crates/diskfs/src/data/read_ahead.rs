//! Reading ahead, on threads of its own.
//!
//! A few threads read the pages that sequential readers will need next, so the device works while
//! the reader uses what it has. Each thread takes a megabyte at a time from one queue, so a window
//! of several megabytes becomes several large concurrent requests. The threads start with the first
//! request.
//!
//! A request is a hint. It is dropped if many are waiting, if the pages cannot be read (the reader
//! will get the error), and when the volume's files end. A request owns a reference to its node, as
//! the list of dirty files does. A request that is served after the file was truncated is harmless,
//! because it looks its blocks up as every reader does
//! ([`RegularFile::populate`](crate::page_cache::RegularFile::bring)).

use std::collections::VecDeque;
use std::sync::Arc;

use vfscale_sync::atomic::thread::JoinHandle;
use vfscale_sync::lock::ThreadOwner;
use vfscale_sync::{Condvar, Mutex, lock_class};

use super::threads::join_others;
use crate::inode::incore::Node;
use crate::page_cache::READ_PAGES_MAX;

lock_class! {
    /// The queue of read-ahead requests, and the threads that serve it.
    pub ReadAheadLock = ("read_ahead", 31155);
}

/// The number of threads, and so of megabytes that are read concurrently.
const READERS: usize = 3;
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
    threads: Vec<JoinHandle<()>>,
    is_over: bool,
}

/// Reads the pages from one to another, exclusive, of a file into memory. Returns false if the
/// volume's files have ended.
type ReadFn = dyn Fn(&Arc<Node>, u64, u64) -> bool + Send + Sync;

/// The threads that read ahead, and their queue. `Send` and `Sync`.
pub(super) struct ReadAhead {
    read: Box<ReadFn>,
    owner: ThreadOwner,
    queue: Mutex<ReadAheadQueue, ReadAheadLock>,
    wake: Condvar,
}

impl ReadAhead {
    /// Creates the queue of threads that will read by `read`, which returns false if the volume's
    /// files have ended.
    pub(super) fn new(
        read: impl Fn(&Arc<Node>, u64, u64) -> bool + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            read: Box::new(read),
            owner: ThreadOwner::current(),
            queue: Mutex::default(),
            wake: Condvar::default(),
        })
    }

    /// Requests the pages `from` to `to` of a file. Never blocks.
    pub(super) fn request(self: &Arc<Self>, node: &Arc<Node>, from: u64, to: u64) {
        let mut queue = self.queue.lock();
        let mut at = from;
        while at < to && queue.waiting.len() < WAITING_MAX && !queue.is_over {
            let end = (at - at % READ_PAGES_MAX).saturating_add(READ_PAGES_MAX).min(to);
            queue.waiting.push_back(Request { node: Arc::clone(node), from: at, to: end });
            at = end;
        }
        while queue.threads.len() < READERS && !queue.is_over {
            let this = Arc::clone(self);
            queue.threads.push(self.owner.spawn(move || this.run()));
        }
        self.wake.notify_all();
    }

    fn next(&self) -> Option<Request> {
        let is_idle = |queue: &mut ReadAheadQueue| queue.waiting.is_empty() && !queue.is_over;
        self.wake.wait_while(self.queue.lock(), is_idle).waiting.pop_front()
    }

    fn run(&self) {
        while let Some(Request { node, from, to }) = self.next() {
            if !(self.read)(&node, from, to) {
                return;
            }
        }
    }

    /// Ends the threads, and waits until they have read what they are reading.
    pub(super) fn stop(&self) {
        let mut queue = self.queue.lock();
        queue.is_over = true;
        let (waiting, threads) =
            (std::mem::take(&mut queue.waiting), std::mem::take(&mut queue.threads));
        self.wake.notify_all();
        drop(queue);
        drop(waiting);
        join_others(threads);
    }
}
