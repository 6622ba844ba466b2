//! Things with delayed changes, which a commit at the end of the context logs. Counterpart of the
//! delayed nodes of btrfs.
//!
//! # Purpose
//!
//! A transaction that would log the same items as many others notes its change in memory instead,
//! and lists the thing that it changes. [`Hooks::run_delayed`](crate::Hooks::run_delayed) takes all
//! things off the list and logs their changes in one transaction each, at the end of every context.
//! So a checkpoint has the changes of all transactions in it.
//!
//! # Invariants
//!
//! * A thing is on the list, or taken and not written, from before the commit of its first delayed
//!   change until a transaction of the same context has logged the change. It counts for that time.
//! * A change is noted before its thing is listed, and whoever takes a thing off looks for changes
//!   afterwards. So no change is on neither side (`tests/shuttle/delayed.rs`).
//!
//! `tests/spec.rs` has this argument as an executable specification, all of whose states are
//! checked.
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
const ITEMS_MIN: usize = 16;
/// Number of transactions that write their changes themselves after a small context.
const DIRECT: u32 = 16;
/// All transactions write their changes themselves.
const CLOSED: u32 = u32::MAX;

/// A list of things with delayed changes. See the [module](self). `Send` and `Sync` if `T` is
/// `Send`.
///
/// `C` is the class of its lock, which is held for a few instructions and never while another lock
/// is taken.
pub struct DelayedList<T, C: LockClass> {
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
    pub fn open(&self) {
        self.direct.store(0, Ordering::Release);
    }

    /// Returns whether a transaction may delay its changes; counts it if not.
    #[must_use]
    pub fn is_open(&self) -> bool {
        let direct = self.direct.load(Ordering::Acquire);
        if direct != 0 && direct != CLOSED {
            // If another thread has changed it, this transaction need not count.
            let counted = direct - 1;
            let (ok, failed) = (Ordering::Release, Ordering::Relaxed);
            let _ = self.direct.compare_exchange(direct, counted, ok, failed);
        }
        direct == 0
    }

    /// Ends the delaying until [`ended`](Self::ended). Called when a push begins, before things are
    /// [taken](Self::take) off.
    pub fn close(&self) {
        self.direct.store(CLOSED, Ordering::Release);
    }

    /// Returns whether something may have delayed changes
    /// ([`Hooks::has_delayed`](crate::Hooks::has_delayed)). Exact while no commit is in progress.
    #[must_use]
    pub fn is_any(&self) -> bool {
        self.count.load(Ordering::Acquire) != 0
    }

    /// Notes that the context has ended, with so many items, and permits delaying again; after a
    /// small context not at once. See [`Hooks::context_ended`](crate::Hooks::context_ended).
    pub fn ended(&self, items: usize) {
        let is_small = (1..ITEMS_MIN).contains(&items);
        self.direct.store(if is_small { DIRECT } else { 0 }, Ordering::Release);
    }

    /// Lists a thing. The caller prevents others from listing it, and is about to commit its first
    /// delayed change.
    pub fn add(&self, thing: T) {
        self.add_to(&mut self.list.lock(), thing);
    }

    /// Lists a thing unless it is listed, as `is_listed` says. Once that is seen to be set, the
    /// thing counts. The caller has noted a delayed change, and is about to commit it.
    pub fn add_once(&self, is_listed: &ListedFlag, thing: impl FnOnce() -> T) {
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
    #[must_use]
    pub fn take(&self) -> Option<T> {
        self.list.lock().pop()
    }

    /// Notes that a thing that was [taken](Self::take) has no more delayed changes.
    pub fn written(&self) {
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
