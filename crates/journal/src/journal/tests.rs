#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering as Std};
use std::sync::{Barrier, Mutex as StdMutex};
use std::thread;
use std::time::Duration;

use vfscale_sync::cpu;

use super::*;
use crate::lists::cil::Switch;
use crate::read_mostly::SharedFields;
use crate::support_tests::{LOG, Sink, Thing, VOLUME, device, open, open_with, options};
use crate::{Durable, LogItem, NoHooks};
use vfscale_sync::scaling::Scaling;

fn begin(journal: &Journal, bytes: u64) -> Transaction<'_> {
    journal.begin(Reservation::new(bytes)).unwrap()
}

fn log(journal: &Journal, things: &[&Arc<Thing>]) -> u64 {
    let mut transaction = begin(journal, 60_000);
    for thing in things {
        transaction.add(Arc::clone(thing));
    }
    transaction.commit().unwrap().sequence
}

/// A hook that runs a function in the middle of writing a checkpoint.
struct Middle<F>(F);

impl<F: Fn(u64) -> Result<()> + Send + Sync> Hooks for Middle<F> {
    fn before_commit_record(&self, sequence: u64) -> Result<()> {
        (self.0)(sequence)
    }
}

#[test]
fn a_commit_does_no_io_and_a_force_writes_once() {
    let device = device();
    let (journal, ..) = open(&device);
    let things: Vec<_> = (0..50).map(|id| Thing::new(id, &[0; 100])).collect();
    let before = journal.stats();
    let mut last = 0;
    for _ in 0..20 {
        for thing in &things {
            last = log(&journal, &[thing]);
        }
    }
    assert_eq!((journal.stats().log_writes, journal.durable_sequence()), (before.log_writes, 0));
    assert!(!journal.is_cil_empty());
    journal.force(last).unwrap();
    let after = journal.stats();
    assert!(journal.is_cil_empty());
    assert_eq!(
        (after.log_writes, after.log_flushes),
        (before.log_writes + 1, before.log_flushes + 1)
    );
    // A thousand commits of fifty items: each item is in the log once.
    assert_eq!(after.tickets[0].items, 50);
    // Forcing durable transactions, or ones that were never committed, writes nothing.
    journal.force(last).unwrap();
    journal.force_all().unwrap();
    assert_eq!(journal.stats().log_writes, after.log_writes);
}

/// Sixteen threads commit and force at the same time, round by round; the writer is delayed so that
/// they meet.
///
/// Race: A force against another.
#[test]
fn sixteen_forces_share_log_writes() {
    const THREADS: u64 = 16;
    const ROUNDS: u64 = 10;
    let device = device();
    let arrived = Arc::new(AtomicUsize::new(0));
    let hook = {
        let arrived = arrived.clone();
        Middle(move |_| {
            // As slow as a disk: until all threads of the round have committed, or a time limit has
            // passed.
            let start = std::time::Instant::now();
            while !arrived.load(Std::SeqCst).is_multiple_of(THREADS as usize)
                && start.elapsed() < Duration::from_millis(200)
            {
                thread::yield_now();
            }
            Ok(())
        })
    };
    let (journal, ..) = open_with(&device, Arc::new(hook), options()).unwrap();
    let before = journal.stats();
    let barrier = Barrier::new(THREADS as usize);
    thread::scope(|scope| {
        for id in 0..THREADS {
            let (journal, barrier, arrived) = (&journal, &barrier, &arrived);
            scope.spawn(move || {
                let thing = Thing::new(id, &[1; 200]);
                for _ in 0..ROUNDS {
                    barrier.wait();
                    let sequence = log(journal, &[&thing]);
                    arrived.fetch_add(1, Std::SeqCst);
                    journal.force(sequence).unwrap();
                    assert!(journal.durable_sequence() >= sequence);
                }
            });
        }
    });
    let after = journal.stats();
    let (writes, flushes) =
        (after.log_writes - before.log_writes, after.log_flushes - before.log_flushes);
    // 160 forces: the first of a round pushes alone, all others share the next checkpoint or two.
    assert!(writes <= 4 * ROUNDS && flushes <= 4 * ROUNDS, "{writes} writes, {flushes} flushes");
    assert!(after.checkpoints >= ROUNDS);
}

/// Two threads commit and force alternately, on a slow device: the first one waits for the other,
/// and they share checkpoints.
#[test]
fn threads_that_force_in_turn_share_checkpoints() {
    const FORCES: u64 = 20;
    let device = device();
    // Usually longer than a thread waits for its CPU.
    let slow = Middle(|_| {
        vfscale_harness::pause(Duration::from_millis(20));
        Ok(())
    });
    let (journal, ..) = open_with(&device, Arc::new(slow), options()).unwrap();
    let before = journal.stats().checkpoints;
    thread::scope(|scope| {
        for id in 0..2 {
            let journal = &journal;
            scope.spawn(move || {
                let thing = Thing::new(id, &[1; 200]);
                for _ in 0..FORCES {
                    // The time for writing its data.
                    vfscale_harness::pause(Duration::from_millis(2));
                    let sequence = log(journal, &[&thing]);
                    journal.force(sequence).unwrap();
                }
            });
        }
    });
    let checkpoints = journal.stats().checkpoints - before;
    // Without waiting they would need 39 or 40.
    assert!((FORCES..=FORCES * 9 / 5).contains(&checkpoints), "{checkpoints} checkpoints");
}

#[test]
fn the_ticket_of_each_checkpoint_is_traced() {
    let device = device();
    let (journal, ..) = open(&device);
    for size in [10, 1000, 30_000] {
        let sequence = log(&journal, &[&Thing::new(size, &vec![0; size as usize])]);
        journal.force(sequence).unwrap();
    }
    let tickets = journal.stats().tickets;
    assert_eq!(tickets.len(), 3);
    for ticket in tickets {
        assert_eq!(ticket.reserved, ticket.used + ticket.spared + ticket.returned, "{ticket:?}");
        assert!(ticket.returned <= 8192 && ticket.items == 1, "{ticket:?}");
    }
}

/// The table of the discussion, for many small transactions: the excess reservation stays far below
/// the used space.
#[test]
fn over_reservation_is_small() {
    let device = device();
    let (journal, ..) = open(&device);
    let things: Vec<_> = (0..400).map(|id| Thing::new(id, &[0; 150])).collect();
    for thing in &things {
        log(&journal, &[thing]);
    }
    journal.force_all().unwrap();
    let ticket = journal.stats().tickets[0];
    assert!(ticket.used > 60_000 && ticket.returned < 10_000, "{ticket:?}");
}

/// Foster's case through the whole journal: the first transaction of a checkpoint needs many
/// records, and its reservation is no larger than requested.
#[test]
fn a_first_large_transaction_is_written() {
    let device = device();
    let small = Options { record_blocks: 1, ..options() };
    let (journal, ..) = open_with(&device, Arc::new(NoHooks), small).unwrap();
    for len in [4096 - 32 - 24 - 128, 50_000, 100_000] {
        let mut transaction = begin(&journal, Reservation::item_bytes(len));
        transaction.add(Thing::new(len, &vec![1; len as usize]));
        let sequence = transaction.commit().unwrap().sequence;
        journal.force(sequence).unwrap();
    }
    assert!(journal.stats().tickets[2].records >= 25);
    drop(journal);
    let (_journal, _, sink) = open(&device);
    assert_eq!(sink.last()[&100_000].len(), 100_000);
}

#[test]
fn an_overrun_shuts_the_journal_down_with_a_report() {
    let device = device();
    let (journal, ..) = open(&device);
    let thing = Thing::new(1, &[0; 5000]);
    let mut transaction = begin(&journal, 100);
    transaction.add(thing.clone());
    let error = transaction.commit().unwrap_err();
    assert!(matches!(&error, Error::Shutdown(why) if matches!(**why, Error::Overrun { .. })));
    assert!(error.to_string().contains("overran its reservation"), "{error}");
    assert!(journal.begin(Reservation::new(1)).is_err());
    assert!(journal.force_all().is_err());
    assert!(matches!(journal.failure(), Some(Error::Overrun { .. })));
    drop(journal);
    assert_eq!(thing.aborts.load(Std::Relaxed), 1);
    let (_journal, _, sink) = open(&device);
    assert!(sink.replayed.is_empty(), "no item of it is in the log");
}

/// A context that was given too little space: the push detects and reports it before it writes.
#[test]
fn an_underrun_shuts_the_journal_down_with_a_report() {
    let device = device();
    let (journal, ..) = open(&device);
    let sequence = log(&journal, &[&Thing::new(1, &[0; 20_000])]);
    let Switch::Taken(mut context) = journal.log.cil.switch(&journal.log.shared, || false) else {
        panic!("the context is not empty");
    };
    assert_eq!(context.sequence, sequence);
    context.reserved = 1000;
    let writes = journal.stats().log_writes;
    let error = journal.log.writer().unwrap().push_context(context).unwrap_err();
    assert!(error.to_string().contains("underran"), "{error}");
    assert!(matches!(journal.failure(), Some(Error::Underrun { reserved: 1000, .. })));
    assert_eq!(journal.stats().log_writes, writes);
}

#[test]
fn a_transaction_that_is_dropped_gives_everything_back() {
    let device = device();
    let (journal, ..) = open(&device);
    let used = journal.stats().grant_used;
    let transaction = journal.begin(Reservation::permanent(5000, 3)).unwrap();
    assert_eq!(journal.stats().active, 1);
    assert!(journal.stats().grant_used > used + 15_000);
    drop(transaction);
    let empty = begin(&journal, 5000).commit().unwrap();
    assert_eq!(empty.sequence, 0);
    assert_eq!((journal.stats().grant_used, journal.stats().active), (used, 0));
    // A transaction with changes that no log will contain: the journal can't continue.
    let mut transaction = begin(&journal, 5000);
    transaction.add(Thing::new(1, b"x"));
    drop(transaction);
    assert!(matches!(journal.failure(), Some(Error::Abandoned)));
}

#[test]
fn a_reservation_that_can_never_be_granted_is_refused() {
    let device = device();
    let (journal, ..) = open(&device);
    for reservation in
        [Reservation::new(1 << 19), Reservation::new(u64::MAX), Reservation::permanent(40_000, 100)]
    {
        let refused = journal.begin(reservation);
        assert!(matches!(refused, Err(Error::ReservationTooLarge { .. })), "{reservation:?}");
    }
}

/// Every transaction needs a tenth of the log, and the tail must move for each: no thread waits
/// forever, and items are written back for the waiting threads.
#[test]
fn waiting_for_space_moves_the_tail() {
    for slots in [1, 4] {
        let device = device();
        let options = Options { scaling: Scaling::with_slots(slots), ..options() };
        let (journal, ..) = open_with(&device, Arc::new(NoHooks), options).unwrap();
        let things: Vec<_> = (0..4).map(|id| Thing::new(id, &[1; 30_000])).collect();
        thread::scope(|scope| {
            for (cpu, thing) in (0..).zip(&things) {
                let journal = &journal;
                scope.spawn(move || {
                    let _here = cpu::pretend(cpu);
                    for _ in 0..30 {
                        let mut transaction = begin(journal, 100_000);
                        transaction.add(thing.clone());
                        let _ = transaction.commit().unwrap();
                    }
                });
            }
        });
        journal.quiesce().unwrap();
        assert!(things.iter().all(|thing| thing.pushes.load(Std::Relaxed) > 0));
        assert_eq!(journal.stats().active, 0);
        journal.close().unwrap();
    }
}

/// Rolling transactions use up the log several times over, and log their items again.
#[test]
fn rolling_transactions_get_their_next_part() {
    let device = device();
    let (journal, ..) = open(&device);
    thread::scope(|scope| {
        for id in 0..3 {
            let journal = &journal;
            scope.spawn(move || {
                let thing = Thing::new(id, &[2; 20_000]);
                let mut transaction = journal.begin(Reservation::permanent(30_000, 2)).unwrap();
                for _ in 0..60 {
                    transaction.add(thing.clone());
                    let (committed, rest) = transaction.roll().unwrap();
                    journal.force(committed.sequence).unwrap();
                    transaction = rest;
                }
                let _ = transaction.commit().unwrap();
            });
        }
    });
    assert!(journal.stats().head.cycle() > 1);
    journal.close().unwrap();
}

#[test]
fn all_space_comes_back() {
    let device = device();
    let (journal, ..) = open(&device);
    for round in 0..300 {
        let sequence = log(&journal, &[&Thing::new(round, &[0; 2000])]);
        if round % 3 == 0 {
            journal.force(sequence).unwrap();
        }
    }
    journal.freeze().unwrap();
    // No transaction has reserved space for the covering record.
    assert_eq!((journal.stats().grant_used, journal.stats().ail_items), (0, 0));
    assert_eq!(journal.stats().tail, journal.stats().durable_tail);
    journal.thaw();
    journal.close().unwrap();
}

#[test]
fn a_frozen_log_has_nothing_to_replay() {
    let device = device();
    let (journal, ..) = open(&device);
    let thing = Thing::new(1, b"home");
    log(&journal, &[&thing]);
    journal.freeze().unwrap();
    assert_eq!(thing.pushes.load(Std::Relaxed), 1);
    let (_copy, recovered, sink) = {
        let mut bytes = vec![0; usize::try_from(device.size()).unwrap()];
        device.read_at(0, &mut bytes).unwrap();
        let copy = vfscale_block::MemoryDevice::new(device.size()).unwrap();
        copy.write_at(0, &bytes).unwrap();
        open(&(Arc::new(copy) as Arc<dyn Device>))
    };
    assert!(sink.replayed.is_empty() && !recovered.was_clean);
    // Freezing again writes no further covering record.
    let writes = journal.stats().log_writes;
    journal.freeze().unwrap();
    assert_eq!(journal.stats().log_writes, writes);
    journal.thaw();
    let is_in = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            log(&journal, &[&thing]);
            is_in.store(true, Std::SeqCst);
        });
        vfscale_harness::stays("it waits", Duration::from_millis(3), || !is_in.load(Std::SeqCst));
        journal.thaw();
    });
}

#[test]
fn a_close_is_clean_and_later_calls_do_nothing() {
    let device = device();
    let (journal, ..) = open(&device);
    let thing = Thing::new(1, b"x");
    log(&journal, &[&thing]);
    journal.close().unwrap();
    assert_eq!(thing.pushes.load(Std::Relaxed), 1);
    let (journal, recovered, sink) = open(&device);
    assert!(recovered.was_clean && sink.replayed.is_empty());
    assert_eq!(recovered.epoch, 3);
    journal.close().unwrap();
}

#[test]
fn the_order_of_a_checkpoint_is_kept() {
    struct Order(StdMutex<Vec<&'static str>>);
    impl Hooks for Order {
        fn before_commit_record(&self, _: u64) -> Result<()> {
            self.0.lock().unwrap().push("data");
            Ok(())
        }

        fn flush_home(&self) -> Result<()> {
            self.0.lock().unwrap().push("written back");
            Ok(())
        }

        fn on_durable(&self, _: Durable) {
            self.0.lock().unwrap().push("durable");
        }
    }
    let device = device();
    let order = Arc::new(Order(StdMutex::default()));
    let (journal, ..) = open_with(&device, order.clone(), options()).unwrap();
    let thing = Thing::new(1, b"x");
    let mut transaction = begin(&journal, 1000);
    transaction.add(thing.clone());
    let seen = Arc::new(StdMutex::new(None));
    {
        let (seen, order, thing) = (seen.clone(), order.clone(), thing.clone());
        transaction.on_durable(move |durable| {
            assert!(!thing.state().is_pinned());
            order.0.lock().unwrap().push("callback");
            *seen.lock().unwrap() = Some(durable.unwrap());
        });
    }
    let sequence = transaction.commit().unwrap().sequence;
    assert!(thing.state().is_pinned() && seen.lock().unwrap().is_none());
    journal.force(sequence).unwrap();
    let durable = seen.lock().unwrap().unwrap();
    assert_eq!(durable.sequence, sequence);
    assert_eq!(durable.lsn.to_bits(), thing.committed.load(Std::Relaxed));
    journal.quiesce().unwrap();
    assert_eq!(*order.0.lock().unwrap(), ["data", "durable", "callback", "written back"]);
}

/// A commit never waits for a push: its caller holds items locked, which the push may need.
#[test]
fn the_cil_is_pushed_in_the_background_and_throttles_begins() {
    let device = device();
    let in_push = Arc::new(Barrier::new(2));
    let hook = {
        let (in_push, first) = (in_push.clone(), AtomicBool::new(true));
        Middle(move |_| {
            if first.swap(false, Std::SeqCst) {
                in_push.wait();
                in_push.wait();
            }
            Ok(())
        })
    };
    let options = Options { cil_bytes: Some(10_000), ..options() };
    let (journal, ..) = open_with(&device, Arc::new(hook), options).unwrap();
    // Without any force: this alone wakes the push worker, which is then delayed.
    log(&journal, &[&Thing::new(1, &[0; 12_000])]);
    in_push.wait();
    // Up to twice the size no transaction waits, although the push is still running.
    log(&journal, &[&Thing::new(2, &[0; 12_000])]);
    let (is_committed, is_through) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            log(&journal, &[&Thing::new(3, &[0; 12_000])]);
            is_committed.store(true, Std::SeqCst);
            log(&journal, &[&Thing::new(4, &[0; 100])]);
            is_through.store(true, Std::SeqCst);
        });
        vfscale_harness::comes(Duration::from_secs(5), || is_committed.load(Std::SeqCst));
        vfscale_harness::pause(Duration::from_millis(5));
        let (committed, through) = (is_committed.load(Std::SeqCst), is_through.load(Std::SeqCst));
        let waits = journal.stats().push_waits;
        in_push.wait();
        assert!(committed, "a commit has waited for a push");
        assert!(!through, "the throttle let a transaction begin");
        assert_eq!(waits, 1);
    });
    assert!(is_through.load(Std::SeqCst));
}

/// A transaction that waits for a push is woken by a shutdown.
#[test]
fn the_throttle_ends_with_a_shutdown() {
    let device = device();
    let in_push = Arc::new(Barrier::new(2));
    let hook = in_push.clone();
    let hook = Middle(move |_| {
        hook.wait();
        hook.wait();
        Ok(())
    });
    let options = Options { cil_bytes: Some(10_000), ..options() };
    let (journal, ..) = open_with(&device, Arc::new(hook), options).unwrap();
    log(&journal, &[&Thing::new(1, &[0; 12_000])]);
    in_push.wait();
    log(&journal, &[&Thing::new(2, &[0; 24_000])]);
    thread::scope(|scope| {
        let waits = scope.spawn(|| journal.begin(Reservation::new(100)).map(drop));
        vfscale_harness::stays("the throttle holds it", Duration::from_millis(5), || {
            !waits.is_finished()
        });
        journal.shut_down(Error::Panicked);
        assert!(matches!(waits.join().unwrap(), Err(Error::Shutdown(_))));
        in_push.wait();
    });
}

#[test]
fn committed_changes_are_pushed_after_the_interval() {
    let device = device();
    let interval = Some(Duration::from_millis(5));
    let (journal, ..) =
        open_with(&device, Arc::new(NoHooks), Options { sync_interval: interval, ..options() })
            .unwrap();
    let sequence = log(&journal, &[&Thing::new(1, b"x")]);
    vfscale_harness::wait_until("a thread pushes", || journal.durable_sequence() >= sequence);
}

#[test]
fn every_setting_does_the_same() {
    let default = Scaling::with_slots(4);
    for scaling in [
        default,
        Scaling::kernel_2_6(),
        default.and_before("read-mostly").unwrap(),
        default.and_before("active-trans").unwrap(),
        default.and_before("cil-counters").unwrap(),
        default.and_before("cil-lists").unwrap(),
        default.and_before("busy-extents").unwrap(),
        default.and_before("cil-context").unwrap(),
        default.and_before("log-space").unwrap(),
    ] {
        let device = device();
        let options = Options { scaling, cil_bytes: Some(20_000), ..options() };
        let (journal, ..) = open_with(&device, Arc::new(NoHooks), options).unwrap();
        thread::scope(|scope| {
            for cpu in 0..4 {
                let journal = &journal;
                scope.spawn(move || {
                    let _here = cpu::pretend(cpu);
                    for round in 0..50 {
                        let thing = Thing::new(u64::from(cpu) * 100 + round, &[1; 300]);
                        let sequence = log(journal, &[&thing]);
                        if round % 10 == 0 {
                            journal.force(sequence).unwrap();
                        }
                    }
                });
            }
        });
        journal.force_all().unwrap();
        let tail = journal.stats().tail;
        drop(journal);
        let (_journal, recovered, sink) = open(&device);
        assert_eq!((recovered.tail <= tail, sink.last().len()), (true, 200), "{scaling:?}");
    }
}

#[test]
fn a_failing_hook_shuts_the_journal_down() {
    let device = device();
    let why = || Error::client(std::io::Error::other("the data did not arrive"));
    let hook = Middle(move |sequence| if sequence == 2 { Err(why()) } else { Ok(()) });
    let (journal, ..) = open_with(&device, Arc::new(hook), options()).unwrap();
    let (good, bad) = (Thing::new(1, b"good"), Thing::new(2, b"bad"));
    let first = log(&journal, &[&good]);
    journal.force(first).unwrap();
    let second = log(&journal, &[&bad]);
    let error = journal.force(second).unwrap_err();
    assert!(error.to_string().contains("the data did not arrive"), "{error}");
    // The item is never written back, and the log does not contain it.
    assert!(bad.state().is_pinned());
    assert_eq!(bad.aborts.load(Std::Relaxed), 1);
    assert!(journal.close().is_err());
    let mut sink = Sink::default();
    let opened = Journal::open(device, LOG, VOLUME, Arc::new(NoHooks), &mut sink, options());
    assert!(opened.is_ok() && sink.last().len() == 1);
}

/// The items of two threads that replace small files take some 44 KiB.
#[test]
fn a_force_of_fifty_kilobytes_is_one_write() {
    let device = device();
    let (journal, ..) = open(&device);
    let things: Vec<_> = (0..14).map(|id| Thing::new(id, &[7; 4000])).collect();
    let before = journal.stats().log_writes;
    let sequence = log(&journal, &things.iter().collect::<Vec<_>>());
    journal.force(sequence).unwrap();
    let after = journal.stats();
    assert!(after.tickets[0].used > 50_000, "{:?}", after.tickets);
    assert_eq!(after.log_writes - before, 1);
}

/// The log may have a device of its own.
#[test]
fn an_external_log_is_a_whole_device() {
    let device: Arc<dyn Device> = Arc::new(vfscale_block::MemoryDevice::new(2 << 20).unwrap());
    let region = Region { offset: 0, length: device.size() };
    Journal::format(&*device, region, VOLUME).unwrap();
    for round in 0..3_u8 {
        let mut sink = Sink::default();
        let hooks = Arc::new(NoHooks);
        let opened =
            Journal::open(device.clone(), region, VOLUME, hooks, &mut sink, Options::default());
        let (journal, _) = opened.unwrap();
        assert_eq!(sink.last().get(&1).map(|bytes| bytes[0]), round.checked_sub(1));
        let sequence = log(&journal, &[&Thing::new(1, &[round])]);
        journal.force(sequence).unwrap();
    }
}

/// A hook that panics shuts the journal down: the checkpoint is not reported as durable.
#[test]
fn a_panic_in_a_hook_shuts_the_journal_down() {
    let device = device();
    let hook = Middle(|_| panic!("a hook panics"));
    let (journal, ..) = open_with(&device, Arc::new(hook), options()).unwrap();
    let sequence = log(&journal, &[&Thing::new(1, b"x")]);
    let forced = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| journal.force(sequence)));
    assert!(forced.is_err());
    assert!(matches!(journal.failure(), Some(Error::Panicked)));
    assert!(journal.force(sequence).is_err() && journal.durable_sequence() < sequence);
}

/// Committed transactions are notified of a shutdown immediately, and not only when the journal is
/// dropped.
#[test]
fn committed_transactions_are_notified_of_a_shutdown() {
    let device = device();
    let (journal, ..) = open(&device);
    let thing = Thing::new(1, b"x");
    let mut transaction = begin(&journal, 100);
    transaction.add(thing.clone());
    let told = Arc::new(AtomicBool::new(false));
    {
        let told = told.clone();
        transaction.on_durable(move |durable| told.store(durable.is_err(), Std::SeqCst));
    }
    let _ = transaction.commit().unwrap();
    journal.shut_down(Error::client(std::io::Error::other("pulled")));
    let start = std::time::Instant::now();
    while !told.load(Std::SeqCst) || thing.aborts.load(Std::Relaxed) != 1 {
        assert!(start.elapsed() < Duration::from_secs(20), "the callback was not called");
        thread::yield_now();
    }
}

/// The location of the counters without a lock: on a cache line for each CPU, and on one for all
/// before the patches.
#[test]
fn counters_are_where_their_settings_say() {
    let default = Scaling::with_slots(4);
    for (scaling, active, reserved) in [
        (default, 4, 4),
        (default.and_before("active-trans").unwrap(), 1, 4),
        (default.and_before("cil-counters").unwrap(), 4, 1),
    ] {
        let device = device();
        let options = Options { scaling, ..options() };
        let (journal, ..) = open_with(&device, Arc::new(NoHooks), options).unwrap();
        let mut open = Vec::new();
        for cpu in 0..4 {
            let _here = cpu::pretend(cpu);
            open.push(begin(&journal, 10));
            log(&journal, &[&Thing::new(u64::from(cpu), b"x")]);
        }
        let log = &journal.log;
        let lines = log.gate.lines(&log.shared);
        assert_eq!(lines, if active == 4 { vec![1; 4] } else { vec![4] });
        assert_eq!(log.cil.reserved_parts().iter().filter(|part| **part > 0).count(), reserved);
    }
}

/// Chinner, per-CPU delayed logging (2020), patch 1: commits do not write the cache lines that they
/// read. Before the patch they did.
#[test]
fn read_mostly_fields_are_apart() {
    for (is_spread, apart) in [(true, true), (false, false)] {
        let shared = SharedFields::new(is_spread, 1, 1, 1);
        let read = std::ptr::from_ref(&shared.read).addr();
        let written = std::ptr::from_ref(shared.written()).addr();
        assert_eq!(read / 64 != written / 64, apart);
    }
}
