//! Every call of the device fails once: only durable transactions are acknowledged, every later
//! call returns an error, no thread waits forever, and a recovery finds the promised transactions.

use std::sync::Arc;
use std::sync::Mutex;

use crate::common::{DEVICE_BYTES, LOG, Store, VOLUME, open, options};
use vfscale_block::{Device, MemoryDevice, Operation};
use vfscale_journal::{Error, Journal, Reservation};
use vfscale_sync::random::Random;
use vfscale_testkit::{Fault, FaultyDevice};

type Faulty = Arc<FaultyDevice<MemoryDevice>>;

fn formatted() -> Faulty {
    let device = MemoryDevice::with_block_size(DEVICE_BYTES, 512).unwrap();
    Journal::format(&device, LOG, VOLUME).unwrap();
    Arc::new(FaultyDevice::new(device))
}

/// Runs transactions on some threads until they fail, and returns those whose force succeeded.
fn run(store: &Store, threads: u64, rounds: u64) -> Vec<u64> {
    let promised = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let promised = &promised;
            scope.spawn(move || {
                let mut random = Random::new(0x5eed ^ (thread + 1) << 20);
                for round in 0..rounds {
                    let Ok(done) = store.set_some(&mut random) else { return };
                    if round % 2 == 0 && store.journal.force(done.committed.sequence).is_ok() {
                        promised.lock().unwrap().push(done.number);
                    }
                    if round % 5 == 4 && store.journal.quiesce().is_err() {
                        return;
                    }
                }
            });
        }
    });
    promised.into_inner().unwrap()
}

/// Runs the transactions with the N-th call failing, for every N. `fault` creates the fault.
fn every_call(threads: u64, fault: impl Fn(u64) -> Fault) -> u64 {
    for n in 1.. {
        let device = formatted();
        let shared: Arc<dyn Device> = device.clone();
        device.arm(fault(n));
        let store = match Store::open(shared.clone(), options(2)) {
            Ok(store) => store,
            Err(error) => {
                assert!(device.fired() > 0, "{error}");
                device.disarm();
                open(&shared, options(1)).unwrap_or_else(|error| panic!("{n}: {error}"));
                continue;
            }
        };
        let promised = run(&store, threads, 10);
        let fired = device.fired() > 0;
        if fired {
            assert!(matches!(store.journal.failure(), Some(Error::Device(_))), "call {n}");
            assert!(matches!(store.journal.begin(Reservation::new(10)), Err(Error::Shutdown(_))));
            assert!(store.journal.force_all().is_err() && store.journal.freeze().is_err());
        }
        let history = store.history();
        assert_eq!(store.journal.stats().active, 0);
        let closed = store.journal.close();
        assert_eq!(closed.is_err(), device.fired() > 0, "call {n}");
        device.disarm();
        drop(open(&shared, options(1)).unwrap_or_else(|error| panic!("{n}: {error}")));
        history.check(&*shared, |done| promised.contains(&done.number));
        if closed.is_ok() {
            return n;
        }
    }
    unreachable!("the loop ends when no call fails any more")
}

#[test]
fn every_write_fails_once() {
    assert!(every_call(1, |n| Fault::on(Operation::Write).nth(n)) > 15);
}

#[test]
fn every_write_is_torn_once() {
    assert!(every_call(1, |n| Fault::on(Operation::Write).nth(n).tear(512 * (n % 9))) > 15);
}

#[test]
fn every_flush_fails_once() {
    assert!(every_call(1, |n| Fault::on(Operation::Flush).nth(n)) > 8);
}

/// A block of the log that can't be read once is read again, or the opening fails: promised
/// transactions are present in any case.
#[test]
fn every_read_of_the_log_fails_once() {
    for n in 1.. {
        let device = formatted();
        let shared: Arc<dyn Device> = device.clone();
        let store = Store::open(shared.clone(), options(2)).unwrap();
        let promised = run(&store, 1, 10);
        assert!(!promised.is_empty());
        let history = store.history();
        // As after a crash: the log has records.
        drop(store);
        device.arm(Fault::on(Operation::Read).within(0..LOG.length).nth(n));
        if let Err(error) = open(&shared, options(1)) {
            assert!(matches!(error, Error::Device(_)), "{n}: {error}");
        }
        let fired = device.fired() > 0;
        device.disarm();
        drop(open(&shared, options(1)).unwrap_or_else(|error| panic!("{n}: {error}")));
        history.check(&*shared, |done| promised.contains(&done.number));
        if !fired {
            assert!(n > 2, "{n}");
            return;
        }
    }
}

/// Several threads, on a device that fails for good from some call on: no thread waits forever.
///
/// Race: A shutdown against everything that waits.
#[test]
fn a_device_that_goes_away_leaves_nobody_waiting() {
    assert!(every_call(3, |n| Fault::on_any().from(n + 40)) > 5);
}
