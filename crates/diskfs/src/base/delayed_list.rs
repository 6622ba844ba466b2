//! Things with delayed changes, which a commit at the end of the context logs.
//!
//! # When changes are delayed
//!
//! Not from the beginning of a push to the switch of the context, so that the push ends. Not by the
//! first transactions after a context of few items, as when every call is followed by a sync: each
//! push would write the changes of one or two calls, one after the other, which the calls
//! themselves write in parallel.

use std::fmt;

use vfscale_sync::Mutex;
use vfscale_sync::atomic::{AtomicU32, AtomicUsize, ListedFlag, Ordering};
use vfscale_sync::lock::LockClass;

/// A context with fewer items than this is small.
pub(crate) const ITEMS_MIN: usize = 16;
/// Number of transactions that write their changes themselves after a small context.
pub(crate) const DIRECT: u32 = 16;
/// All transactions write their changes themselves.
const CLOSED: u32 = u32::MAX;

/// A list of things with delayed changes.
pub(crate) struct DelayedList<T, C: LockClass> {
    /// Number of transactions that have to write their changes themselves, before others may delay
    /// them; or [`CLOSED`].
    direct: AtomicU32,
    /// Number of things that are listed, or that the push is writing.
    count: AtomicUsize,
    list: Mutex<Vec<T>, C>,
}

impl<T, C: LockClass> Default for DelayedList<T, C> {
    /// Creates an empty list that is [closed](Self::close).
    fn default() -> Self {
        let list = Mutex::new(Vec::new());
        Self { direct: AtomicU32::new(CLOSED), count: AtomicUsize::new(0), list }
    }
}

impl<T, C: LockClass> DelayedList<T, C> {
    /// Permits transactions to delay changes, on a volume whose pushes write them.
    pub(crate) fn open(&self) {
        self.direct.store(0, Ordering::Release);
    }

    /// Returns whether a transaction may delay its changes; counts it if not.
    pub(crate) fn is_open(&self) -> bool {
        let direct = self.direct.load(Ordering::Acquire);
        if direct != 0 && direct != CLOSED {
            // If another thread has changed it, this transaction need not count.
            let counted = direct - 1;
            let (ok, failed) = (Ordering::Release, Ordering::Relaxed);
            let _ = self.direct.compare_exchange(direct, counted, ok, failed);
        }
        direct == 0
    }

    /// Ends the delaying until [`ended`](Self::ended).
    pub(crate) fn close(&self) {
        self.direct.store(CLOSED, Ordering::Release);
    }

    /// Returns whether something may have delayed changes. Exact while no commit is in progress.
    pub(crate) fn is_any(&self) -> bool {
        self.count.load(Ordering::Acquire) != 0
    }

    /// Notes that the context has ended, with so many items.
    pub(crate) fn ended(&self, items: usize) {
        let is_small = (1..ITEMS_MIN).contains(&items);
        self.direct.store(if is_small { DIRECT } else { 0 }, Ordering::Release);
    }

    /// Lists a thing. The caller prevents others from listing it, and is about to commit its first
    /// delayed change.
    pub(crate) fn add(&self, thing: T) {
        self.add_to(&mut self.list.lock(), thing);
    }

    /// Lists a thing unless it is listed, as `is_listed` says. Once that is seen to be set, the
    /// thing counts. The caller has noted a delayed change, and is about to commit it.
    pub(crate) fn add_once(&self, is_listed: &ListedFlag, thing: impl FnOnce() -> T) {
        if is_listed.is_set_for_change() {
            return;
        }
        let mut list = self.list.lock();
        if !is_listed.is_set() {
            self.add_to(&mut list, thing());
            // With the list locked: nobody has taken the thing off yet, and cleared the flag.
            is_listed.set();
        }
    }

    fn add_to(&self, list: &mut Vec<T>, thing: T) {
        self.count.fetch_add(1, Ordering::AcqRel);
        list.push(thing);
    }

    /// Takes a thing off the list; it counts until [`written`](Self::written).
    pub(crate) fn take(&self) -> Option<T> {
        self.list.lock().pop()
    }

    /// Notes that a thing that was [taken](Self::take) has no more delayed changes.
    pub(crate) fn written(&self) {
        self.count.fetch_sub(1, Ordering::AcqRel);
    }
}

impl<T, C: LockClass> fmt::Debug for DelayedList<T, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DelayedList").field("count", &self.count).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
