//! Reading ahead beside whoever reads.
//!
//! A few threads bring what readers in order will ask for next, so that the device is busy while
//! the reader uses what it has. Each takes a megabyte at a time from one queue; so a window of
//! several is several large requests at once. They are started when the first is asked for.
//!
//! What is asked for is a hint. It is dropped if much is waiting, if it can't be read (the reader
//! will find out), and at the end. A request has its node, as the list of dirty files has; that it
//! may come too late for a file which has been cut meanwhile does no harm, since it looks for
//! blocks as every reader does ([`RegularFile::bring`](crate::page_cache::RegularFile::bring)).

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};

use vfscale_sync::{Condvar, Mutex, lock_class};

use super::files::Files;
use crate::inode::incore::Node;
use crate::page_cache::PIECE_PAGES;

lock_class! {
    /// The queue of read-ahead requests, and the threads that serve it.
    pub ReadAheadLock = ("read_ahead", 31155);
}

/// How many threads there are: so many megabytes are read at once.
const READERS: usize = 3;
/// How many megabytes may wait.
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

/// The threads that read ahead, and what they are to do. `Send` and `Sync`.
#[derive(Default)]
pub(super) struct ReadAhead {
    queue: Mutex<ReadAheadQueue, ReadAheadLock>,
    wake: Condvar,
}

impl ReadAhead {
    /// Asks for the pages `from` to `to` of a file of `files`. Never blocks.
    pub(super) fn ask(self: &Arc<Self>, files: &Weak<Files>, node: &Arc<Node>, from: u64, to: u64) {
        let mut queue = self.queue.lock();
        let mut at = from;
        while at < to && queue.waiting.len() < WAITING_MAX && !queue.is_over {
            let end = (at - at % PIECE_PAGES).saturating_add(PIECE_PAGES).min(to);
            queue.waiting.push_back(Request { node: Arc::clone(node), from: at, to: end });
            at = end;
        }
        while queue.threads.len() < READERS && !queue.is_over {
            let (this, files) = (Arc::clone(self), files.clone());
            queue.threads.push(thread::spawn(move || this.run(&files)));
        }
        self.wake.notify_all();
    }

    fn next(&self) -> Option<Request> {
        let is_idle = |queue: &mut ReadAheadQueue| queue.waiting.is_empty() && !queue.is_over;
        self.wake.wait_while(self.queue.lock(), is_idle).waiting.pop_front()
    }

    fn run(&self, files: &Weak<Files>) {
        while let Some(Request { node, from, to }) = self.next() {
            let Some(files) = files.upgrade() else { return };
            files.bring(&node, from, to);
        }
    }

    /// Ends the threads, and waits for what they are reading.
    pub(super) fn stop(&self) {
        let mut queue = self.queue.lock();
        queue.is_over = true;
        let (waiting, threads) =
            (std::mem::take(&mut queue.waiting), std::mem::take(&mut queue.threads));
        self.wake.notify_all();
        drop(queue);
        drop(waiting);
        let others = |thread: &JoinHandle<()>| thread.thread().id() != thread::current().id();
        for thread in threads.into_iter().filter(others) {
            // The result says nothing: a panic was reported already.
            let _ = thread.join();
        }
    }
}
