//! Discards of what commits have made free, and power cuts around them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use vfscale_block::{Device, MemoryDevice};
use vfscale_sync::random::seed;

use crate::tests::crash::{Model, Run, device, plan};
use crate::{Conversion, Error, Pool};

const UNIT: u64 = 4096;

/// A discarded block is old or poison after a power cut.
#[test]
fn a_power_cut_around_discards_loses_nothing() {
    let seed = seed();
    for round in 0..3 {
        let device = device(192);
        let pool = Pool::create(device.clone(), [7; 16]).unwrap();
        pool.create_branch("main", 8 * UNIT).unwrap();
        let mut run = Run::on(device, 0, pool, Model::default(), 8, seed + round);
        let mut discarded = 0;
        for call in 0..30 {
            run.tree(3);
            discarded += match call % 5 {
                0 => run.pool.trim().unwrap(),
                _ => run.pool.discard_freed().unwrap(),
            };
        }
        assert!(discarded > 0);
        run.check_live();
        let count = run.sweep(plan()).unwrap();
        assert!(count > 300, "{count} states");
    }
}

#[test]
fn what_a_deleted_branch_had_is_given_back() {
    let device = Arc::new(MemoryDevice::new(64 << 20).unwrap());
    let pool = Pool::create(device.clone(), [7; 16]).unwrap();
    let calls = Arc::new(AtomicU64::new(0));
    let count = calls.clone();
    pool.on_freed(move || _ = count.fetch_add(1, Ordering::Relaxed));
    pool.create_branch("main", 1 << 30).unwrap();
    let main = pool.branch("main").unwrap();
    main.write_at(0, &[1; 4096]).unwrap();
    pool.fork("main", "trial", false).unwrap();
    let trial = pool.branch("trial").unwrap();
    trial.write_at(0, &vec![2; 20 << 20]).unwrap();
    trial.close().unwrap();
    pool.discard_freed().unwrap();
    let before = calls.load(Ordering::Relaxed);
    pool.delete("trial").unwrap();
    while pool.reap(1000).unwrap().more {}
    assert!(calls.load(Ordering::Relaxed) > before);
    let bytes = pool.discard_freed().unwrap();
    assert!(bytes >= 20 << 20, "{bytes}");
    let mut block = [9; 4096];
    main.read_at(0, &mut block).unwrap();
    assert_eq!(block, [1; 4096]);
    main.close().unwrap();
}

#[test]
fn a_trim_takes_what_open_branches_have_given_up() {
    let device = Arc::new(MemoryDevice::new(64 << 20).unwrap());
    let pool = Pool::create(device, [7; 16]).unwrap();
    pool.create_branch("main", 1 << 30).unwrap();
    let main = pool.branch("main").unwrap();
    main.write_at(0, &vec![2; 8 << 20]).unwrap();
    main.checkpoint().unwrap();
    let before = pool.trim().unwrap();
    main.discard(0, 8 << 20).unwrap();
    assert_eq!(pool.discard_freed().unwrap(), 0, "no commit has made anything free");
    assert!(pool.trim().unwrap() >= before + (8 << 20));
    main.close().unwrap();
}

/// A branch of a former volume discards all but what it has written itself, as a trim of a nearly
/// empty volume does.
#[test]
fn a_discard_of_a_former_volume_that_others_have_takes_no_space() {
    let first = (64 << 30) / UNIT;
    let memory = MemoryDevice::with_block_size(first * UNIT, 4096).unwrap();
    let device: Arc<dyn Device> = Arc::new(memory);
    let (group, leads) = (1 << 20, [&[1; 4096]; 3]);
    let blocks = first + (256 << 20) / UNIT;
    let conversion = Conversion { id: [9; 16], name: "main", first, group, blocks, leads };
    Pool::convert(&device, &conversion).unwrap();
    let pool = Pool::open_behind(device, first).unwrap();
    let main = pool.branch("main").unwrap();
    main.write_at(2000 * UNIT, &[2; 4096]).unwrap();
    pool.fork("main", "child", false).unwrap();
    main.write_at(5_000_000 * UNIT, &[3; 4096]).unwrap();
    main.checkpoint().unwrap();
    let free = pool.usage().free;
    for (from, to) in [(0, 4_999_000), (5_001_000, first)] {
        main.discard(from * UNIT, (to - from) * UNIT).unwrap();
    }
    main.checkpoint().unwrap();
    // Four leaves are no rows, those of the leads and of block 2000: they become a dead list.
    let taken = free - pool.usage().free;
    assert!(taken <= 8 * UNIT, "{} places", taken / UNIT);
    // When no other branch has it any more, the same discard gives it back.
    pool.delete("child").unwrap();
    while pool.reap(100_000).unwrap().more {}
    main.discard(6_000_000 * UNIT, 100_000 * UNIT).unwrap();
    main.close().unwrap();
    assert!(pool.usage().free >= free + 99_000 * UNIT);
    assert_eq!(pool.check().unwrap().problems, Vec::<String>::new());
}

/// A discard of blocks that others have copies nodes only if it gives up more places than those
/// take; then the places are free when the others are gone.
#[test]
fn a_discard_of_shared_blocks_copies_few_nodes() {
    let device = Arc::new(MemoryDevice::new(64 << 20).unwrap());
    let pool = Pool::create(device, [7; 16]).unwrap();
    pool.create_branch("main", 1 << 30).unwrap();
    let main = pool.branch("main").unwrap();
    main.write_at(0, &vec![2; 8 << 20]).unwrap();
    pool.fork("main", "trial", false).unwrap();
    main.write_at(900 << 20, &[3; 4096]).unwrap();
    main.checkpoint().unwrap();
    let free = pool.usage().free;
    main.discard(UNIT, UNIT).unwrap();
    main.checkpoint().unwrap();
    assert_eq!(pool.usage().free, free);
    let discarded = 7 << 20;
    main.discard(0, discarded).unwrap();
    main.checkpoint().unwrap();
    let taken = free - pool.usage().free;
    assert!(taken <= 6 * UNIT, "{} places", taken / UNIT);
    pool.delete("trial").unwrap();
    while pool.reap(1000).unwrap().more {}
    assert!(pool.usage().free >= free + discarded, "{} of {free}", pool.usage().free);
    main.close().unwrap();
    assert_eq!(pool.check().unwrap().problems, Vec::<String>::new());
}

#[test]
fn a_device_that_cannot_discard_says_so() {
    let device = Arc::new(Fixed(MemoryDevice::new(64 << 20).unwrap()));
    let pool = Pool::create(device, [7; 16]).unwrap();
    let error = pool.trim().unwrap_err();
    let is_named = matches!(error, Error::Device(vfscale_block::Error::Unsupported { .. }));
    assert!(is_named, "{error}");
    assert_eq!(pool.discard_freed().unwrap(), 0);
}

/// A device that can't discard or grow.
#[derive(Debug)]
pub(super) struct Fixed(pub(super) MemoryDevice);

impl Device for Fixed {
    fn size(&self) -> u64 {
        self.0.size()
    }

    fn block_size(&self) -> u32 {
        self.0.block_size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), vfscale_block::Error> {
        self.0.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), vfscale_block::Error> {
        self.0.write_at(offset, buf)
    }

    fn flush(&self) -> Result<(), vfscale_block::Error> {
        self.0.flush()
    }

    fn discard(&self, _: u64, _: u64) -> Result<(), vfscale_block::Error> {
        Ok(())
    }
}
