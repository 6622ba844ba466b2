//! The thread that writes dirty files back: when much is dirty, and in time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use vfscale_sync::atomic::thread::JoinHandle;
use vfscale_sync::lock::ThreadOwner;
use vfscale_sync::{Condvar, Mutex, lock_class};

use super::threads::join_others;

lock_class! {
    /// The work of the write-back thread.
    pub WriterLock = ("bdi_work", 31150);
}
lock_class! {
    /// The handle of the write-back thread, for the thread that ends it.
    pub WriterThreadLock = ("bdi_thread", 31160);
}

/// Why the write-back thread has woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Woken {
    /// Much is dirty.
    IsAsked,
    /// Half of the interval has passed.
    InTime,
    IsOver,
}

/// The write-back thread. Counterpart of `struct bdi_writeback`. `Send` and `Sync`.
#[derive(Default)]
pub(super) struct Flusher {
    work: Mutex<Work, WriterLock>,
    wake: Condvar,
    thread: Mutex<Option<JoinHandle<()>>, WriterThreadLock>,
}

/// The state that the thread waits for.
#[derive(Default)]
struct Work {
    is_asked: bool,
    is_over: bool,
}

impl Flusher {
    /// Starts the thread. It calls `write_back` when it is asked to and in every half of
    /// `interval`, until that returns false.
    pub(super) fn start(
        self: &Arc<Self>,
        interval: Option<Duration>,
        write_back: impl Fn(Woken) -> bool + Send + 'static,
    ) {
        let this = Arc::clone(self);
        let thread = ThreadOwner::current().spawn(move || this.run(interval, write_back));
        *self.thread.lock() = Some(thread);
    }

    /// Asks the thread to write back now.
    pub(super) fn ask(&self) {
        let mut work = self.work.lock();
        if !work.is_asked {
            work.is_asked = true;
            self.wake.notify_all();
        }
    }

    /// Ends the thread, and waits until it has written what it is writing. May be called again.
    pub(super) fn stop(&self) {
        self.work.lock().is_over = true;
        self.wake.notify_all();
        let thread = self.thread.lock().take();
        join_others(thread);
    }

    /// Waits for work, for `rest` at most if that is given.
    fn wait(&self, rest: Option<Duration>) -> Woken {
        let mut work = self.work.lock();
        let mut is_time = false;
        if !work.is_asked && !work.is_over {
            (work, is_time) = match rest {
                Some(rest) => self.wake.wait_for(work, rest),
                None => (self.wake.wait(work), false),
            };
        }
        work.is_asked = false;
        match work.is_over {
            true => Woken::IsOver,
            false if is_time => Woken::InTime,
            false => Woken::IsAsked,
        }
    }

    /// Runs the thread. It wakes in every half of `interval`, because a change that just missed one
    /// pass is durable when the next one ends.
    fn run(&self, interval: Option<Duration>, write_back: impl Fn(Woken) -> bool) {
        let half = interval.map(|interval| interval / 2);
        let mut next = half.map(|half| Instant::now() + half);
        loop {
            let rest = next.map(|next| next.saturating_duration_since(Instant::now()));
            let woken = self.wait(rest);
            if woken == Woken::IsOver {
                return;
            }
            if woken == Woken::InTime {
                next = half.map(|half| Instant::now() + half);
            }
            if !write_back(woken) {
                return;
            }
        }
    }
}
