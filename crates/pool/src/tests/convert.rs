//! Volumes that become pools.

use std::collections::BTreeMap;
use std::sync::Arc;

use vfscale_block::{Device, MemoryDevice};
use vfscale_sync::random::seed;
use vfscale_testkit::RecordingDevice;

use crate::disk::format::{Bytes, ZONE_PLACES};
use crate::tests::crash::{Model, Recording, Run, content, device, number, plan};
use crate::{Conversion, Error, Pool};

const UNIT: u64 = 4096;
/// Blocks that lead to the pool.
const LEADS: [&Bytes; 3] = [&[0xa0; 4096], &[0xa1; 4096], &[0xa2; 4096]];

/// Fills the blocks of a volume, and returns its contents.
fn fill(device: &dyn Device, blocks: u64) -> BTreeMap<u64, u64> {
    let contents: BTreeMap<u64, u64> = (0..blocks).map(|block| (block, block + 1)).collect();
    for (block, number) in &contents {
        device.write_at(block * UNIT, &content(*number)).unwrap();
    }
    device.flush().unwrap();
    contents
}

fn conversion(first: u64, group: u64, blocks: u64) -> Conversion<'static> {
    Conversion { id: [9; 16], name: "main", first, group, blocks, leads: LEADS }
}

/// Makes a volume of a few blocks a pool.
fn run(first: u64, group: u64, blocks: u64, seed: u64) -> Run {
    let device = device(blocks);
    let model = Model::forked(fill(&*device, first), false);
    let shared: Arc<dyn Device> = device.clone();
    Pool::convert(&shared, &conversion(first, group, blocks)).unwrap();
    let pool = Pool::open_behind(shared, first).unwrap();
    Run::on(device, first, pool, model, first, seed)
}

fn whole(pool: &Pool) {
    assert_eq!(pool.check().unwrap().problems, Vec::<String>::new());
}

fn contents(pool: &Pool, name: &str, blocks: u64) -> Vec<u64> {
    let branch = pool.branch(name).unwrap();
    let read = |block| {
        let mut bytes = [0; UNIT as usize];
        branch.read_at(block * UNIT, &mut bytes).unwrap();
        number(&bytes)
    };
    (0..blocks).map(read).collect()
}

#[test]
fn a_branch_has_the_contents_of_the_volume() {
    for (first, group) in [(40, 8), (600, 128), (1100, 256)] {
        let mut run = run(first, group, first + 500, 1);
        run.check_live();
        whole(&run.pool);
        let info = &run.pool.list()[0];
        assert_eq!((&*info.name, info.size), ("main", first * UNIT));
    }
}

/// Every cut of the conversion has the volume or the pool with the same contents; and if the first
/// block is the pool's, all that it leads to is there.
#[test]
fn a_power_cut_leaves_the_volume_or_the_pool() {
    let (first, group, blocks) = (600, 128, 1200);
    let base = MemoryDevice::with_block_size(first * UNIT, 4096).unwrap();
    fill(&base, first);
    let recording: Recording = Arc::new(RecordingDevice::new(base));
    let shared: Arc<dyn Device> = recording.clone();
    Pool::convert(&shared, &conversion(first, group, blocks)).unwrap();
    let (mut volumes, mut pools, mut unfinished) = (0, 0, 0);
    for state in recording.crash_states(plan()) {
        let device = state.device();
        let block = |place: u64| {
            let mut bytes = [0; UNIT as usize];
            device.read_at(place * UNIT, &mut bytes).unwrap();
            bytes
        };
        let leads = [0, group, 2 * group];
        if block(0) != *LEADS[0] {
            assert!((0..first).all(|at| number(&block(at)) == at + 1), "{}", state.id());
            volumes += 1;
            continue;
        }
        let is_done = leads.iter().zip(LEADS).all(|(at, lead)| block(*at) == *lead);
        unfinished += u64::from(!is_done);
        Pool::finish_conversion(&*device, group, &LEADS).unwrap();
        let pool = Pool::open_behind(device, first).unwrap();
        whole(&pool);
        let expected: Vec<u64> = (1..=first).collect();
        assert_eq!(contents(&pool, "main", first), expected, "{}", state.id());
        pools += 1;
    }
    assert!(volumes > 10 && pools > 2 && unfinished > 0, "{volumes} {pools} {unfinished}");
}

/// Trees of branches on a pool that was a volume, with power cuts: places of the volume are freed,
/// and handed out again.
#[test]
fn branches_of_a_volume_keep_what_was_flushed() {
    let seed = seed();
    for round in 0..2 {
        let mut run = run(40, 8, 40 + 400, seed + round);
        run.tree(60);
        run.check_live();
        run.sweep(plan().samples(1)).unwrap();
    }
}

#[test]
fn space_of_the_volume_comes_back() {
    let seed = seed();
    for round in 0..5 {
        let mut run = run(1100, 256, 1100 + 900, seed + round);
        for _ in 0..4 {
            run.tree(60);
            run.check_live();
        }
        while run.reap(500) {}
        whole(&run.pool);
    }
}

/// A branch is deleted with all blocks of the volume, and its places are used by another. A row is
/// not free before it is discarded once more.
#[test]
fn places_of_the_volume_are_handed_out_again() {
    let (first, group, blocks) = (2000, 512, 2700);
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(blocks * UNIT).unwrap());
    fill(&*device, first);
    Pool::convert(&device, &conversion(first, group, blocks)).unwrap();
    let pool = Pool::open_behind(device.clone(), first).unwrap();
    pool.fork("main", "child", false).unwrap();
    let free = pool.usage().free;
    let child = pool.branch("child").unwrap();
    child.discard(10 * UNIT, 1900 * UNIT).unwrap();
    child.write_at(1990 * UNIT, &content(7)).unwrap();
    child.close().unwrap();
    pool.delete("main").unwrap();
    while pool.reap(100).unwrap().more {}
    whole(&pool);
    assert!(pool.usage().free < free + 1600 * UNIT);
    let child = pool.branch("child").unwrap();
    child.discard(10 * UNIT, 1900 * UNIT).unwrap();
    child.checkpoint().unwrap();
    assert!(pool.usage().free > free + 1800 * UNIT);
    for block in 10..1800 {
        child.write_at(block * UNIT, &content(5000 + block)).unwrap();
    }
    child.close().unwrap();
    pool.close().unwrap();
    let pool = Pool::open_behind(device.clone(), first).unwrap();
    whole(&pool);
    let found = contents(&pool, "child", first);
    for (block, number) in (0..).zip(found) {
        let expected = match block {
            1990 => 7,
            10..1800 => 5000 + block,
            1800..1910 => 0,
            _ => block + 1,
        };
        assert_eq!(number, expected, "block {block}");
    }
    // The leads are where they were: nobody has got their places.
    for (place, lead) in [0, group, 2 * group].into_iter().zip(LEADS) {
        let mut bytes = [0; UNIT as usize];
        device.read_at(place * UNIT, &mut bytes).unwrap();
        assert_eq!(bytes, *lead);
    }
}

/// A large volume takes as little as a small one.
#[test]
fn the_cost_does_not_depend_on_the_size() {
    let used = |first: u64, group: u64| {
        let blocks = first + 20 * ZONE_PLACES;
        let memory = MemoryDevice::with_block_size(first * UNIT, 4096).unwrap();
        let device = Arc::new(RecordingDevice::new(memory));
        let shared: Arc<dyn Device> = device.clone();
        Pool::convert(&shared, &conversion(first, group, blocks)).unwrap();
        whole(&Pool::open_behind(shared, first).unwrap());
        device.log_len()
    };
    let (small, large) = (used(70_000, 4096), used(70_000_000, 1 << 22));
    assert!(large <= small + 8, "{small} and {large} calls");
}

#[test]
fn what_can_be_no_pool_is_refused() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(100 * UNIT).unwrap());
    for (first, group, blocks) in
        [(100, 8, 120), (100, 7, 600), (100, 64, 600), (3 << 30, 8, 3 << 31)]
    {
        let refused = Pool::convert(&device, &conversion(first, group, blocks));
        assert!(matches!(refused, Err(Error::Size(_))));
    }
    let mut named = conversion(100, 8, 600);
    named.name = "a/b";
    assert!(matches!(Pool::convert(&device, &named), Err(Error::Name(_))));
    let mut bytes = [1; UNIT as usize];
    device.read_at(0, &mut bytes).unwrap();
    assert_eq!(bytes, [0; UNIT as usize]);
}
