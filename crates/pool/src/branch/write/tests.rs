//! Several threads that write one branch, and power cuts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use vfscale_block::{Device, Operation};
use vfscale_sync::random::{Random, seed};
use vfscale_testkit::{Fault, FaultyDevice};

use super::{Part, Purse, UNIT};
use crate::Branch;
use crate::tests::crash::{Run, content, plan};

fn write(branch: &Branch, start: u64, data: &[u8]) {
    branch.write_at(start, data).unwrap();
}

/// Writes without being inside of the gate: no flush waits for it.
fn write_unseen(branch: &Branch, start: u64, data: &[u8]) {
    let inner = branch.inner().unwrap();
    let purse = Purse::of_branch(&inner.shared.space, &inner.held);
    inner.write_part(Part { start, data }, &purse).unwrap();
}

/// The model of a branch that several threads use.
struct Threads {
    run: std::sync::Mutex<Run>,
    /// The last content of each block whose write has returned.
    returned: std::sync::Mutex<BTreeMap<u64, u64>>,
}

impl Threads {
    fn write(&self, branch: &Branch, block: u64, write: fn(&Branch, u64, &[u8])) {
        let next = {
            let mut run = self.run.lock().unwrap();
            let next = run.next;
            run.next += 1;
            run.world.get_mut("main").unwrap().write(block, next);
            run.mark(&[]);
            next
        };
        write(branch, block * UNIT, &content(next));
        self.returned.lock().unwrap().insert(block, next);
    }

    fn flush(&self, branch: &Branch) {
        let covered = self.returned.lock().unwrap().clone();
        branch.flush().unwrap();
        let mut run = self.run.lock().unwrap();
        let model = run.world.get_mut("main").unwrap();
        for (block, content) in covered {
            let allowed = model.blocks.get_mut(&block).unwrap();
            if let Some(at) = allowed.iter().position(|one| *one == content) {
                allowed.drain(..at);
            }
        }
        run.mark(&[]);
    }
}

/// Lets three threads write and flush one branch, and sweeps.
fn threads_of_one_branch(seed: u64, write: fn(&Branch, u64, &[u8])) -> Result<usize, String> {
    let mut run = Run::new(300, 12, seed);
    // Writes take different times, so those of other threads overtake them.
    let count = AtomicU64::new(seed);
    let wait = move || {
        let number = count.fetch_add(1, Ordering::Relaxed);
        vfscale_harness::pause(Duration::from_micros(Random::new(number).below(300)));
    };
    run.reopen(|device| {
        let slow = FaultyDevice::new(device);
        slow.arm(Fault::on(Operation::Write).from(1).run(wait));
        Arc::new(slow)
    });
    let branch = run.pool.branch("main").unwrap();
    let threads = Threads { run: run.into(), returned: Default::default() };
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (threads, branch) = (&threads, &branch);
            scope.spawn(move || {
                let mut random = Random::new(seed + thread);
                for _ in 0..30 {
                    match random.below(3) {
                        0 => threads.flush(branch),
                        _ => threads.write(branch, thread * 4 + random.below(4), write),
                    }
                }
            });
        }
    });
    threads.run.into_inner().unwrap().sweep(plan())
}

/// Race: Overwrites of a block against the flush that closes its batch.
///
/// A flush closes a batch while no writer is inside, so its checksums are those of contents that
/// were written, and later writes see that the blocks are fragile.
#[test]
fn threads_of_one_branch_keep_what_was_flushed() {
    let seed = seed();
    for round in 0..4 {
        threads_of_one_branch(seed + 10 * round, write).unwrap();
    }
}

#[test]
fn a_batch_that_is_not_closed_is_found() {
    let seed = seed();
    let is_found = |round: u64| threads_of_one_branch(seed + 10 * round, write_unseen).is_err();
    assert!((0..100).any(is_found));
}
