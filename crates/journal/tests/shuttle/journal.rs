//! Schedules of transactions, pushes and waits, chosen at random:
//! `RUSTFLAGS="--cfg shuttle" cargo test --release -p vfscale-journal --test shuttle journal::`.
//!
//! Each test prints its seed; `VFSCALE_SEED` repeats a run. A schedule that fails is printed as
//! well.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::common::{BLOCKS, Block, DEVICE_BYTES, LOG, Store, VOLUME, open, options};
use shuttle::rand::Rng;
use shuttle::thread;
use vfscale_block::{Device, MemoryDevice};
use vfscale_journal::{Error, Journal, Options, Reservation};
use vfscale_sync::cpu;
use vfscale_sync::model::{self, Schedules};
use vfscale_sync::scaling::Scaling;

const SCHEDULES: usize = 500;

/// Runs a model under many schedules, with all patches and without any.
fn check(model: impl Fn() + Send + Sync + 'static) {
    model::check_patches(&[Schedules::Turns(SCHEDULES), Schedules::Delays(SCHEDULES)], model);
}

fn device() -> Arc<dyn Device> {
    let device = MemoryDevice::with_block_size(DEVICE_BYTES, 4096).unwrap();
    Journal::format(&device, LOG, VOLUME).unwrap();
    Arc::new(device)
}

fn store(device: &Arc<dyn Device>) -> Arc<Store> {
    store_within(device, None)
}

/// Creates a store with a bound on the memory of blocks that are not written back.
fn store_within(device: &Arc<dyn Device>, memory_bytes: Option<u64>) -> Arc<Store> {
    let scaling =
        if model::is_without_patches() { Scaling::kernel_2_6() } else { Scaling::with_slots(2) };
    let options = Options { scaling, memory_bytes, ..options(2) };
    Arc::new(Store::open(device.clone(), options).unwrap())
}

/// Runs `body` in a thread of its own, on CPU `cpu`, with what it owns.
fn on<A: Send + 'static, T: Send + 'static>(
    cpu: u32,
    own: A,
    body: impl FnOnce(A) -> T + Send + 'static,
) -> thread::JoinHandle<T> {
    model::spawn(own, move |own| {
        let _here = cpu::pretend(cpu);
        body(own)
    })
}

/// Ends the journal like a crash, recovers, and compares.
fn crash_and_check(device: &Arc<dyn Device>, store: Arc<Store>, promised: &[u64]) {
    let history = store.history();
    drop(store);
    drop(open(device, options(1)).unwrap());
    history.check(&**device, |done| promised.contains(&done.number));
}

/// A transaction is in one checkpoint as a whole, whenever the push happens; items that are logged
/// again during the push are in the next one.
///
/// Race: A commit against the push.
///
/// A transaction has to be in one checkpoint, whole. Its items enter the lists under the reader's
/// side of the context lock, and the push takes all lists under the writer's side. An item that is
/// logged again while its checkpoint is being written is in the next one, and stays pinned until
/// that is durable.
///
/// A commit logs an item again before the checkpoint that is being written has taken it. The item
/// itself stores what a context logs of it, in one slot, so logging it again takes no list's lock.
/// The push takes the contents after the lists, with no commit excluded, while commits of the next
/// context arrive. The slot records its context. A commit does not touch a slot of another context:
/// it puts the newer vector on the list, whose own lock it takes for that. Once the push has
/// visited the item, the slot is free, and contents that are stored there later are newer than
/// those on the list. Two contexts can't both wait to be taken from, since only the holder of the
/// right to write the log switches to the next one.
#[test]
fn commit_against_push() {
    check(|| {
        let device = device();
        let store = store(&device);
        let commits = [0, 1].map(|cpu| {
            on(cpu, store.clone(), move |store| {
                store.set(&[1, 2 + u64::from(cpu)], 100).unwrap();
                store.set(&[1, 3 - u64::from(cpu)], 200).unwrap();
            })
        });
        store.journal.force_all().unwrap();
        for commit in commits {
            commit.join().unwrap();
        }
        crash_and_check(&device, store, &[]);
    });
}

/// An item is logged again and again while a checkpoint with it is being written, which may have to
/// wait for long before it takes the item's contents: the checkpoint has the contents of its own
/// context, and no later ones.
///
/// Race: A commit against the push.
#[test]
fn relogging_against_a_push_that_waits() {
    model::check_patches(&[Schedules::Delays(SCHEDULES)], || {
        let device = device();
        let store = store(&device);
        let relogs = on(1, store.clone(), move |store| {
            for _ in 0..3 {
                store.set(&[1, 2], 60).unwrap();
            }
        });
        let done = store.set(&[1, 3], 60).unwrap();
        store.journal.force(done.committed.sequence).unwrap();
        relogs.join().unwrap();
        crash_and_check(&device, store, &[done.number]);
    });
}

/// A thread that forces finds its commits durable, whichever thread wrote them, and no thread
/// misses a wakeup.
///
/// Race: A force against another.
///
/// A thread that forces finds its checkpoint durable, or takes the writer and pushes, or sleeps
/// until the writer is returned, and then looks again; returning it wakes all sleepers. It may
/// first wait for others to arrive, for a limited time, while the writer is available to any thread
/// (`crates/journal/src/log/push.rs`).
#[test]
fn force_against_force() {
    check(|| {
        let device = device();
        let store = store(&device);
        let forces = [0, 1, 2].map(|cpu| {
            on(cpu, store.clone(), move |store| {
                let done = store.set(&[u64::from(cpu), 9], 50).unwrap();
                store.journal.force(done.committed.sequence).unwrap();
                assert!(store.journal.durable_sequence() >= done.committed.sequence);
                done.number
            })
        });
        let all = forces.map(|force| force.join().unwrap());
        assert!(store.journal.stats().checkpoints <= 3);
        crash_and_check(&device, store, &all);
    });
}

/// The callback of a transaction is called once, with the checkpoint that contains the transaction,
/// when that is durable, and before any thread that forces it returns.
///
/// Race: Commits that free / push / force.
#[test]
fn busy_extents_against_push() {
    check(|| {
        let device = device();
        let store = store(&device);
        let free = |store: &Store, id: u64| {
            let back = Arc::new(AtomicU64::new(0));
            let block = store.blocks[id as usize].clone();
            let mut transaction = store.journal.begin(Reservation::new(8_000)).unwrap();
            let locked = block.lock.lock();
            transaction.add(block.clone());
            let told = back.clone();
            transaction.on_durable(move |durable| {
                let former = told.swap(durable.unwrap().sequence, Ordering::SeqCst);
                assert_eq!(former, 0, "the callback was called twice");
            });
            let sequence = transaction.commit().unwrap().sequence;
            drop(locked);
            (back, sequence)
        };
        let threads = [0, 1].map(|cpu| {
            on(cpu, store.clone(), move |store| {
                let first = free(&store, u64::from(cpu));
                let second = free(&store, 5);
                assert!([0, first.1].contains(&first.0.load(Ordering::SeqCst)));
                store.journal.force(second.1).unwrap();
                for (back, sequence) in [first, second] {
                    assert_eq!(back.load(Ordering::SeqCst), sequence);
                }
            })
        });
        store.journal.force_all().unwrap();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

/// A journal that is closed while other threads commit: each transaction is refused, or is in the
/// log.
///
/// Race: Commit / close of the journal.
#[test]
fn commit_against_close() {
    check(|| {
        let device = device();
        let store = store(&device);
        let threads = [0, 1].map(|cpu| {
            on(cpu, store.clone(), move |store| {
                let mut promised = Vec::new();
                for round in 0..3 {
                    match store.set(&[u64::from(cpu), 4 + round], 100) {
                        Ok(done) => promised.push(done.number),
                        Err(error) => {
                            assert!(matches!(error, Error::Closed), "{error}");
                            break;
                        }
                    }
                }
                promised
            })
        });
        store.journal.close().unwrap();
        let all = threads.map(|commits| commits.join().unwrap()).concat();
        let stats = store.journal.stats();
        assert_eq!((stats.active, stats.ail_items), (0, 0));
        crash_and_check(&device, store, &all);
    });
}

/// Each commit makes the CIL so large that no transaction may begin until a push has: every thread
/// gets on, and the push worker is asked for each of these pushes.
///
/// Race: Waiting for a push against the push.
///
/// A transaction that finds the CIL too large waits before it begins, and holds nothing. It checks
/// the size under the lock of the log's state. A commit that makes the CIL so large asks the push
/// worker afterwards; the push empties the CIL, then takes that lock and wakes all who wait. So a
/// thread that waits has seen the size before the push has reset it, and is woken.
#[test]
fn throttled_begins_against_push() {
    check(|| {
        let device = device();
        let scaling = Scaling::with_slots(2);
        let options = Options { scaling, cil_bytes: Some(64), ..options(2) };
        let store = Arc::new(Store::open(device.clone(), options).unwrap());
        let threads = [0, 1].map(|cpu| {
            on(cpu, store.clone(), move |store| {
                for round in 0..2 {
                    store.set(&[u64::from(cpu), 4 + round], 300).unwrap();
                }
            })
        });
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        crash_and_check(&device, store, &[]);
    });
}

/// Each reservation is nearly half of the log: some thread always waits, and only moving the tail
/// helps.
///
/// Race: Waiting for log space against space that is returned.
///
/// Space is returned to the CPU's own batch, where a waiter does not look by itself. The waiter
/// counts itself and then gathers all batches; the thread that returns space does so and then looks
/// for waiters; both have a full fence between. So either the waiter finds the space, or the other
/// thread finds the waiter.
#[test]
fn waiters_against_tail_moves() {
    check(|| {
        let device = device();
        let store = store(&device);
        let threads = [0, 1].map(|cpu| {
            on(cpu, store.clone(), move |store| {
                for round in 0..2 {
                    let id = u64::from(cpu) * 2 + round;
                    store.set(&[id], 400_000).unwrap();
                }
            })
        });
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        store.journal.freeze().unwrap();
        let stats = store.journal.stats();
        assert_eq!((stats.grant_used, stats.ail_items, stats.active), (0, 0, 0));
        store.journal.thaw();
    });
}

/// Rolling transactions need more than they reserved while they hold their blocks locked, and
/// these blocks hold the tail back.
///
/// Race: Waiting for log space against waiting for an item.
///
/// A rolling transaction may wait for log space with items locked. Others waited for these with
/// items locked themselves, which had once been changed and now could not be written back, so no
/// space became free. Now merely holding an item does not prevent its write-back, and a transaction
/// that waits for a lock which may be held across a roll has changed nothing yet.
#[test]
fn rolling_transactions_against_tail_moves() {
    check(|| {
        let device = device();
        let store = store(&device);
        let threads = [0, 1].map(|cpu| {
            on(cpu, store.clone(), move |store| {
                store.set_in_parts(&[u64::from(cpu)], 200_000, 4).unwrap();
            })
        });
        let forces = on(0, store.clone(), move |store| {
            for _ in 0..3 {
                store.journal.force_all().unwrap();
            }
        });
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        forces.join().unwrap();
        store.journal.freeze().unwrap();
        assert_eq!(store.journal.stats().grant_used, 0);
        store.journal.thaw();
        crash_and_check(&device, store, &[]);
    });
}

/// A freeze returns when no transaction is active and all items are written back, and none begins
/// before the thaw.
///
/// Race: A freeze against transactions that move between CPUs.
///
/// A transaction counts itself and then checks whether the gate is shut; the freezing thread shuts
/// the gate and then sums. A transaction that is refused subtracts itself from the part to which it
/// was added, and wakes the freezing thread, which may have counted it.
#[test]
fn freeze_against_new_transactions() {
    check(|| {
        let device = device();
        let store = store(&device);
        let frozen = Arc::new(AtomicBool::new(false));
        let threads = [0, 1].map(|cpu| {
            on(cpu, (store.clone(), frozen.clone()), move |(store, frozen)| {
                for _ in 0..2 {
                    let transaction = store.journal.begin(Reservation::new(100)).unwrap();
                    assert!(!frozen.load(Ordering::SeqCst));
                    // The transaction ends on another CPU than it began on.
                    let _there = cpu::pretend(1 - cpu);
                    let _ = transaction.commit().unwrap();
                    store.set(&[u64::from(cpu)], 10).unwrap();
                }
            })
        });
        for _ in 0..2 {
            store.journal.freeze().unwrap();
            frozen.store(true, Ordering::SeqCst);
            // The count of active transactions means nothing here: for a moment it includes those
            // that are refused.
            assert_eq!(store.journal.stats().ail_items, 0);
            assert!(store.journal.is_cil_empty());
            frozen.store(false, Ordering::SeqCst);
            store.journal.thaw();
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let store = Arc::into_inner(store).unwrap();
        store.journal.close().unwrap();
    });
}

/// A shutdown at any moment: threads that commit, force, wait for space, freeze or wait for a thaw
/// all return.
///
/// Race: A shutdown against everything that waits.
///
/// The flag is set first, and then all sleepers are woken under the lock that they wait with. A
/// thread that checks the flag under that lock before it sleeps can't miss it.
///
/// A thread that forces and finds nothing to push has to check the flag again. The push worker may
/// have taken the committed items off the lists, and reports that they will never be durable. A
/// force that arrived between the flag and that report once returned success, and the file was
/// missing after the next mount. `commit_against_shutdown` showed that, under schedules with few
/// and long delays.
#[test]
fn shutdown_against_everything() {
    check(|| {
        let device = device();
        let store = store(&device);
        let mut threads = Vec::new();
        // From the third on it waits for space, which only the workers can free.
        threads.push(on(0, store.clone(), move |store| {
            for round in 0..4 {
                if store.set(&[round], 440_000).is_err() {
                    return;
                }
            }
        }));
        threads.push(on(1, store.clone(), move |store| {
            for round in 0..2 {
                let Ok(done) = store.set(&[8, round], 100) else { return };
                let _ = store.journal.force(done.committed.sequence);
            }
        }));
        threads.push(on(0, store.clone(), move |store| {
            if store.journal.freeze().is_ok() {
                store.journal.thaw();
            }
        }));
        // At any time: the other threads take about as many steps.
        for _ in 0..shuttle::rand::thread_rng().gen_range(0..1_500) {
            thread::yield_now();
        }
        store.journal.shut_down(Error::client(std::io::Error::other("pulled")));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(store.journal.begin(Reservation::new(1)).is_err());
        assert_eq!(store.journal.stats().active, 0);
        crash_and_check(&device, store, &[]);
    });
}

/// The end of a journal against its own threads: forced transactions are present.
///
/// Race: Drop of the journal / its threads.
#[test]
fn drop_against_the_workers() {
    check(|| {
        let device = device();
        let store = store(&device);
        let done = store.set(&[0, BLOCKS - 1], 30_000).unwrap();
        let promised = on(1, store.clone(), move |store| {
            store.journal.force(done.committed.sequence).unwrap();
        });
        store.set(&[1], 30_000).unwrap();
        promised.join().unwrap();
        crash_and_check(&device, store, &[done.number]);
    });
}

/// Memory of a block, as it reports it.
const BLOCK_MEMORY: u64 = size_of::<Block>() as u64;

/// A transaction that begins waits until the AIL's worker has written blocks back. Other threads
/// force the log, freeze it, and hold more blocks locked than may be in memory, in a transaction
/// that rolls. All of them finish, and the AIL takes no more than the bound and the blocks of the
/// active transactions.
///
/// Race: Waiting for memory against the threads that free it.
///
/// A transaction waits before it begins while items that are not written back take too much memory
/// (`crates/journal/src/admission/memory.rs`). It waits outside of the gate and with nothing
/// reserved, so neither a freeze nor a transaction that has begun waits for it; a rolling
/// transaction continues. The level is checked under the lock of the AIL, where the waiters sleep.
/// A thread whose insertion exceeds the level wakes the worker, whatever that is doing, and the
/// worker pushes the CIL for the waiters.
#[test]
fn waiting_for_memory_against_force_against_freeze() {
    // With four blocks in the AIL no transaction begins.
    const BOUND: u64 = 8 * BLOCK_MEMORY;
    const INSIDE: u64 = (2 + 6) * BLOCK_MEMORY;
    static WAITS: AtomicU64 = AtomicU64::new(0);
    check(|| {
        let device = device();
        let store = store_within(&device, Some(BOUND));
        let commits = on(0, store.clone(), move |store| {
            for round in 0..3 {
                store.set(&[2 * round, 2 * round + 1], 50).unwrap();
                let bytes = store.journal.stats().ail_bytes;
                assert!(bytes <= BOUND + INSIDE, "{} blocks", bytes / BLOCK_MEMORY);
            }
        });
        let rolls = on(1, store.clone(), move |store| {
            store.set_in_parts(&[10, 11, 12, 13, 14, 15], 50, 2).unwrap();
        });
        let forces = on(0, store.clone(), move |store| {
            for _ in 0..2 {
                store.journal.force_all().unwrap();
            }
        });
        store.journal.freeze().unwrap();
        let stats = store.journal.stats();
        assert_eq!((stats.ail_items, stats.ail_bytes), (0, 0));
        store.journal.thaw();
        [commits, rolls, forces].into_iter().for_each(|thread| thread.join().unwrap());
        WAITS.fetch_add(store.journal.stats().memory_waits, Ordering::Relaxed);
        crash_and_check(&device, store, &[]);
    });
    assert_ne!(WAITS.load(Ordering::Relaxed), 0, "no thread ever waited");
}

/// A shutdown or a close while a thread waits for memory: the thread returns.
///
/// Race: Waiting for memory against the threads that free it.
#[test]
fn the_end_against_waiting_for_memory() {
    check(|| {
        let device = device();
        // No transaction begins before all blocks are written back.
        let store = store_within(&device, Some(0));
        let threads = [0, 1].map(|cpu| {
            on(cpu, store.clone(), move |store| {
                for round in 0..4 {
                    if store.set(&[8 * u64::from(cpu) + 2 * round], 50).is_err() {
                        return;
                    }
                }
            })
        });
        for _ in 0..shuttle::rand::thread_rng().gen_range(0..500) {
            thread::yield_now();
        }
        if shuttle::rand::thread_rng().gen_bool(0.5) {
            store.journal.shut_down(Error::client(std::io::Error::other("pulled")));
        } else {
            store.journal.close().unwrap();
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(store.journal.begin(Reservation::new(1)).is_err());
        assert_eq!(store.journal.stats().active, 0);
        crash_and_check(&device, store, &[]);
    });
}
