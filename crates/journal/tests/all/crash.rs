//! Power failures at every moment: forced transactions are present, every transaction is present
//! wholly or not at all, and an interrupted recovery can be repeated.

use std::sync::{Arc, Mutex};

use crate::common::{self, DEVICE_BYTES, History, LOG, Store, VOLUME, open, options};
use vfscale_block::{Device, MemoryDevice};
use vfscale_journal::{Error, Journal, Options};
use vfscale_sync::random::{Random, seed};
use vfscale_testkit::{CrashPlan, CrashState, RecordingDevice};

/// Number of states after which a recovery is itself interrupted.
const AGAIN: usize = 97;

fn formatted() -> MemoryDevice {
    let device = MemoryDevice::with_block_size(DEVICE_BYTES, 512).unwrap();
    Journal::format(&device, LOG, VOLUME).unwrap();
    device
}

/// Promised transactions, each with the mark that promised it.
type Promises = Mutex<Vec<(usize, u64)>>;

/// Runs transactions on some threads, and forces some of them.
fn run(
    store: &Store,
    device: &RecordingDevice<Arc<dyn Device>>,
    (threads, rounds): (u64, u64),
    seed: u64,
) -> Promises {
    let promises = Promises::default();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let promises = &promises;
            scope.spawn(move || {
                let mut random = Random::new(seed ^ (thread + 1) << 32);
                for _ in 0..rounds {
                    let done = store.set_some(&mut random).unwrap();
                    if random.below(3) == 0 {
                        store.journal.force(done.committed.sequence).unwrap();
                        let mark = device.mark("forced");
                        promises.lock().unwrap().push((mark, done.number));
                    }
                }
            });
        }
    });
    promises
}

/// Recovers a state and checks it. Of some states the recovery itself is recorded, and interrupted
/// at every moment.
fn check(state: &CrashState, number: usize, history: &History, promises: &Promises) {
    let promises = promises.lock().unwrap();
    let promised = |done: &common::Done| {
        promises.iter().any(|(mark, number)| *mark <= state.marks() && *number == done.number)
    };
    if !number.is_multiple_of(AGAIN) {
        let device: Arc<dyn Device> = state.device();
        recover(&device, state, state.has_lost());
        history.check(&*device, promised);
        return;
    }
    let device = Arc::new(RecordingDevice::new(state.device()));
    let shared: Arc<dyn Device> = device.clone();
    recover(&shared, state, state.has_lost());
    history.check(&*device, promised);
    let plan = with_lost(CrashPlan::default().listed_max(2).samples(1).exhaustive_bits(3));
    for again in device.crash_states(plan) {
        let twice: Arc<dyn Device> = again.device();
        recover(&twice, state, state.has_lost() || again.has_lost());
        history.check(&*twice, promised);
        for id in 0..common::BLOCKS {
            // Not less than before, but possibly more. The opening record of the first recovery is
            // written where a record may be that did not arrive whole. If it is torn as well, the
            // zeros at its end can be the part that was missing.
            let (once, twice) = (common::read_block(&*device, id), common::read_block(&*twice, id));
            assert!(once <= twice, "block {id} after a second recovery, {state}, {again}");
        }
    }
}

/// Opens the log, as a repair does if its end can't be read.
fn recover(device: &Arc<dyn Device>, state: &CrashState, has_lost: bool) {
    let opened = match open(device, options(1)) {
        Err(Error::EndUnread { .. }) if has_lost => {
            open(device, Options { may_cut: true, ..options(1) })
        }
        opened => opened,
    };
    let (journal, recovered) = opened.unwrap_or_else(|error| panic!("{state}: {error}"));
    assert!(!recovered.was_clean || recovered.checkpoints == 0, "{state}: {recovered:?}");
    drop(journal);
}

fn sweep(base: MemoryDevice, size: (u64, u64), plan: CrashPlan) -> usize {
    let seed = seed();
    let base: Arc<dyn Device> = Arc::new(base);
    let device = Arc::new(RecordingDevice::new(base));
    let store = Store::open(device.clone(), options(4)).unwrap();
    let promises = run(&store, &device, size, seed);
    let history = store.history();
    store.journal.close().unwrap();
    let mut count = 0;
    for state in device.crash_states(plan.seed(seed)) {
        check(&state, count, &history, &promises);
        count += 1;
    }
    println!("{count} states");
    count
}

/// Writes into the log may be unreadable after a crash.
fn with_lost(plan: CrashPlan) -> CrashPlan {
    plan.lost_in(std::iter::once(LOG.offset..LOG.offset + LOG.length))
}

fn plan() -> CrashPlan {
    with_lost(CrashPlan::default().listed_max(3).samples(2).exhaustive_bits(3))
}

/// From an empty log on, with one thread.
#[test]
fn one_thread_from_an_empty_log() {
    assert!(sweep(formatted(), (1, 40), plan()) > 200);
}

/// Several threads, whose commits share checkpoints.
///
/// Race: A commit against the push.
#[test]
fn several_threads() {
    assert!(sweep(formatted(), (4, 15), plan()) > 100);
}

/// Around the end of the log: records wrap, new ones overwrite old ones, and the tail moves.
///
/// Race: Writing an item back against logging it again.
///
/// Race: The tail against a checkpoint that has just become durable.
///
/// The tail is the first item that is not written back, or the last durable record if there is
/// none. A checkpoint's items and its LSN as the last durable record are entered in one critical
/// section; between two, a tail could pass the items. The tail that limits overwriting old records
/// is that of the latest *durable* record, not the one in memory; otherwise a crash could find the
/// tail of the last whole record overwritten.
#[test]
fn over_the_end_of_the_log() {
    let base: Arc<dyn Device> = Arc::new(formatted());
    let store = Store::open(base.clone(), options(1)).unwrap();
    let mut random = Random::new(7);
    while store.journal.stats().head.block() < 220 {
        let done = store.set_some(&mut random).unwrap();
        store.journal.force(done.committed.sequence).unwrap();
    }
    store.journal.close().unwrap();
    let device = Arc::new(RecordingDevice::new(base));
    let store = Store::open(device.clone(), options(2)).unwrap();
    let seed = seed();
    let promises = run(&store, &device, (2, 100), seed);
    assert!(store.journal.stats().head.cycle() > 1, "it did not wrap");
    let history = store.history();
    drop(store);
    let mut count = 0;
    for state in device.crash_states(plan().seed(seed)) {
        check(&state, count, &history, &promises);
        count += 1;
    }
    println!("{count} states");
}

/// Crash, recovery, more transactions, crash: records that the first crash left after the end never
/// count.
#[test]
fn a_crash_after_a_crash() {
    let seed = seed();
    let base: Arc<dyn Device> = Arc::new(formatted());
    let device = Arc::new(RecordingDevice::new(base));
    let store = Store::open(device.clone(), options(2)).unwrap();
    for _ in 0..3 {
        run(&store, &device, (1, 3), seed);
        // A checkpoint of several records, of which a crash may leave the later ones.
        let done = store.set(&[1, 2, 3, 4, 5, 6], 5000).unwrap();
        store.journal.force(done.committed.sequence).unwrap();
    }
    drop(store);
    let mut unconnected = 0;
    let plan = CrashPlan::default().listed_max(6).samples(6).exhaustive_bits(5);
    for (number, state) in device.crash_states(plan.seed(seed)).enumerate() {
        let second = Arc::new(RecordingDevice::new(state.device() as Arc<dyn Device>));
        let shared: Arc<dyn Device> = second.clone();
        let (journal, recovered) = open(&shared, options(1)).unwrap();
        unconnected += recovered.unconnected;
        if !number.is_multiple_of(9) && recovered.unconnected == 0 {
            continue;
        }
        let store = Store::over(shared, journal);
        let promises = run(&store, &second, (1, 4), seed + number as u64);
        let history = store.history();
        drop(store);
        let plan = CrashPlan::default().listed_max(2).samples(1).exhaustive_bits(2);
        for again in second.crash_states(plan) {
            // The histories begin with the contents that the first recovery found, so only later
            // states can be compared.
            if again.marks() > 0 {
                check(&again, 1, &history, &promises);
            }
        }
    }
    println!("{unconnected} records are behind the end");
    assert!(unconnected > 0, "no crash left records behind the end: the test shows nothing");
}
