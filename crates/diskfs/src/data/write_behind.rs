//! Writing behind sequential writers, on threads of its own.
//!
//! A writer that fills a file in order asks for the write-back of each few megabytes behind it
//! ([`RegularFile::write`](crate::page_cache::RegularFile::write)). So the device works while the
//! writer copies, and a call that makes the file durable finds little left to write. Requests for
//! one file that no thread has taken yet are joined. A thread that serves a request begins with
//! nothing that another one writes: two files are written back by two threads.
//!
//! The threads start when they are first needed, one with each request that finds none idle, up to
//! the number of lists of dirty files. An idle one sleeps until there is a request.
//!
//! A request is a hint. The file stays on the list of dirty files, so a thread that makes
//! everything durable finds it there, and waits for what is being written here (`i_writeback`). An
//! error is recorded as one of any write-back. A request that is served after the file was
//! truncated finds nothing.

use std::collections::VecDeque;
use std::sync::Arc;

use vfscale_sync::atomic::thread::JoinHandle;
use vfscale_sync::lock::ThreadOwner;
use vfscale_sync::{Condvar, Mutex, lock_class};

use super::threads::join_others;
use crate::inode::incore::Node;

lock_class! {
    /// The queue of write-behind requests, and the threads that serve it.
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
    threads: Vec<JoinHandle<()>>,
    idle: usize,
    is_over: bool,
}

/// Writes the pages of a request back. Returns false if the volume's files have ended.
type WriteFn = dyn Fn(&Request) -> bool + Send + Sync;

/// The threads that write behind, and their queue. `Send` and `Sync`.
pub(super) struct WriteBehind {
    write: Box<WriteFn>,
    writers_max: usize,
    owner: ThreadOwner,
    queue: Mutex<WriteBehindQueue, WriteBehindLock>,
    wake: Condvar,
}

impl WriteBehind {
    /// Creates the queue of up to `writers_max` threads, at least one, that will write by `write`,
    /// which returns false if the volume's files have ended.
    pub(super) fn new(
        writers_max: usize,
        write: impl Fn(&Request) -> bool + Send + Sync + 'static,
    ) -> Arc<Self> {
        let (write, writers_max) = (Box::new(write), writers_max.max(1));
        Arc::new(Self {
            write,
            writers_max,
            owner: ThreadOwner::current(),
            queue: Mutex::default(),
            wake: Condvar::default(),
        })
    }

    /// Requests the pages `from` to `to` of a file. Never waits for I/O.
    pub(super) fn request(self: &Arc<Self>, node: &Arc<Node>, from: u64, to: u64) {
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
        if queue.waiting.len() > queue.idle && queue.threads.len() < self.writers_max {
            let this = Arc::clone(self);
            queue.threads.push(self.owner.spawn(move || this.run()));
        }
        drop(queue);
        self.wake.notify_all();
    }

    fn next(&self) -> Option<Request> {
        let mut queue = self.queue.lock();
        queue.idle += 1;
        let is_idle = |queue: &mut WriteBehindQueue| queue.waiting.is_empty() && !queue.is_over;
        queue = self.wake.wait_while(queue, is_idle);
        queue.idle -= 1;
        queue.waiting.pop_front()
    }

    fn run(&self) {
        while let Some(request) = self.next() {
            if !(self.write)(&request) {
                return;
            }
        }
    }

    /// Ends the threads, and waits until they have written what they are writing. What waits is
    /// left to others: it is dirty. May be called again.
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
