//! The records of threads: their sections, their bags, and the queues of their full bags.

use std::cell::{Cell, UnsafeCell};
use std::collections::VecDeque;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::bag::{BAG_LEN, Deferred};
use super::protocol::{Epoch, Section};
use crate::caught::each_survives;
use crate::fork;

/// The latest grace period.
pub(super) static EPOCH: Epoch = Epoch::new(AtomicU64::new(1), AtomicU64::new(1));

/// The records of all threads, linked by [`Shared::next`].
static RECORDS: AtomicPtr<Record> = AtomicPtr::new(ptr::null_mut());

/// The records that no thread uses. In a child the lock may be held by a thread that does not exist
/// there.
static FREE: Mutex<Vec<&'static Record>> = Mutex::new(Vec::new());

/// Number of records in whose queue bags wait. Each changes it under its lock.
static WAITING: AtomicUsize = AtomicUsize::new(0);

/// A full bag, with its tag.
type Sealed = (u64, Vec<Deferred>);

/// A thread that has been in a section. Its own part and the shared part are on different lines.
#[repr(align(128))]
pub(crate) struct Record {
    pub(super) section: Section,
    /// Number of guards.
    pub(super) nesting: Cell<usize>,
    /// Number of outermost sections until the next look; 0 if no bag waits.
    pub(super) looks: Cell<u32>,
    /// Number of bytes that deferred calls will free, since the thread has last sealed its bag
    /// because of them.
    pub(super) held: Cell<usize>,
    /// Whether the bags that wait hold many bytes.
    pub(super) has_bytes: Cell<bool>,
    /// Whether the thread gives the record back when it leaves its section: it is ending.
    pub(super) is_ending: Cell<bool>,
    bag: UnsafeCell<Vec<Deferred>>,
    /// The memory of a bag that has run; without any at first.
    spare: Cell<Vec<Deferred>>,
    shared: Shared,
}

#[repr(align(128))]
struct Shared {
    /// Bags in the order of their tags.
    waiting: Mutex<VecDeque<Sealed>>,
    /// Whether there are such bags, or were a moment ago.
    has_waiting: AtomicBool,
    /// The next record; written before this one is published.
    next: AtomicPtr<Record>,
}

// SAFETY: other threads use `section` and `shared` only. The cells and the bag belong to the thread
// that has published the record or taken it from `FREE`, whose lock passes them on.
unsafe impl Sync for Record {}
// SAFETY: whoever defers a call promises that any thread may make it.
unsafe impl Send for Deferred {}

/// Frees the records of the threads of a model, which have ended or never go on.
#[cfg(all(shuttle, not(loom)))]
pub(super) fn forget() {
    let first = RECORDS.swap(ptr::null_mut(), Ordering::Acquire);
    free().clear();
    WAITING.store(0, Ordering::Relaxed);
    // SAFETY: a record comes from a box, and no thread is left that uses it.
    Records(unsafe { first.as_ref() })
        .for_each(|record| drop(unsafe { Box::from_raw(ptr::from_ref(record).cast_mut()) }));
}

#[cfg(all(test, not(any(loom, shuttle))))]
thread_local! {
    /// Number of records that this thread has visited on its ways along the list.
    pub(super) static VISITS: Cell<usize> = const { Cell::new(0) };
}

fn free() -> MutexGuard<'static, Vec<&'static Record>> {
    FREE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The records that were known when this was created.
pub(super) struct Records(Option<&'static Record>);

impl Records {
    pub(super) fn known() -> Self {
        // SAFETY: records are never freed, and published by a release.
        Self(unsafe { RECORDS.load(Ordering::Acquire).as_ref() })
    }

    /// Returns the records but `own` in whose queue bags wait. May miss one if others fill and
    /// empty queues at the same time. Looks no further than at the last one.
    pub(super) fn waiting(own: &Record) -> impl Iterator<Item = &'static Record> + use<'_> {
        let all = WAITING.load(Ordering::Relaxed);
        let mut left = all.saturating_sub(usize::from(own.has_waiting()));
        let mut records = Self::known().filter(|record| !ptr::eq(*record, own));
        std::iter::from_fn(move || {
            left = left.checked_sub(1)?;
            records.find(|record| record.has_waiting())
        })
    }

    /// Returns the records that are left, without taking them.
    pub(super) fn again(&self) -> Self {
        Self(self.0)
    }

    /// Returns the record that the iterator returns next.
    pub(super) fn first(&self) -> Option<&'static Record> {
        self.0
    }
}

impl Iterator for Records {
    type Item = &'static Record;

    fn next(&mut self) -> Option<&'static Record> {
        let record = self.0?;
        #[cfg(all(test, not(any(loom, shuttle))))]
        VISITS.set(VISITS.get() + 1);
        // SAFETY: records are never freed; the link was written before the record was published.
        self.0 = unsafe { record.shared.next.load(Ordering::Relaxed).as_ref() };
        Some(record)
    }
}

impl Record {
    /// Takes a record that no thread uses, or makes one, which is never freed.
    #[cold]
    pub(super) fn take() -> &'static Record {
        let free = if fork::is_child() { None } else { free().pop() };
        free.unwrap_or_else(Record::publish)
    }

    fn publish() -> &'static Record {
        // Shared from here on: a pointer made from the unique reference ends with its next use.
        let record: &Record = Box::leak(Box::new(Record {
            section: Section::new(AtomicU64::new(0), AtomicU64::new(0)),
            nesting: Cell::new(0),
            looks: Cell::new(0),
            held: Cell::new(0),
            has_bytes: Cell::new(false),
            is_ending: Cell::new(false),
            bag: UnsafeCell::default(),
            spare: Cell::default(),
            shared: Shared {
                waiting: Mutex::default(),
                has_waiting: AtomicBool::new(false),
                next: AtomicPtr::default(),
            },
        }));
        let new = ptr::from_ref(record).cast_mut();
        let mut first = RECORDS.load(Ordering::Relaxed);
        loop {
            record.shared.next.store(first, Ordering::Relaxed);
            match RECORDS.compare_exchange_weak(first, new, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return record,
                Err(other) => first = other,
            }
        }
    }

    /// Gives the record back, with its bags, which other threads run when they look: at the latest
    /// in the next [`synchronize`](crate::rcu::synchronize). A process that makes no more calls
    /// leaves less than a full bag for each record.
    pub(super) fn give_back(&'static self) {
        self.seal();
        self.is_ending.set(false);
        self.section.rest();
        if !fork::is_child() {
            free().push(self);
        }
    }

    /// Adds a call to the bag. Returns whether the bag should be sealed.
    #[inline]
    pub(super) fn push(&self, call: Deferred) -> bool {
        // SAFETY: only this thread uses the bag, and pushing calls nothing that would.
        let bag = unsafe { &mut *self.bag.get() };
        bag.push(call);
        bag.len() >= BAG_LEN
    }

    /// Puts the bag in the queue, unless another thread has the queue at this moment.
    #[cold]
    pub(super) fn try_to_seal(&self) {
        if let Ok(waiting) = self.shared.waiting.try_lock() {
            self.seal_into(waiting);
        }
    }

    /// Puts the bag in the queue, if it is not empty.
    pub(super) fn seal(&self) {
        // In a child the lock may be held by a thread that does not exist there, and nothing runs.
        if !fork::is_child() {
            self.seal_into(self.lock());
        }
    }

    fn seal_into(&self, mut waiting: MutexGuard<'_, VecDeque<Sealed>>) {
        // SAFETY: only this thread uses the bag.
        let bag = unsafe { &mut *self.bag.get() };
        if bag.is_empty() {
            return;
        }
        let full = std::mem::replace(bag, self.spare.take());
        waiting.push_back((EPOCH.tag(), full));
        if !self.has_waiting() {
            self.shared.has_waiting.store(true, Ordering::Relaxed);
            WAITING.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Sealed>> {
        self.shared.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn has_waiting(&self) -> bool {
        self.shared.has_waiting.load(Ordering::Relaxed)
    }

    /// Returns whether the first bag of the queue waits for the end of a grace period.
    pub(super) fn waits(&self) -> bool {
        self.lock().front().is_some_and(|(tag, _)| !EPOCH.is_over(*tag))
    }

    /// Returns whether the first bag of the queue may run.
    #[cfg(all(shuttle, not(loom)))]
    pub(super) fn is_due(&self) -> bool {
        self.lock().front().is_some_and(|(tag, _)| EPOCH.is_over(*tag))
    }

    /// Runs bags of this thread that are due, `most` at most, and keeps the memory of one. Returns
    /// whether there may be more.
    pub(super) fn run_own(&self, most: usize) -> bool {
        for _ in 0..most {
            let Some(mut calls) = self.next_due(u64::MAX) else { return false };
            each_survives(calls.drain(..), Deferred::run);
            self.spare.set(calls);
        }
        true
    }

    /// Runs bags of the queue that are due and have at most the tag `last`, `most` at most, in a
    /// section of the calling thread. Returns how many more it may run.
    pub(super) fn run_due(&self, last: u64, most: usize) -> usize {
        for left in (1..=most).rev() {
            let Some(calls) = self.next_due(last) else { return left };
            each_survives(calls, Deferred::run);
        }
        0
    }

    /// Takes the first bag off the queue, if it is due and has at most this tag.
    fn next_due(&self, last: u64) -> Option<Vec<Deferred>> {
        if !self.has_waiting() {
            return None;
        }
        let mut waiting = self.lock();
        let is_next = |first: &Sealed| first.0 <= last && EPOCH.is_over(first.0);
        let first = if waiting.front().is_some_and(is_next) { waiting.pop_front() } else { None };
        if waiting.is_empty() && self.has_waiting() {
            self.shared.has_waiting.store(false, Ordering::Relaxed);
            WAITING.fetch_sub(1, Ordering::Relaxed);
        }
        first.map(|(_, calls)| calls)
    }
}
