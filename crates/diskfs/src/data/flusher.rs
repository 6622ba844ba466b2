//! The write-back of dirty files in the background: when much is dirty, and in time.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use vfscale_sync::worker::{Priority, WorkItem};
use vfscale_sync::{Mutex, lock_class};

lock_class! {
    /// The reasons for write-back in the background.
    pub WriterLock = ("bdi_work", 31150);
}

/// The share of half of the interval by which a pass may be early.
const EARLY_SHARE: u32 = 8;

/// Why there is write-back in the background.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Woken {
    /// Much is dirty.
    IsAsked,
    /// Half of the interval has passed.
    InTime,
}

/// The write-back in the background. Counterpart of `struct bdi_writeback`. `Send` and `Sync`.
#[derive(Default)]
pub(super) struct Flusher {
    reasons: Mutex<Reasons, WriterLock>,
    /// Set by the start. It owns a reference to this until it is cancelled.
    item: OnceLock<WorkItem>,
}

#[derive(Default)]
struct Reasons {
    is_asked: bool,
    is_over: bool,
    /// When half of the interval has passed.
    next: Option<Instant>,
}

impl Flusher {
    /// Starts it: `write_back` is called when somebody [asks](Self::ask), and in every half of
    /// `interval`, because a change that just missed one pass is durable when the next one ends.
    pub(super) fn start(
        self: &Arc<Self>,
        interval: Option<Duration>,
        write_back: impl Fn(Woken) + Send + Sync + 'static,
    ) {
        let (this, half) = (Arc::clone(self), interval.map(|interval| interval / 2));
        let run = move || this.run(half, &write_back);
        self.item.get_or_init(|| WorkItem::new(Priority::Normal, 1, run));
        self.reasons.lock().next = in_time(half);
        self.set_timer(half);
    }

    /// Asks for write-back now.
    pub(super) fn ask(&self) {
        let is_asked = std::mem::replace(&mut self.reasons.lock().is_asked, true);
        if !is_asked && let Some(item) = self.item.get() {
            item.queue();
        }
    }

    /// Ends it, and waits until it has written what it is writing. May be called again.
    pub(super) fn stop(&self) {
        self.reasons.lock().is_over = true;
        if let Some(item) = self.item.get() {
            item.cancel();
        }
    }

    /// Writes back as long as there is a reason.
    fn run(&self, half: Option<Duration>, write_back: &impl Fn(Woken)) {
        while let Some(woken) = self.take(half) {
            write_back(woken);
        }
        self.set_timer(half);
    }

    fn take(&self, half: Option<Duration>) -> Option<Woken> {
        let mut reasons = self.reasons.lock();
        if reasons.is_over {
            return None;
        }
        let is_asked = std::mem::take(&mut reasons.is_asked);
        if reasons.next.is_some_and(|next| Instant::now() >= earliest(next, half)) {
            reasons.next = in_time(half);
            return Some(Woken::InTime);
        }
        is_asked.then_some(Woken::IsAsked)
    }

    fn set_timer(&self, half: Option<Duration>) {
        let next = self.reasons.lock().next;
        if let (Some(next), Some(item)) = (next, self.item.get()) {
            item.queue_between(earliest(next, half), next);
        }
    }
}

/// Returns from when on a pass for half of the interval may begin: a little early, so that one
/// wakeup serves many idle volumes.
fn earliest(next: Instant, half: Option<Duration>) -> Instant {
    half.and_then(|half| next.checked_sub(half / EARLY_SHARE)).unwrap_or(next)
}

/// Returns the time when half of the interval has passed.
fn in_time(half: Option<Duration>) -> Option<Instant> {
    half.and_then(|half| Instant::now().checked_add(half))
}
