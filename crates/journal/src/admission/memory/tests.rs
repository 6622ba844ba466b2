#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use crate::support_tests::{Thing, device, open_with, options};
use crate::{
    Error, Hooks, ItemState, Journal, LogItem, LogKey, LogVector, Lsn, NoHooks, Options, Pushed,
    Reservation, Result, Transaction,
};

const BOUND: usize = 64;

/// Number of things of a kind in memory, now and at most.
#[derive(Default)]
struct Census {
    now: AtomicUsize,
    most: AtomicUsize,
}

/// A thing that is counted for as long as it is in memory.
struct CountedThing {
    id: u64,
    state: ItemState,
    census: Arc<Census>,
}

impl CountedThing {
    const MEMORY_BYTES: usize = 1000;

    fn new(id: u64, census: &Arc<Census>) -> Arc<Self> {
        let now = census.now.fetch_add(1, Ordering::SeqCst) + 1;
        census.most.fetch_max(now, Ordering::SeqCst);
        Arc::new(Self { id, state: ItemState::new(), census: Arc::clone(census) })
    }
}

impl Drop for CountedThing {
    fn drop(&mut self) {
        self.census.now.fetch_sub(1, Ordering::SeqCst);
    }
}

impl LogItem for CountedThing {
    fn state(&self) -> &ItemState {
        &self.state
    }

    fn key(&self) -> LogKey {
        LogKey { kind: 3, id: self.id }
    }

    fn format(&self, vector: &mut LogVector) {
        vector.push(&[1; 10]);
    }

    fn memory_bytes(&self) -> usize {
        Self::MEMORY_BYTES
    }

    fn push(&self, _: Lsn) -> Result<Pushed> {
        Ok(if self.state.is_pinned() { Pushed::Pinned } else { Pushed::Written })
    }
}

fn bounded(things: usize) -> Options {
    Options { memory_bytes: Some((things * CountedThing::MEMORY_BYTES) as u64), ..options() }
}

fn begin(journal: &Journal) -> Transaction<'_> {
    journal.begin(Reservation::new(10_000)).unwrap()
}

/// The log has room for ten thousand of these things, and no thread forces it.
///
/// Race: Waiting for memory against the threads that free it.
#[test]
fn no_more_is_in_memory_than_the_bound_whatever_room_the_log_has() {
    let device = device();
    let (journal, ..) = open_with(&device, Arc::new(NoHooks), bounded(BOUND)).unwrap();
    let census = Arc::new(Census::default());
    for id in 0..4_000 {
        let mut transaction = begin(&journal);
        transaction.add(CountedThing::new(id, &census));
        let _ = transaction.commit().unwrap();
    }
    let most = census.most.load(Ordering::SeqCst);
    // The bound does not include the item of the active transaction.
    assert!(most <= BOUND + 1, "{most} things");
    // Items within the bound need not be written back.
    assert!(most > BOUND / 4, "{most} things");
    journal.close().unwrap();
    assert_eq!(census.now.load(Ordering::SeqCst), 0);
}

/// A transaction that has begun continues, however much memory it takes, and admits others when it
/// has ended.
///
/// Race: Waiting for memory against the threads that free it.
#[test]
fn a_begun_transaction_never_waits_for_memory() {
    let device = device();
    let (journal, ..) = open_with(&device, Arc::new(NoHooks), bounded(8)).unwrap();
    let census = Arc::new(Census::default());
    let mut rolling = journal.begin(Reservation::permanent(10_000, 2)).unwrap();
    let held: Vec<_> = (0..50).map(|id| CountedThing::new(id, &census)).collect();
    // Nor can they be written back between two parts, before the next one has added them.
    held.iter().for_each(|item| item.state.pin());
    for _ in 0..5 {
        held.iter().for_each(|item| rolling.add(Arc::clone(item)));
        let (committed, rest) = rolling.roll().unwrap();
        rolling = rest;
        held.iter().for_each(|item| rolling.add(Arc::clone(item)));
        journal.force(committed.sequence).unwrap();
    }
    assert!(journal.stats().ail_bytes > 8 * CountedThing::MEMORY_BYTES as u64);
    let other = CountedThing::new(100, &census);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let mut transaction = begin(&journal);
            let left = journal.stats().ail_bytes;
            transaction.add(other.clone());
            let _ = transaction.commit().unwrap();
            left
        });
        let _ = rolling.commit().unwrap();
        held.iter().for_each(|item| item.state.unpin());
        let left = waits.join().unwrap();
        assert!(left <= 4 * CountedThing::MEMORY_BYTES as u64, "{left} bytes");
    });
    journal.close().unwrap();
}

/// A hook that delays write-back until the gate is opened.
#[derive(Default)]
struct WritebackGate {
    is_open: Mutex<bool>,
    changed: Condvar,
}

impl Hooks for WritebackGate {
    fn flush_home(&self) -> Result<()> {
        drop(self.changed.wait_while(self.is_open.lock().unwrap(), |is_open| !*is_open).unwrap());
        Ok(())
    }
}

impl WritebackGate {
    fn open(&self) {
        *self.is_open.lock().unwrap() = true;
        self.changed.notify_all();
    }
}

/// On a device where no item is written back, transactions do not begin. A freeze need not wait for
/// the waiting ones, and a shutdown wakes them with an error.
#[test]
fn a_shutdown_wakes_who_waits_for_memory() {
    let device = device();
    let gate = Arc::new(WritebackGate::default());
    let (journal, ..) = open_with(&device, gate.clone(), bounded(8)).unwrap();
    let things: Vec<_> = (0..8).map(|id| Thing::new(id, b"x")).collect();
    let mut transaction = begin(&journal);
    things.iter().for_each(|thing| transaction.add(Arc::clone(thing)));
    let sequence = transaction.commit().unwrap().sequence;
    journal.force(sequence).unwrap();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| journal.begin(Reservation::new(10)).err());
        while journal.stats().memory_waits == 0 {
            std::thread::yield_now();
        }
        assert_eq!(journal.stats().active, 0);
        journal.shut_down(Error::client(std::io::Error::other("pulled")));
        let refused = waits.join().unwrap();
        gate.open();
        assert!(matches!(refused, Some(Error::Shutdown(_))), "{refused:?}");
    });
}
