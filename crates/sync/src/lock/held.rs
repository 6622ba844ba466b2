//! The locks a thread holds, in debug builds.
//!
//! Release builds and models compile every function here to nothing.

/// Whether held locks are tracked in this build.
pub(crate) const CHECKED: bool = cfg!(all(debug_assertions, not(any(loom, shuttle))));

#[cfg(all(debug_assertions, not(any(loom, shuttle))))]
mod imp {
    use std::cell::Cell;

    /// Locks a thread can be seen to hold at once. Beyond that they go unchecked.
    const DEPTH: usize = 48;

    /// No destructor, so that it can be used while a thread ends.
    struct Held {
        depth: Cell<usize>,
        /// Locks without a rank (those inside lockrefs).
        unranked: Cell<usize>,
        locks: [Cell<(u16, &'static str)>; DEPTH],
    }

    thread_local! {
        static HELD: Held = const {
            Held {
                depth: Cell::new(0),
                unranked: Cell::new(0),
                locks: [const { Cell::new((0, "")) }; DEPTH],
            }
        };
    }

    /// Checks the order, and notes the lock as held.
    pub(crate) fn acquire(rank: u16, name: &'static str, nested: bool) {
        HELD.with(|held| {
            let locks = &held.locks[..held.depth.get()];
            if let Some((top, above)) = locks.iter().map(Cell::get).max_by_key(|lock| lock.0) {
                let ordered = top < rank || (nested && top == rank);
                assert!(
                    ordered || std::thread::panicking(),
                    "lock order: taking {name} (rank {rank}) while holding {above} (rank {top})"
                );
            }
        });
        note(rank, name);
    }

    /// Notes a lock as held without checking.
    pub(crate) fn note(rank: u16, name: &'static str) {
        HELD.with(|held| {
            let depth = held.depth.get();
            if let Some(entry) = held.locks.get(depth) {
                entry.set((rank, name));
                held.depth.set(depth + 1);
            }
        });
    }

    /// Forgets the latest such lock.
    pub(crate) fn release(rank: u16, name: &'static str) {
        HELD.with(|held| {
            let depth = held.depth.get();
            let same = |lock: &Cell<(u16, &'static str)>| lock.get() == (rank, name);
            if let Some(index) = held.locks[..depth].iter().rposition(same) {
                for next in index + 1..depth {
                    held.locks[next - 1].set(held.locks[next].get());
                }
                held.depth.set(depth - 1);
            }
        });
    }

    pub(crate) fn acquire_unranked() {
        HELD.with(|held| held.unranked.set(held.unranked.get() + 1));
    }

    pub(crate) fn release_unranked() {
        HELD.with(|held| held.unranked.set(held.unranked.get().saturating_sub(1)));
    }

    /// Panics if this thread holds any lock.
    pub(crate) fn assert_none(what: &str) {
        HELD.with(|held| {
            if std::thread::panicking() {
                return;
            }
            let top = held.locks[..held.depth.get()].last().map(Cell::get);
            if let Some((rank, name)) = top {
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
    pub(crate) fn acquire(_: u16, _: &'static str, _: bool) {}
    #[inline(always)]
    pub(crate) fn note(_: u16, _: &'static str) {}
    #[inline(always)]
    pub(crate) fn release(_: u16, _: &'static str) {}
    #[inline(always)]
    pub(crate) fn acquire_unranked() {}
    #[inline(always)]
    pub(crate) fn release_unranked() {}
    #[inline(always)]
    pub(crate) fn assert_none(_: &str) {}
}

pub(crate) use imp::{acquire, acquire_unranked, assert_none, note, release, release_unranked};
