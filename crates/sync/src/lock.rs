//! Locks with classes: mutex and reader-writer lock, order checking, contention counters.
//!
//! # Purpose
//!
//! Each lock is one word and needs no allocation. Waiters spin briefly and then sleep: a holder
//! that lost its CPU costs its waiters a sleep and not a time slice. Each lock names its class in
//! its type: the class defines the rank for order checking and the counters of lockstat.
//!
//! # Invariants
//!
//! * The word of a free lock without sleepers is 0.
//! * Taking a free lock is one compare-and-exchange with acquire ordering; releasing it is one
//!   atomic operation with release ordering. So everything done under the lock happens before
//!   everything done under the next holder's.
//! * A waiting writer of an [`RwLock`] stops new readers, so writers don't starve. A sleeper that
//!   was woken too late twice gets the lock handed over, so sleepers don't starve either.
//! * A mutex's word is not accessed any more once another thread can take the lock. An `RwLock`'s
//!   last reader may still read it, so its memory must outlive the call that releases it: a
//!   reference or an RCU guard ensures that.
//!
//! # Lock order
//!
//! Ranks ascend: a thread that holds a lock takes only locks of a higher rank. Debug builds track
//! the held ranks of each thread and panic with both names at a violation, whether or not it would
//! have deadlocked this time. `*_nested` methods allow an equal rank, for callers with an order of
//! their own inside a class (by address, parent before child). A successful `try_*` can't deadlock
//! and so is not checked, but counts as held. [`assert_held`] checks that a thread holds a lock.
//!
//! Sources: the parking protocol follows parking_lot (Amanieu d'Antras) and WebKit's WTF::Lock;
//! ranks and lockstat follow lockdep and lock_stat in Linux.

mod condvar;
mod contend;
pub(crate) mod held;
mod mutex;
pub(crate) mod park;
pub(crate) mod raw_mutex;
pub(crate) mod raw_rwlock;
mod rwlock;
pub(crate) mod slot_lock;
pub(crate) mod stat;
pub(crate) mod wait;

pub use condvar::Condvar;
pub use held::assert_held;
pub use mutex::{Mutex, MutexGuard};
pub use rwlock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use stat::{
    LockStat, LockStatRow, LockStatTable, LockTimes, OwnerGuard, ThreadOwner, lockstat,
    lockstat_record, lockstat_record_for, lockstat_recording, lockstat_reset,
};

/// The name, rank and counters that all locks of one purpose share. Implemented by
/// [`lock_class!`](crate::lock_class). Counterpart of `struct lock_class` in Linux.
pub trait LockClass: 'static {
    /// The name in reports and panics: Linux's name for the lock, where it has one.
    const NAME: &'static str;
    /// The rank; a thread takes locks in ascending rank.
    const RANK: u16;
    /// Whether a holder may wait for a disk, and enter RCU sections. Deferred work runs there, so
    /// it must neither take such a lock nor wait for a thread that does. Hence no thread takes such
    /// a lock while it holds a lock that deferred work takes.
    const SLEEPS: bool = false;
    /// Returns the contention counters of the class.
    fn stat() -> &'static LockStat;
}

/// Declares lock classes: a type, a name and a rank each; `sleeping` after it declares that holders
/// may sleep ([`LockClass::SLEEPS`](crate::lock::LockClass::SLEEPS)).
///
/// ```
/// vfscale_sync::lock_class! {
///     /// Guards an inode's data.
///     pub InodeData = ("i_rwsem", 40);
///     /// Guards its extents.
///     pub(crate) Extents = ("i_data_sem", 50);
/// }
/// let lock = vfscale_sync::Mutex::<u32, InodeData>::new(1);
/// assert_eq!(*lock.lock(), 1);
/// ```
#[macro_export]
macro_rules! lock_class {
    (@sleeps) => { false };
    (@sleeps sleeping) => { true };
    ($($(#[$meta:meta])* $vis:vis $name:ident = ($text:expr, $rank:expr) $($how:ident)?);+ $(;)?) => {
        $(
            $(#[$meta])*
            $vis enum $name {}

            impl $crate::lock::LockClass for $name {
                const NAME: &'static str = $text;
                const RANK: u16 = $rank;
                const SLEEPS: bool = $crate::lock_class!(@sleeps $($how)?);
                fn stat() -> &'static $crate::lock::LockStat {
                    static STAT: $crate::lock::LockStat = $crate::lock::LockStat::new($text, $rank);
                    &STAT
                }
            }
        )+
    };
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
