//! The locks a thread holds, in debug builds.
//!
//! Release builds and models compile every function here to nothing.

/// Whether held locks are tracked in this build.
pub(crate) const CHECKED: bool = cfg!(all(debug_assertions, not(any(loom, shuttle))));

#[cfg(all(debug_assertions, not(any(loom, shuttle))))]
mod imp {
    use std::cell::Cell;

    use crate::lock::LockClass;

    /// A held lock: its rank, its name, and whether its holders may sleep.
    type HeldLock = (u16, &'static str, bool);

    /// Maximum number of locks tracked for a thread. Further locks are not checked.
    const DEPTH: usize = 48;

    /// The locks that a thread holds. Has no destructor, so it can be used while a thread ends.
    struct HeldLocks {
        depth: Cell<usize>,
        /// Number of locks, from the start, that checks ignore: deferred work is running, which
        /// does not belong to this thread.
        hidden: Cell<usize>,
        /// Number of locks without a rank (the ones inside lockrefs).
        unranked: Cell<usize>,
        locks: [Cell<HeldLock>; DEPTH],
    }

    thread_local! {
        static HELD: HeldLocks = const {
            HeldLocks {
                depth: Cell::new(0),
                hidden: Cell::new(0),
                unranked: Cell::new(0),
                locks: [const { Cell::new((0, "", false)) }; DEPTH],
            }
        };
    }

    /// Checks the order, and notes the lock as held.
    pub(crate) fn acquire<C: LockClass>(nested: bool) {
        let (rank, name) = (C::RANK, C::NAME);
        HELD.with(|held| {
            let locks = held.seen();
            if let Some((top, above, _)) = locks.iter().map(Cell::get).max_by_key(|lock| lock.0) {
                let ordered = top < rank || (nested && top == rank);
                assert!(
                    ordered || std::thread::panicking(),
                    "lock order: taking {name} (rank {rank}) while holding {above} (rank {top})"
                );
            }
        });
        note::<C>();
    }

    /// Panics if this thread is in an RCU section and holders of such a lock may sleep: the section
    /// would last as long, and delay every grace period.
    pub(crate) fn assert_no_section<C: LockClass>() {
        assert!(
            !C::SLEEPS || !crate::epoch::is_pinned() || std::thread::panicking(),
            "waiting for {} in an RCU section: its holders may sleep",
            C::NAME
        );
    }

    /// Notes a lock as held without checking.
    pub(crate) fn note<C: LockClass>() {
        HELD.with(|held| {
            let depth = held.depth.get();
            if let Some(entry) = held.locks.get(depth) {
                entry.set((C::RANK, C::NAME, C::SLEEPS));
                held.depth.set(depth + 1);
            }
        });
    }

    /// Removes the latest lock of this class.
    pub(crate) fn release<C: LockClass>() {
        HELD.with(|held| {
            let depth = held.depth.get();
            let same = |lock: &Cell<HeldLock>| lock.get() == (C::RANK, C::NAME, C::SLEEPS);
            if let Some(index) = held.locks[..depth].iter().rposition(same) {
                for next in index + 1..depth {
                    held.locks[next - 1].set(held.locks[next].get());
                }
                held.depth.set(depth - 1);
            }
        });
    }

    /// Panics unless this thread holds a lock of this class. With more locks than are tracked, the
    /// answer is unknown.
    pub fn assert_held<C: LockClass>() {
        HELD.with(|held| {
            let is_it = |lock: &Cell<HeldLock>| lock.get() == (C::RANK, C::NAME, C::SLEEPS);
            let is_known = held.depth.get() < DEPTH && !std::thread::panicking();
            assert!(!is_known || held.seen().iter().any(is_it), "{} is not held", C::NAME);
        });
    }

    pub(crate) fn acquire_unranked() {
        HELD.with(|held| held.unranked.set(held.unranked.get() + 1));
    }

    pub(crate) fn release_unranked() {
        HELD.with(|held| held.unranked.set(held.unranked.get().saturating_sub(1)));
    }

    impl HeldLocks {
        /// Returns the locks that checks consider.
        fn seen(&self) -> &[Cell<HeldLock>] {
            let depth = self.depth.get();
            &self.locks[self.hidden.get().min(depth)..depth]
        }
    }

    /// Hides the locks held now from checks; returns the argument for [`show`].
    pub(crate) fn hide() -> usize {
        HELD.with(|held| held.hidden.replace(held.depth.get()))
    }

    /// Undoes [`hide`].
    pub(crate) fn show(hidden: usize) {
        HELD.with(|held| held.hidden.set(hidden));
    }

    /// Panics if this thread holds any lock whose holders don't sleep.
    pub(crate) fn assert_none(what: &str) {
        HELD.with(|held| {
            if std::thread::panicking() {
                return;
            }
            let top = held.seen().iter().map(Cell::get).rfind(|(_, _, sleeps)| !sleeps);
            if let Some((rank, name, _)) = top {
                panic!("{what} while holding {name} (rank {rank}): deferred work may need it");
            }
            assert!(
                held.unranked.get() == 0,
                "{what} while holding a lockref: deferred work may need it"
            );
        });
    }
}

#[cfg(not(all(debug_assertions, not(any(loom, shuttle)))))]
mod imp {
    #[inline(always)]
    pub(crate) fn acquire<C>(_: bool) {}
    #[inline(always)]
    pub(crate) fn assert_no_section<C>() {}
    #[inline(always)]
    pub(crate) fn note<C>() {}
    #[inline(always)]
    pub(crate) fn release<C>() {}
    #[inline(always)]
    pub(crate) fn hide() -> usize {
        0
    }
    #[inline(always)]
    pub(crate) fn show(_: usize) {}
    /// Does nothing: only builds for debugging know the locks that a thread holds.
    #[inline(always)]
    pub fn assert_held<C>() {}
    #[inline(always)]
    pub(crate) fn acquire_unranked() {}
    #[inline(always)]
    pub(crate) fn release_unranked() {}
    #[inline(always)]
    pub(crate) fn assert_none(_: &str) {}
}

pub use imp::assert_held;
pub(crate) use imp::{
    acquire, acquire_unranked, assert_no_section, assert_none, hide, note, release,
    release_unranked, show,
};
