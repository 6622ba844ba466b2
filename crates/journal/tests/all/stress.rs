//! All operations concurrently, on real threads: transactions that roll, forces, freezes, quiesces,
//! and a log that is always full.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{self, DEVICE_BYTES, LOG, Store, VOLUME, open, options};
use vfscale_block::{Device, MemoryDevice};
use vfscale_journal::{Journal, Options};
use vfscale_sync::cpu;
use vfscale_sync::random::Random;
use vfscale_sync::scaling::Scaling;

const ROUNDS: u64 = 300;

fn run(scaling: Scaling, seed: u64) {
    let device = MemoryDevice::with_block_size(DEVICE_BYTES, 4096).unwrap();
    Journal::format(&device, LOG, VOLUME).unwrap();
    let device: Arc<dyn Device> = Arc::new(device);
    let store = Store::open(device.clone(), Options { scaling, ..options(1) }).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..6)
            .map(|thread| {
                let store = &store;
                scope.spawn(move || {
                    let mut random = Random::new(seed ^ (thread + 1) << 40);
                    for round in 0..ROUNDS {
                        // Threads change their CPU, also in the middle of an operation.
                        let _here = cpu::pretend(u32::try_from(random.below(8)).unwrap());
                        let done = match random.below(8) {
                            0 => store.set_in_parts(&[random.below(common::BLOCKS)], 60_000, 4),
                            _ => store.set_some(&mut random),
                        };
                        let sequence = done.unwrap().committed.sequence;
                        if round % 4 == 0 {
                            store.journal.force(sequence).unwrap();
                            assert!(store.journal.durable_sequence() >= sequence);
                        }
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                store.journal.freeze().unwrap();
                assert!(store.journal.is_cil_empty());
                assert_eq!(store.journal.stats().ail_items, 0);
                store.journal.thaw();
                store.journal.quiesce().unwrap();
                vfscale_harness::pause(std::time::Duration::from_millis(2));
            }
        });
        for worker in workers {
            worker.join().unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let history = store.history();
    let stats = store.journal.stats();
    assert!(stats.head.cycle() > 1 && stats.active == 0);
    for ticket in &stats.tickets {
        assert_eq!(ticket.reserved, ticket.used + ticket.spared + ticket.returned, "{ticket:?}");
    }
    store.journal.close().unwrap();
    let (journal, recovered) = open(&device, options(1)).unwrap();
    assert!(recovered.was_clean && recovered.items == 0);
    history.check(&*device, |_| true);
    drop(journal);
}

#[test]
fn everything_at_once_after_the_patches() {
    run(Scaling::with_slots(8), u64::from(std::process::id()));
}

/// Race: Waiting for log space against waiting for an item.
#[test]
fn everything_at_once_before_them() {
    run(Scaling::kernel_2_6(), u64::from(std::process::id()));
}
