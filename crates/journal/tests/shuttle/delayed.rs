//! Schedules of transactions that delay changes, and of pushes that log them, chosen at random:
//! `RUSTFLAGS="--cfg shuttle" cargo test --release -p vfscale-journal --test shuttle delayed::`.

use std::sync::{Arc, Mutex as StdMutex, OnceLock};

use vfscale_block::{Device, MemoryDevice};
use vfscale_journal::{
    ChangeList, Delayed, DelayedList, Durable, Hooks, Journal, Options, Reservation, Result,
};
use vfscale_sync::atomic::{AtomicUsize, ListedFlag, Ordering};
use vfscale_sync::model::{self, Schedules};
use vfscale_sync::scaling::Scaling;
use vfscale_sync::{Mutex, cpu, lock_class};

use crate::common::{
    Block, BlockLock, BlockSink, DEVICE_BYTES, LOG, Store, VOLUME, open, options, read_block,
};

lock_class! {
    /// The list of things with delayed changes.
    ListLock = ("delayed_list", 150);
}

const SCHEDULES: usize = 500;
/// Bytes that each block logs.
const BYTES: usize = 40;

/// The number of all changes of the other blocks, in block 0. Transactions delay its change.
struct Counter {
    block: OnceLock<Arc<Block>>,
    state: Mutex<State, BlockLock>,
    /// Lists the counter while its change is delayed.
    list: DelayedList<(), ListLock>,
}

#[derive(Default)]
struct State {
    now: u64,
    is_delayed: bool,
    /// Whether the counter is on the list.
    is_listed: bool,
    log_bytes: u64,
    order: u64,
}

fn item_bytes() -> u64 {
    Reservation::item_bytes(8 + BYTES as u64)
}

impl Counter {
    fn log(&self, state: &mut State, changes: &mut ChangeList) {
        let block = self.block.get().unwrap();
        changes.take_over(std::mem::take(&mut state.log_bytes));
        changes.add(block.clone());
        block.put(state.now, BYTES);
    }

    /// Sets `block` to `number`, and counts that.
    fn set(&self, store: &Store, block: &Arc<Block>, number: u64) -> u64 {
        let reservation = Reservation::new(2 * item_bytes() + 1);
        let mut transaction = store.journal.begin(reservation).unwrap();
        transaction.add(block.clone());
        block.put(number, BYTES);
        let mut state = self.state.lock();
        state.now += 1;
        let changes = transaction.changes();
        changes.follow(state.order);
        let is_delayed = self.list.is_open();
        if !is_delayed {
            self.log(&mut state, changes);
        } else {
            if state.log_bytes == 0 {
                state.log_bytes = changes.set_aside(item_bytes()).unwrap();
            }
            if !state.is_listed {
                state.is_listed = true;
                self.list.add(());
            }
        }
        let committed = transaction.commit().unwrap();
        state.is_delayed = is_delayed;
        state.order = committed.order;
        committed.sequence
    }
}

struct CounterHooks {
    counter: Arc<Counter>,
    device: Arc<dyn Device>,
    /// The device after each checkpoint.
    crashes: Arc<StdMutex<Vec<Vec<u8>>>>,
}

impl Hooks for CounterHooks {
    fn run_delayed(&self, delayed: &dyn Delayed) -> Result<()> {
        let counter = &self.counter;
        counter.list.close();
        while counter.list.take().is_some() {
            let mut state = counter.state.lock();
            state.is_listed = false;
            if std::mem::take(&mut state.is_delayed) {
                let mut changes = delayed.begin();
                changes.follow(state.order);
                counter.log(&mut state, &mut changes);
                state.order = delayed.commit(&mut changes)?.order;
            }
            counter.list.written();
        }
        Ok(())
    }

    fn has_delayed(&self) -> bool {
        self.counter.list.is_any()
    }

    fn context_ended(&self, _items: usize) {
        // As after a large context: here all are small, and most changes would not be delayed.
        self.counter.list.ended(0);
    }

    fn on_durable(&self, _checkpoint: Durable) {
        let mut bytes = vec![0; self.device.size() as usize];
        self.device.read_at(0, &mut bytes).unwrap();
        self.crashes.lock().unwrap().push(bytes);
    }

    fn flush_home(&self) -> Result<()> {
        Ok(self.device.flush()?)
    }
}

/// Returns the values of the first blocks after a crash that has left these bytes.
fn recovered(bytes: &[u8]) -> [u64; 4] {
    let device = device();
    device.write_at(0, bytes).unwrap();
    drop(open(&device, options(1)).unwrap());
    [0, 1, 2, 3].map(|id| read_block(&*device, id).map_or(0, |(_, value)| value))
}

fn device() -> Arc<dyn Device> {
    Arc::new(MemoryDevice::with_block_size(DEVICE_BYTES, 4096).unwrap())
}

/// A checkpoint has the delayed changes of all of its transactions, and of no others.
///
/// Race: Transactions that delay changes / that log them / the push.
///
/// A transaction that delays a change announces that before it commits, and the push looks under
/// the writer's side of the context lock. So either the push finds the announcement, and logs the
/// change in the same context once the transaction is through, or the commit is in the next one. A
/// transaction that logs the changes of others, too, commits before the announcement is withdrawn.
/// Without the look under that lock, the model finds a checkpoint without a change.
///
/// Seam: the switch of the context and delayed changes; parties: three transactions, a force, the
/// push worker.
#[test]
fn delayed_changes_against_push() {
    let schedules = [Schedules::Turns(SCHEDULES), Schedules::Delays(SCHEDULES)];
    model::check_patches(&schedules, || {
        let device = device();
        Journal::format(&*device, LOG, VOLUME).unwrap();
        let scaling = if model::is_without_patches() {
            Scaling::kernel_2_6()
        } else {
            Scaling::with_slots(2)
        };
        let counter = Arc::new(Counter {
            block: OnceLock::new(),
            state: Mutex::default(),
            list: DelayedList::default(),
        });
        counter.list.open();
        let crashes = Arc::new(StdMutex::new(Vec::new()));
        let of_hooks = (counter.clone(), device.clone(), crashes.clone());
        let hooks = CounterHooks { counter: of_hooks.0, device: of_hooks.1, crashes: of_hooks.2 };
        let options = Options { scaling, cil_bytes: Some(500), ..options(2) };
        let mut sink = BlockSink(device.clone());
        let (journal, _) =
            Journal::open(device.clone(), LOG, VOLUME, Arc::new(hooks), &mut sink, options)
                .unwrap();
        let store = Arc::new(Store::over(device.clone(), journal));
        let _ = counter.block.set(store.blocks[0].clone());
        let threads = [1, 2, 3].map(|at| {
            model::spawn((store.clone(), counter.clone()), move |(store, counter)| {
                let _here = cpu::pretend(at);
                let block = &store.blocks[at as usize];
                let first = counter.set(&store, block, 1);
                if at == 3 {
                    store.journal.force(first).unwrap();
                }
                counter.set(&store, block, 2);
            })
        });
        store.journal.force_all().unwrap();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        drop(store);
        let mut values = [0; 4];
        for bytes in crashes.lock().unwrap().iter() {
            values = recovered(bytes);
            assert_eq!(values[0], values[1..].iter().sum::<u64>(), "{values:?}");
        }
        assert!(values[3] >= 1, "it was forced");
    });
}

/// A thing is taken off its list with all changes that found it listed, and it is listed as long as
/// a change is left.
///
/// Race: Threads that list a thing, and the push that takes it off.
///
/// A thread notes its change and then lists the thing, unless it is listed; the push takes the
/// thing off, clears its flag, and then takes the changes. The flag is set before the list is
/// unlocked: otherwise the push may take the thing off in between, and the flag stays set for a
/// thing that is on no list.
///
/// Seam: the list and the flag of a thing; parties: three threads with a change each, one of them
/// with a second one, and the push.
#[test]
fn listing_against_push() {
    struct Thing {
        list: DelayedList<u32, ListLock>,
        is_listed: ListedFlag,
        changes: AtomicUsize,
    }
    impl Thing {
        fn change(&self) {
            self.changes.fetch_add(1, Ordering::AcqRel);
            self.list.add_once(&self.is_listed, || 7);
        }

        fn push(&self) {
            while let Some(thing) = self.list.take() {
                assert_eq!(thing, 7);
                self.is_listed.clear();
                self.changes.swap(0, Ordering::AcqRel);
                self.list.written();
            }
        }
    }
    let schedules = [Schedules::Turns(4 * SCHEDULES), Schedules::Delays(4 * SCHEDULES)];
    model::check(&schedules, || {
        let thing = Arc::new(Thing {
            list: DelayedList::default(),
            is_listed: ListedFlag::default(),
            changes: AtomicUsize::new(0),
        });
        let threads = [1, 1, 2].map(|changes| {
            model::spawn(thing.clone(), move |thing| (0..changes).for_each(|_| thing.change()))
        });
        thing.push();
        thing.push();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        thing.push();
        assert_eq!(thing.changes.load(Ordering::Acquire), 0, "of a thing that is on no list");
        assert!(!thing.list.is_any() && !thing.is_listed.is_set());
    });
}
