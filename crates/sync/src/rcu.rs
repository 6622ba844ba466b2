//! Read-copy-update: readers write no shared memory, and objects are freed once the readers that
//! may use them have left.
//!
//! # Purpose
//!
//! A reader pins the thread ([`pin`]), follows pointers, and unpins. A writer unlinks an object,
//! then passes its disposal to [`Guard::defer`]; the disposal runs when every thread that was
//! pinned at that moment has unpinned since: after a grace period. (McKenney and Slingwine,
//! "Read-copy update", 1998; the engine is in `epoch.rs`.)
//!
//! # Invariants
//!
//! * Objects that were read under a guard stay allocated while the guard lives.
//! * A thread pinned after a `defer` sees every change made before that `defer`, or else it delays
//!   the deferred work: a grace period that waits for the work begins after a fence that follows
//!   the `defer`, that with which its bag is sealed. A thread either reports to it, with a fence,
//!   before it reads anything in a section, or delays it. Lockref's collection relies on this.
//! * Everything that was done under a guard happens before the work that the guard delayed:
//!   unpinning is a release, and the advance of the epoch acquires it.
//!
//! # Blocking, and lock order
//!
//! Pinning costs a few nanoseconds and never blocks, but an outermost [`pin`] and every
//! [`Guard::flush`] may run other threads' deferred work, which may take any lock. So neither may
//! happen while this thread holds a lock; debug builds assert it. Locks whose holders sleep are an
//! exception ([`LockClass::SLEEPS`](crate::lock::LockClass::SLEEPS)): deferred work takes none of
//! them.

pub mod slot;
pub mod table;

use std::cell::Cell;
use std::marker::PhantomData;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use crate::atomic::{AtomicPtr, Ordering, const_unless_model};
use crate::epoch::{self, BAG_LEN};
use crate::fork;
use crate::lock::held;
use crate::lock::wait::Backoff;
#[cfg(not(any(loom, shuttle, miri)))]
use crate::shrink::{self, Effort};

/// Maximum number of regions of memory that [`synchronize`] returns to the system: a GiB.
#[cfg(not(any(loom, shuttle, miri)))]
const SHRINK_REGIONS: usize = 512;

thread_local! {
    /// Number of deferred calls that this thread has run.
    static RAN: Cell<usize> = const { Cell::new(0) };
    /// Number of calls that this thread has deferred.
    static DEFERRED: Cell<usize> = const { Cell::new(0) };
}

/// A function that each thread calls whenever it has deferred as many calls as its bag has room
/// for.
static ON_BAG: OnceLock<fn()> = OnceLock::new();

/// Deferred work of which a call should not do any: see [`Guard::defer_long`].
type Long = Box<dyn FnOnce() + Send>;

/// A function that has work done by a thread for such work after a grace period, or returns it.
static ON_LONG: OnceLock<fn(Long) -> Option<Long>> = OnceLock::new();

/// A pinned thread: a read-side critical section. Not `Send`.
#[must_use = "the thread is unpinned when the guard is dropped"]
pub struct Guard {
    epoch: epoch::Guard,
}

/// Pins this thread. Guards nest; inner ones cost next to nothing.
///
/// # Panics
///
/// In debug builds, if this is the outermost guard and the thread holds a lock whose holders don't
/// sleep.
#[inline]
pub fn pin() -> Guard {
    if held::CHECKED && !epoch::is_pinned() {
        held::assert_none("an outermost rcu::pin");
        let hidden = held::hide();
        let epoch = epoch::pin();
        held::show(hidden);
        return Guard { epoch };
    }
    Guard { epoch: epoch::pin() }
}

impl Guard {
    /// Runs `f` after a grace period, on some thread, inside its guard.
    ///
    /// The work waits in a bag of this thread until 64 calls have gathered or
    /// [`flush`](Self::flush) is called. It must not wait for another grace period. A panic ends
    /// it, and neither the call in which it happens to run nor other deferred work. In a [fork]
    /// child it does not run.
    #[inline]
    pub fn defer<F: FnOnce() + Send + 'static>(&self, f: F) {
        // SAFETY: `f` may run on any thread, at any later time.
        unsafe { self.defer_unchecked(f) }
    }

    /// Runs `f` after a grace period, like [`defer`](Self::defer), but on a thread for long work
    /// instead of in an arbitrary call, if there is such a thread.
    pub(crate) fn defer_long(&self, f: Long) {
        let left = match ON_LONG.get() {
            Some(submit) => submit(f),
            None => Some(f),
        };
        if let Some(f) = left {
            self.defer(f);
        }
    }

    /// Runs `f` like [`defer`](Self::defer), without a check by the compiler that it may be sent.
    ///
    /// # Safety
    ///
    /// `f` must be sound to call on any thread, and everything it borrows or points at must live
    /// until it has run.
    #[inline]
    pub unsafe fn defer_unchecked<F: FnOnce()>(&self, f: F) {
        // A fork child leaks it: it may take locks held by a thread that does not exist there.
        let f = fork::Owned::new(f);
        let work = move || {
            RAN.set(RAN.get().wrapping_add(1));
            if !fork::is_child() {
                fork::Owned::into_inner(f)();
            }
        };
        // SAFETY: the caller makes the promise that is required.
        unsafe { self.epoch.defer_unchecked(work) }
        let deferred = DEFERRED.get().wrapping_add(1);
        DEFERRED.set(deferred);
        if deferred.is_multiple_of(BAG_LEN) {
            note_bag();
        }
    }

    /// Notes that the work which this thread has deferred will free `bytes` of memory beside small
    /// objects. The thread hands its bag over after 256 KiB, and its next outermost [`pin`] looks
    /// for a grace period: memory that is used again soon is still in the processor's caches.
    #[inline]
    pub fn note_bytes(&self, bytes: usize) {
        self.epoch.note_bytes(bytes);
    }

    /// Hands this thread's bag over for collection and runs work that is due, without waiting.
    ///
    /// # Panics
    ///
    /// In debug builds, if the thread holds a lock whose holders don't sleep.
    pub fn flush(&self) {
        held::assert_none("rcu::Guard::flush");
        let hidden = held::hide();
        self.epoch.flush();
        held::show(hidden);
    }

    /// Hands this thread's bag over for collection, like [`flush`](Self::flush), but runs nothing:
    /// later pins of any thread do. So it may be called with locks held. For large amounts of
    /// memory, which should not wait until this thread frees more.
    pub fn hand_over(&self) {
        self.epoch.hand_over();
    }

    /// Unpins and pins again if this is the thread's only guard, so a long walk does not delay all
    /// grace periods. References obtained under the guard are invalid afterwards.
    pub fn repin(&mut self) {
        self.epoch.repin();
    }
}

/// Waits for a full grace period: when it returns, every reader that was pinned at the call has
/// unpinned, and everything that this thread had deferred has run.
///
/// Blocks until then: spins, yields, then sleeps up to a millisecond at a time. The caller holds
/// no [`Guard`] and no lock, and is not itself deferred work, else it waits for ever (debug builds
/// panic).
///
/// As long as this thread finds work that is due, it runs that work and does not sleep: millions of
/// calls ahead of its own take no longer than it takes to run them.
///
/// Returns the pages that this work has freed to the system, except for those that the pool
/// retains.
///
/// The bags of a thread are taken in order, but may run concurrently on several threads, so the
/// marker of this thread can run before a bag ahead of it has finished. The thread that runs that
/// bag is pinned. The second round waits for it. What other threads had handed over before the call
/// is run between the rounds.
pub fn synchronize() {
    debug_assert!(
        cfg!(loom) || !epoch::is_pinned(),
        "rcu::synchronize would wait for its own guard"
    );
    let before = epoch::tag();
    for _round in 0..2 {
        let passed = Arc::new(AtomicBool::new(false));
        let marker = Arc::clone(&passed);
        let guard = pin();
        guard.defer(move || marker.store(true, Ordering::Release));
        guard.flush();
        drop(guard);
        let mut backoff = Backoff::new();
        while !passed.load(Ordering::Acquire) {
            if run_due() == 0 {
                backoff.wait();
            } else {
                backoff = Backoff::new();
            }
        }
        run_until(before);
    }
    #[cfg(not(any(loom, shuttle, miri)))]
    shrink::run(Effort::All, SHRINK_REGIONS);
}

/// Runs what was handed over before the tag was read.
fn run_until(tag: u64) {
    let guard = pin();
    let hidden = held::hide();
    guard.epoch.run_until(tag);
    held::show(hidden);
}

/// Makes each thread call `f` whenever it has deferred as many calls as its bag has room for, so
/// less than two bags of a thread wait without a call of `f`. The first `f` of the process counts.
/// The thread calls it inside a section, with the locks that it holds.
#[cfg(not(any(loom, shuttle, miri)))]
pub(crate) fn on_bag(f: fn()) {
    ON_BAG.get_or_init(|| f);
}

/// Makes [`Guard::defer_long`] call `f`, which may be called inside a section and with locks held,
/// and returns the work if it can't have it done. The first `f` of the process counts.
#[cfg(not(any(loom, shuttle, miri)))]
pub(crate) fn on_long(f: fn(Long) -> Option<Long>) {
    ON_LONG.get_or_init(|| f);
}

#[cold]
fn note_bag() {
    if let Some(f) = ON_BAG.get() {
        f();
    }
}

/// Returns whether this thread is in a read-side critical section.
#[cfg(not(any(loom, shuttle, miri)))]
pub(crate) fn is_pinned() -> bool {
    epoch::is_pinned()
}

/// Hands this thread's bag over for collection, tries to end a grace period, and runs some hundred
/// of the calls that are due then. Returns how many ran; if none did, all calls that are left wait
/// for a grace period. Does not wait.
///
/// # Panics
///
/// In debug builds, under the conditions of [`pin`].
pub fn run_due() -> usize {
    let before = RAN.get();
    pin().flush();
    // In a model the result 0 makes the caller yield, so each thread runs.
    if cfg!(any(loom, shuttle)) { 0 } else { RAN.get().wrapping_sub(before) }
}

/// Frees a value that came from a box, after a grace period.
fn drop_later<T: Send + 'static>(value: *mut T, guard: &Guard) {
    debug_assert!(!value.is_null());
    // SAFETY: callers pass a box's pointer that they have just unlinked, and that is freed only
    // here; `T` is `Send`, so any thread may drop it.
    unsafe { guard.defer_unchecked(move || drop(Box::from_raw(value))) }
}

/// An owned value that is replaced whole. Readers write no shared memory.
///
/// One word. `Send` and `Sync`, for `T` is both. Dropping it drops the value immediately: the owner
/// ensures that no reader is left, for example because it is itself freed through RCU.
pub struct Rcu<T: Send + Sync + 'static> {
    /// From a box; never null.
    value: AtomicPtr<T>,
    owns: PhantomData<T>,
}

impl<T: Send + Sync + 'static> Rcu<T> {
    /// Wraps `value`.
    pub fn new(value: T) -> Self {
        Self { value: AtomicPtr::new(Box::into_raw(Box::new(value))), owns: PhantomData }
    }

    /// Returns the current value, which lives as long as the guard. Never blocks.
    #[inline]
    pub fn read<'g>(&'g self, _guard: &'g Guard) -> &'g T {
        // SAFETY: the pointer came from a box, its contents were published by a release, and a
        // replaced box is freed only after this guard. `&self` protects the current one.
        unsafe { &*self.value.load(Ordering::Acquire) }
    }

    /// Replaces the value; the old one is dropped after a grace period. Never blocks.
    pub fn replace(&self, value: T, guard: &Guard) {
        let new = Box::into_raw(Box::new(value));
        drop_later(self.value.swap(new, Ordering::AcqRel), guard);
    }
}

impl<T: Send + Sync + 'static> Drop for Rcu<T> {
    fn drop(&mut self) {
        // No other thread has a reference to `self`, so a relaxed load suffices.
        let value = self.value.load(Ordering::Relaxed);
        // SAFETY: the pointer came from a box and is freed only here.
        drop(unsafe { Box::from_raw(value) });
    }
}

/// An optional owned value that is replaced whole, like [`Rcu`]. One word.
pub struct RcuOption<T: Send + Sync + 'static> {
    /// From a box, or null.
    value: AtomicPtr<T>,
    owns: PhantomData<T>,
}

impl<T: Send + Sync + 'static> RcuOption<T> {
    const_unless_model! {
        /// Creates an empty one.
        pub fn none() -> Self {
            Self { value: AtomicPtr::new(std::ptr::null_mut()), owns: PhantomData }
        }
    }

    /// Wraps `value`.
    pub fn some(value: T) -> Self {
        Self { value: AtomicPtr::new(Box::into_raw(Box::new(value))), owns: PhantomData }
    }

    /// Returns whether there is no value at this moment.
    #[inline]
    pub fn is_none(&self) -> bool {
        self.value.load(Ordering::Relaxed).is_null()
    }

    /// Returns the current value, which lives as long as the guard. Never blocks.
    #[inline]
    pub fn read<'g>(&'g self, _guard: &'g Guard) -> Option<&'g T> {
        // SAFETY: the pointer is null, or came from a box, its contents were published by a
        // release, and a replaced box is freed only after this guard.
        unsafe { self.value.load(Ordering::Acquire).as_ref() }
    }

    /// Replaces the value; the old one is dropped after a grace period. Never blocks.
    pub fn replace(&self, value: Option<T>, guard: &Guard) {
        let new = value.map_or(std::ptr::null_mut(), |value| Box::into_raw(Box::new(value)));
        let old = self.value.swap(new, Ordering::AcqRel);
        if !old.is_null() {
            drop_later(old, guard);
        }
    }

    /// Installs `value` if there is none, and returns the installed value. If another thread was
    /// faster, `value` is dropped. Never blocks.
    pub fn init<'g>(&'g self, value: T, _guard: &'g Guard) -> &'g T {
        let new = Box::into_raw(Box::new(value));
        let null = std::ptr::null_mut();
        match self.value.compare_exchange(null, new, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: we have just published this box, and a thread that replaces it frees it after
            // this guard.
            Ok(_) => unsafe { &*new },
            Err(installed) => {
                // SAFETY: the box was never published.
                drop(unsafe { Box::from_raw(new) });
                // SAFETY: it was published by a release and is freed only after this guard; it is
                // not null, or the exchange had succeeded.
                unsafe { &*installed }
            }
        }
    }
}

impl<T: Send + Sync + 'static> Default for RcuOption<T> {
    fn default() -> Self {
        Self::none()
    }
}

impl<T: Send + Sync + 'static> Drop for RcuOption<T> {
    fn drop(&mut self) {
        let value = self.value.load(Ordering::Relaxed);
        if !value.is_null() {
            // SAFETY: the pointer came from a box and is freed only here.
            drop(unsafe { Box::from_raw(value) });
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
