//! Every interleaving of small programs, for locks and counts. Run with
//!
//! ```sh
//! RUSTFLAGS="--cfg loom" cargo test -p vfscale-sync --release --test loom locks::
//! ```
//!
//! Protected data are loom cells, which report any two accesses that are not ordered.

use crate::common::{Cell, check, spawn};
use loom::sync::Arc;
use loom::thread;
use vfscale_sync::atomic::{AtomicU32, AtomicUsize, Ordering, fence};
use vfscale_sync::brlock::BrLock;
use vfscale_sync::lock_class;
use vfscale_sync::lockref::{Lockref, Put, SpreadPtr};
use vfscale_sync::percpu::SnapshotCounter;
use vfscale_sync::percpu_ref::PerCpuRef;
use vfscale_sync::sharded_rwlock::{ReaderParts, ShardedRwLock};
use vfscale_sync::shared::{Shared, SharedSlot};
use vfscale_sync::{Mutex, RwLock, cpu, rcu};

lock_class! { Tested = ("tested", 1); }

/// Race: Mutex: holders.
#[test]
fn mutex_orders_its_holders() {
    check(3, || {
        let lock = Arc::new(Mutex::<Cell, Tested>::new(Cell::new()));
        let threads = [(); 2].map(|()| spawn(lock.clone(), move |lock| lock.lock().add()));
        if let Some(cell) = lock.try_lock() {
            cell.add();
        } else {
            lock.lock().add();
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(lock.lock().get(), 3);
    });
}

/// Race: Reader-writer lock: readers / writers.
#[test]
fn rwlock_orders_readers_and_writers() {
    check(2, || {
        let lock = Arc::new(RwLock::<Cell, Tested>::new(Cell::new()));
        let reader = spawn(lock.clone(), move |lock| {
            let inside = lock.read();
            let first = inside.get();
            assert_eq!(inside.get(), first);
        });
        let writer = spawn(lock.clone(), move |lock| {
            let inside = lock.write();
            inside.add();
            inside.add();
        });
        assert_ne!(lock.read().get(), 1);
        if let Some(inside) = lock.try_write() {
            inside.add();
            inside.add();
        }
        reader.join().unwrap();
        writer.join().unwrap();
        assert!([2, 4].contains(&lock.read().get()));
    });
}

/// Readers that were woken too late get the lock handed over, all of them together.
///
/// Race: Reader-writer lock: writers / readers that were woken too late.
#[test]
fn rwlock_is_handed_to_impatient_readers() {
    check(1, || {
        let lock = Arc::new(RwLock::<Cell, Tested>::new(Cell::new()));
        let readers = [(); 2].map(|()| {
            spawn(lock.clone(), move |lock| {
                lock.read().get();
            })
        });
        for _ in 0..2 {
            let inside = lock.write();
            inside.add();
            // Lets both readers find the lock held, without spending a preemption.
            thread::yield_now();
        }
        readers.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(lock.try_write().is_some(), "a reader left twice, or not at all");
    });
}

/// Race: Brlock: readers of all slots / writers.
#[test]
fn brlock_orders_readers_of_all_slots_and_writers() {
    check(3, || {
        let shared = Arc::new((BrLock::<Tested>::new(2), Cell::new()));
        let reader = spawn(shared.clone(), move |shared| {
            let _there = cpu::pretend(1);
            let _inside = shared.0.read();
            let first = shared.1.get();
            assert_eq!(shared.1.get(), first);
        });
        let writer = spawn(shared.clone(), move |shared| {
            let _inside = shared.0.write();
            shared.1.add();
        });
        {
            let _inside = shared.0.read();
            shared.1.get();
        }
        {
            let _inside = shared.0.write();
            shared.1.add();
        }
        reader.join().unwrap();
        writer.join().unwrap();
        let _inside = shared.0.read();
        assert_eq!(shared.1.get(), 2);
    });
}

/// A lock with sharded readers, and its data.
struct Spread {
    lock: ShardedRwLock<Tested>,
    parts: ReaderParts,
    cell: Cell,
}

impl Spread {
    fn new() -> Self {
        Self { lock: ShardedRwLock::new(), parts: ReaderParts::new(), cell: Cell::new() }
    }

    fn change(&self) {
        let _inside = self.lock.write(&self.parts);
        self.cell.add();
    }

    /// Opens the parts after a change.
    fn change_and_spread(&self) {
        let inside = self.lock.write(&self.parts);
        self.cell.add();
        inside.spread(2);
    }

    fn look(&self) {
        let _inside = self.lock.read(&self.parts);
        let first = self.cell.get();
        assert_eq!(self.cell.get(), first);
    }

    fn look_in_part(&self) {
        if let Some(_inside) = self.lock.read_in_part(&self.parts) {
            self.cell.get();
        }
    }
}

/// Race: Sharded reader-writer lock: readers of parts / writers.
#[test]
fn spread_rwlock_orders_readers_of_parts_and_writers() {
    check(2, || {
        let shared = Arc::new(Spread::new());
        shared.change_and_spread();
        let reader = spawn(shared.clone(), move |shared| {
            let _there = cpu::pretend(1);
            shared.look();
            shared.look_in_part();
        });
        let writer = spawn(shared.clone(), move |shared| shared.change());
        shared.look();
        shared.change();
        reader.join().unwrap();
        writer.join().unwrap();
        shared.look();
        assert_eq!(shared.cell.get(), 3);
    });
}

/// Race: Sharded reader-writer lock: opening the parts again / a reader.
#[test]
fn spread_rwlock_is_opened_again_beside_a_reader() {
    check(3, || {
        let shared = Arc::new(Spread::new());
        let reader = spawn(shared.clone(), move |shared| {
            let _there = cpu::pretend(1);
            shared.look_in_part();
            shared.look();
        });
        shared.change_and_spread();
        shared.change_and_spread();
        shared.change();
        reader.join().unwrap();
        assert_eq!(shared.cell.get(), 3);
    });
}

/// A counted object whose body is read by every holder of a reference, and torn down by the last.
/// The teardown writes, so an unordered or early one is a race.
struct Object {
    count: Lockref,
    spread: SpreadPtr,
    body: Cell,
    /// The number of threads inside a read section: a model of RCU, for the real one runs on one
    /// thread here.
    pinned: AtomicUsize,
    torn_down: AtomicUsize,
}

impl Object {
    fn new(count: u32) -> Arc<Self> {
        Arc::new(Self {
            count: Lockref::new(count),
            spread: SpreadPtr::new(),
            body: Cell::new(),
            pinned: AtomicUsize::new(0),
            torn_down: AtomicUsize::new(0),
        })
    }

    fn tear_down(&self, last: Put<'_>) {
        if let Put::Last(mut guard) = last {
            assert_eq!(guard.count(), 1);
            guard.mark_dead();
            assert_eq!(guard.dec(), 0);
            self.body.add();
            self.torn_down.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The guarantee of a pin: its fence is before or after the fence of a grace period's begin.
    fn section<R>(&self, f: impl FnOnce(&rcu::Guard) -> R) -> R {
        self.pinned.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let result = f(&rcu::pin());
        self.pinned.fetch_sub(1, Ordering::Release);
        result
    }

    /// Finishes a collection after [`grace_period`](Self::grace_period).
    fn finish_collect(&self, guard: &rcu::Guard) -> Put<'_> {
        // SAFETY: the tests begin each collection before the grace period, and finish it once.
        unsafe { self.count.finish_collect(&self.spread, guard) }
    }

    /// Waits until no thread is inside that may have entered before the call.
    fn grace_period(&self) {
        fence(Ordering::SeqCst);
        while self.pinned.load(Ordering::Acquire) != 0 {
            thread::yield_now();
        }
    }
}

/// First worst case of Long's lockref patch.
///
/// Race: Lockref: puts of the last two references.
#[test]
fn lockref_worst_case_one_two_puts_of_two_references_find_the_last() {
    check(4, || {
        let object = Object::new(2);
        let other = spawn(object.clone(), move |object| {
            object.body.get();
            object.tear_down(object.count.put(&object.spread, &rcu::pin()));
        });
        object.body.get();
        object.tear_down(object.count.put(&object.spread, &rcu::pin()));
        other.join().unwrap();
        assert_eq!(object.torn_down.load(Ordering::Relaxed), 1);
        assert_eq!(object.count.count(), 0);
    });
}

/// Second worst case of Long's lockref patch.
///
/// Race: Lockref: a get / the put of the last reference.
#[test]
fn lockref_worst_case_two_a_get_never_joins_the_dead() {
    check(4, || {
        let object = Object::new(1);
        let getter = spawn(object.clone(), move |object| {
            let got = object.count.get_not_dead(&object.spread, &rcu::pin());
            if got {
                object.body.get();
                object.tear_down(object.count.put(&object.spread, &rcu::pin()));
            } else {
                assert!(object.count.is_dead());
            }
        });
        object.tear_down(object.count.put(&object.spread, &rcu::pin()));
        getter.join().unwrap();
        assert_eq!(object.torn_down.load(Ordering::Relaxed), 1);
        assert_eq!((object.count.is_dead(), object.count.count()), (true, 0));
    });
}

/// Race: Lockref: gets and puts of three threads.
#[test]
fn lockref_three_threads_get_and_put() {
    check(2, || {
        let object = Object::new(1);
        let threads = [0, 1].map(|cpu| {
            spawn(object.clone(), move |object| {
                let _there = cpu::pretend(cpu);
                let guard = rcu::pin();
                if object.count.get_not_zero(&object.spread, &guard) {
                    object.body.get();
                    object.count.get(&object.spread, &guard);
                    object.tear_down(object.count.put(&object.spread, &guard));
                    object.tear_down(object.count.put(&object.spread, &guard));
                }
            })
        });
        object.tear_down(object.count.put(&object.spread, &rcu::pin()));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(object.torn_down.load(Ordering::Relaxed), 1);
    });
}

/// Leaked references have brought the count to one below its limit. The reference that does not fit
/// saturates it: then no put changes it, so it is never below the number of users.
///
/// Race: Lockref: gets beyond the limit / puts.
#[test]
fn lockref_count_at_its_limit_never_falls_below_its_users() {
    const LIMIT: u32 = 3 << 30;
    check(3, || {
        let object = Object::new(LIMIT - 1);
        let change = |object: &Object, changes: [bool; 3]| {
            for is_get in changes {
                let guard = rcu::pin();
                if is_get {
                    assert!(object.count.get_not_zero(&object.spread, &guard));
                } else {
                    assert!(!matches!(object.count.put(&object.spread, &guard), Put::Last(_)));
                }
            }
        };
        let other = spawn(object.clone(), move |object| change(&object, [true, false, false]));
        change(&object, [true, true, false]);
        other.join().unwrap();
        let count = object.count.count();
        assert!((LIMIT - 1..=LIMIT).contains(&count), "{count}");
    });
}

/// Race: Lockref: holders of the lock / counts.
#[test]
fn lockref_lock_orders_its_holders_and_keeps_the_count() {
    check(3, || {
        let object = Object::new(1);
        let locker = spawn(object.clone(), move |object| {
            let mut guard = object.count.lock();
            object.body.add();
            guard.inc();
            object.body.add();
            drop(guard);
            drop(object.count.put(&object.spread, &rcu::pin()));
        });
        object.count.get(&object.spread, &rcu::pin());
        {
            let guard = object.count.lock();
            let count = guard.count();
            assert_ne!(object.body.get(), 1);
            assert_eq!(object.count.count(), count, "a locked count was changed");
        }
        assert!(matches!(object.count.put(&object.spread, &rcu::pin()), Put::Done));
        locker.join().unwrap();
        assert_eq!(object.count.count(), 1);
    });
}

/// One thread holds the lock, one sleeps, and a third barges in at the unlock.
///
/// Race: Lockref: a holder / a sleeper / a thread that barges in.
#[test]
fn lockref_lock_orders_three_holders() {
    check(2, || {
        let object = Object::new(1);
        let lockers = [(); 2].map(|()| {
            spawn(object.clone(), move |object| {
                let _guard = object.count.lock();
                object.body.add();
            })
        });
        {
            let _guard = object.count.lock();
            object.body.add();
        }
        lockers.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(object.body.get(), 3);
        assert_eq!(object.count.count(), 1);
    });
}

/// A get and a put race with spreading; then the reference that the put leaves must be found.
///
/// Race: Lockref: spreading / gets / puts.
#[test]
fn lockref_spreading_under_gets_and_puts() {
    check(3, || {
        let object = Object::new(2);
        let user = spawn(object.clone(), move |object| {
            let _there = cpu::pretend(1);
            object.section(|guard| object.count.get(&object.spread, guard));
            for _ in 0..2 {
                let put = object.section(|guard| object.count.put(&object.spread, guard));
                assert!(!matches!(put, Put::Last(_)), "the other thread has a reference");
            }
        });
        assert!(Lockref::spread(&mut object.count.lock(), &object.spread, 2));
        user.join().unwrap();
        let guard = rcu::pin();
        assert!(Lockref::begin_collect(&mut object.count.lock(), &object.spread, &guard));
        object.grace_period();
        assert!(matches!(object.finish_collect(&guard), Put::Done));
        assert_eq!(object.count.count(), 1);
    });
}

/// The crucial test: gets and puts on parts and on the word race with a collection. Exactly one of
/// all puts, the collection's among them, is the last.
///
/// Race: Lockref: collection / gets / puts.
#[test]
fn lockref_collecting_under_gets_and_puts() {
    check(3, || {
        let object = Object::new(1);
        assert!(Lockref::spread(&mut object.count.lock(), &object.spread, 2));
        let user = spawn(object.clone(), move |object| {
            let _there = cpu::pretend(1);
            object.section(|guard| object.count.get(&object.spread, guard));
            object.body.get();
            // Each operation is a section of its own, and may find the count in another state.
            for _ in 0..2 {
                object.section(|guard| {
                    object.tear_down(object.count.put(&object.spread, guard));
                });
            }
        });
        let guard = rcu::pin();
        assert!(Lockref::begin_collect(&mut object.count.lock(), &object.spread, &guard));
        object.grace_period();
        object.tear_down(object.finish_collect(&guard));
        user.join().unwrap();
        assert_eq!(object.torn_down.load(Ordering::Relaxed), 1);
        assert_eq!((object.count.is_dead(), object.count.count()), (true, 0));
        assert!(!object.count.is_spread());
    });
}

/// A lookup revives the object, or finds it dead, while a collection finds that no reference is
/// left.
///
/// Race: Lockref: a lookup / the collection of an unused object.
#[test]
fn lockref_lookup_against_the_collection_of_an_unused_object() {
    check(3, || {
        let object = Object::new(0);
        assert!(Lockref::spread(&mut object.count.lock(), &object.spread, 2));
        let lookup = spawn(object.clone(), move |object| {
            let found = object.section(|guard| object.count.get_not_dead(&object.spread, guard));
            if found {
                object.body.get();
                object.section(|guard| {
                    object.tear_down(object.count.put(&object.spread, guard));
                });
            }
        });
        let guard = rcu::pin();
        assert!(Lockref::begin_collect(&mut object.count.lock(), &object.spread, &guard));
        object.grace_period();
        object.tear_down(object.finish_collect(&guard));
        lookup.join().unwrap();
        assert_eq!(object.torn_down.load(Ordering::Relaxed), 1);
    });
}

/// A count is spread, collected, and spread again with other parts, during a read: a reader never
/// uses parts of another spreading.
///
/// Race: Lockref: spreading, collecting and spreading again / a reader.
#[test]
fn lockref_spreading_twice_under_a_reader() {
    check(2, || {
        let object = Object::new(2);
        let user = spawn(object.clone(), move |object| {
            let _there = cpu::pretend(1);
            object.section(|guard| object.count.get(&object.spread, guard));
            object.section(|guard| drop(object.count.put(&object.spread, guard)));
        });
        let guard = rcu::pin();
        for _ in 0..2 {
            assert!(Lockref::spread(&mut object.count.lock(), &object.spread, 2));
            assert!(Lockref::begin_collect(&mut object.count.lock(), &object.spread, &guard));
            object.grace_period();
            assert!(matches!(object.finish_collect(&guard), Put::Done));
        }
        user.join().unwrap();
        assert_eq!(object.count.count(), 2);
    });
}

/// An unlink that ends the only reference in one exchange, against a lookup and a plain put.
///
/// Race: Lockref: marking the last reference dead / gets / puts.
#[test]
fn lockref_marking_the_last_dead_under_gets_and_puts() {
    check(3, || {
        let object = Object::new(1);
        let user = spawn(object.clone(), move |object| {
            let guard = rcu::pin();
            if object.count.get_not_dead(&object.spread, &guard) {
                object.body.get();
                if !object.count.put_simple() {
                    object.tear_down(object.count.put(&object.spread, &guard));
                }
            }
        });
        if object.count.mark_dead_if_last() {
            object.body.add();
            object.torn_down.fetch_add(1, Ordering::Relaxed);
        } else {
            let guard = rcu::pin();
            if !object.count.put_simple() {
                object.tear_down(object.count.put(&object.spread, &guard));
            }
        }
        user.join().unwrap();
        assert_eq!(object.torn_down.load(Ordering::Relaxed), 1);
    });
}

/// The object of a closed count is freed once, after all uses, by any of the last users.
///
/// Race: Unmounting against walks.
///
/// A walk counts its use of a mount and then checks whether the mount tree has changed; an unmount
/// enters the tree's write section and then sums the uses. Detaching closes the parts of the count,
/// after which it is one number under a lock: a put either changed its part before that was closed,
/// or decrements that number. The check whether a mount is busy also closes the parts, for a
/// moment. A plain sum of them used to miss a use that was counted on one CPU after its part was
/// read, while another was dropped on a CPU whose part was not yet read.
///
/// A plain unmount used to check whether the mount was in use in one write section and to detach it
/// in the next; a walk that began and ended between the two was in a mount that had ended. Now one
/// section does both (`VfsShared::change`).
#[test]
fn percpu_ref_closing_under_gets_and_puts() {
    check(3, || {
        let object = Arc::new((PerCpuRef::<Tested>::new(2), Cell::new(), AtomicUsize::new(0)));
        let put = |object: &(PerCpuRef<Tested>, Cell, AtomicUsize)| {
            if object.0.put() {
                object.1.add();
                object.2.fetch_add(1, Ordering::Relaxed);
            }
        };
        object.0.get();
        let user = spawn(object.clone(), move |object| {
            let _here = cpu::pretend(1);
            object.0.get();
            put(&object);
            object.1.get();
            put(&object);
        });
        object.0.close();
        object.1.get();
        put(&object);
        user.join().unwrap();
        assert_eq!(object.2.load(Ordering::Relaxed), 1);
        assert_eq!(object.0.users(), 0);
    });
}

/// A user that takes a unit on one CPU and gives one back on another is never missed, nor counted
/// twice; and a count that was read is usable as before.
///
/// Race: Unmounting against walks.
#[test]
fn percpu_ref_read_under_a_user_who_moves() {
    check(3, || {
        let count = Arc::new(PerCpuRef::<Tested>::new(2));
        count.get();
        let user = spawn(count.clone(), move |count| {
            let here = cpu::pretend(0);
            count.get();
            drop(here);
            let _there = cpu::pretend(1);
            assert!(!count.put());
        });
        let users = count.users();
        assert!((2..=3).contains(&users), "{users} users");
        user.join().unwrap();
        assert_eq!(count.users(), 2);
        assert!(!count.put());
        count.close();
        assert!(count.put());
    });
}

/// A unit counted on one CPU and then uncounted on another is never seen to leave before it
/// arrived, and neither is the data read at another moment.
///
/// Race: `stat` of a directory / `mkdir`, `rmdir` in it on several CPUs.
#[test]
fn snapshot_counter_is_read_as_it_was_at_one_moment() {
    check(3, || {
        let count = Arc::new((SnapshotCounter::new(2), AtomicU32::new(0)));
        let changes = spawn(count.clone(), move |count| {
            for (cpu, amount) in [(0, 1), (1, -1), (1, 1)] {
                let _on = cpu::pretend(cpu);
                count.0.add(amount);
                count.1.fetch_add(1, Ordering::Release);
            }
        });
        let look = || count.1.load(Ordering::Acquire);
        if let Some((value, changes)) = count.0.try_read_with(look) {
            // One of the changes may not have been noted yet.
            let values = [0, 1, 0, 1];
            let at = changes as usize;
            assert!(values[at..].iter().take(2).any(|&v| v == value), "{value} after {changes}");
        }
        changes.join().unwrap();
        assert_eq!(count.0.try_read_with(|| ()), Some((1, ())));
    });
}

/// Race: A count on several CPUs: changes / a reader that makes them use one part.
#[test]
fn snapshot_counter_is_read_beside_changes() {
    check(2, || {
        let count = Arc::new(SnapshotCounter::new(2));
        let changes = spawn(count.clone(), move |count| {
            for (cpu, amount) in [(0, 1), (1, -1), (0, 1), (1, -1)] {
                let _on = cpu::pretend(cpu);
                count.add(amount);
            }
        });
        let (value, ()) = count.read_with(|| ());
        assert!(value == 0 || value == 1, "{value}, which it never was");
        changes.join().unwrap();
        assert_eq!(count.read_with(|| ()), (0, ()));
    });
}

/// A value that writes when it is dropped: unordered with any use it would be a race.
struct Counted(Arc<Cell>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.add();
    }
}

/// Race: A shared value: uses / the last drop.
#[test]
fn shared_drops_its_value_after_all_uses() {
    check(3, || {
        let cell = Arc::new(Cell::new());
        let shared = Shared::new(Counted(Arc::clone(&cell)));
        let users = [(); 2].map(|()| {
            spawn(shared.clone(), move |mine| {
                mine.0.get();
            })
        });
        shared.0.get();
        drop(shared);
        users.into_iter().for_each(|user| user.join().unwrap());
        assert_eq!(cell.get(), 1);
    });
}

/// A descriptor is read, replaced and closed concurrently.
///
/// Race: A descriptor: read / replaced / closed.
#[test]
fn shared_slot_under_gets_replaces_and_takes() {
    check(2, || {
        let cells = [Arc::new(Cell::new()), Arc::new(Cell::new())];
        let slot = Arc::new(SharedSlot::new());
        slot.fill(Shared::new(Counted(Arc::clone(&cells[0]))), false);
        let reader = spawn(slot.clone(), move |slot| {
            if let Some(value) = slot.get() {
                value.0.get();
            }
        });
        let closer = spawn(slot.clone(), move |slot| drop(slot.take()));
        let second = Shared::new(Counted(Arc::clone(&cells[1])));
        let replaced = slot.replace(second, true);
        let was_closed = replaced.is_err();
        drop(replaced);
        reader.join().unwrap();
        closer.join().unwrap();
        assert_eq!(cells[0].get(), 1);
        assert_eq!(cells[1].get(), 1);
        assert!(was_closed || slot.mark().is_none());
    });
}
