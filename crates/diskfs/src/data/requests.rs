//! Queues of requests for pages of files, which threads in the background serve.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Weak};

use vfscale_sync::Mutex;
use vfscale_sync::lock::LockClass;
use vfscale_sync::worker::{Priority, WorkItem};

use crate::inode::incore::Node;

/// Pages of a file.
pub(super) struct Request {
    pub(super) node: Arc<Node>,
    pub(super) pages: Range<u64>,
}

struct Queue {
    waiting: VecDeque<Request>,
    is_over: bool,
}

/// Serves a request. Returns false if the volume's files have ended.
type ServeFn = dyn Fn(&Request) -> bool + Send + Sync;

/// A queue of requests, and the work item that serves it. `Send` and `Sync`.
pub(super) struct Requests<L: LockClass> {
    serve: Box<ServeFn>,
    item: WorkItem,
    queue: Mutex<Queue, L>,
}

impl<L: LockClass> Requests<L> {
    /// Creates the queue, which up to `threads` threads, at least one, serve by `serve`. That
    /// returns false if the volume's files have ended.
    pub(super) fn new(
        threads: usize,
        serve: impl Fn(&Request) -> bool + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new_cyclic(|this: &Weak<Self>| {
            let this = Weak::clone(this);
            let run = move || this.upgrade().iter().for_each(|this| this.run());
            let item = WorkItem::new(Priority::Normal, threads, run);
            let queue = Mutex::new(Queue { waiting: VecDeque::new(), is_over: false });
            Self { serve: Box::new(serve), item, queue }
        })
    }

    /// Lets `add` change the requests that wait, and asks for as many threads as it returns. Never
    /// waits for I/O.
    pub(super) fn add(&self, add: impl FnOnce(&mut VecDeque<Request>) -> usize) {
        let mut queue = self.queue.lock();
        if queue.is_over {
            return;
        }
        let added = add(&mut queue.waiting);
        drop(queue);
        (0..added).for_each(|_| self.item.queue());
    }

    fn next(&self) -> Option<Request> {
        self.queue.lock().waiting.pop_front()
    }

    fn run(&self) {
        while let Some(request) = self.next() {
            if !(self.serve)(&request) {
                return;
            }
        }
    }

    /// Ends it, and waits until the threads have served what they have taken. What waits is
    /// dropped: requests are hints. May be called again.
    pub(super) fn stop(&self) {
        let mut queue = self.queue.lock();
        queue.is_over = true;
        let waiting = std::mem::take(&mut queue.waiting);
        drop(queue);
        drop(waiting);
        self.item.cancel();
    }
}
