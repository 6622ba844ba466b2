//! The tree of the branch table, which gets a level when one is not enough.

use std::sync::Arc;

use vfscale_block::{Device, MemoryDevice};
use vfscale_testkit::{CrashPlan, RecordingDevice};

use super::TABLE_LEVELS;
use crate::calls::pool::next_id;
use crate::disk::format::{FANOUT, FLAT_TABLE, TABLE_RECORDS};
use crate::disk::record::Record;
use crate::state::commit::{Change, Shared};
use crate::state::head::{self, Purpose};
use crate::state::map::span;
use crate::{Error, Pool};

const UNIT: u64 = 4096;
/// The most nodes of the history that a tree of one level has.
const FLAT_MAX: usize = FANOUT * TABLE_RECORDS;

/// Returns a pool with as many branches as this. The branch `main` has a block of fives.
fn device(branches: usize) -> Arc<dyn Device> {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(4000 * UNIT).unwrap());
    let pool = Pool::create(device.clone(), [5; 16]).unwrap();
    pool.create_branch("main", 100 * UNIT).unwrap();
    let main = pool.branch("main").unwrap();
    main.write_at(7 * UNIT, &[5; UNIT as usize]).unwrap();
    main.close().unwrap();
    let mut state = pool.shared.state.lock();
    for _ in 1..branches {
        let id = next_id(&mut state);
        state.table.insert(Record { name: format!("b{id}"), origin: id, ..Record::new(id, 1) });
    }
    pool.shared.commit(&mut state, Change::default(), || ()).unwrap();
    drop(state);
    pool.close().unwrap();
    device
}

/// Returns the levels of the tree, and whether the superblock says that it has one.
fn levels(device: &Arc<dyn Device>) -> (u8, bool) {
    let shared = Shared::open(device.clone(), 0, 1).unwrap();
    let state = shared.state.lock();
    let newest = head::newest(&shared.disk, Purpose::Use).unwrap();
    (state.table.levels(), newest.block.incompat.get() & FLAT_TABLE != 0)
}

/// Returns how many branches a pool has, which is whole.
fn count(device: Arc<dyn Device>) -> Result<usize, Error> {
    let pool = Pool::open(device)?;
    assert_eq!(pool.check()?.problems, Vec::<String>::new());
    let mut bytes = [0; UNIT as usize];
    pool.branch("main")?.read_at(7 * UNIT, &mut bytes)?;
    assert_eq!(bytes, [5; UNIT as usize]);
    Ok(pool.list().len())
}

#[test]
fn a_full_tree_gets_a_level() {
    let device = device(FLAT_MAX - 4);
    assert_eq!(levels(&device), (1, true));
    let recording = Arc::new(RecordingDevice::new(device.clone()));
    let pool = Pool::open(recording.clone()).unwrap();
    let free = pool.usage().free;
    // The first fork makes two nodes of the history.
    for n in 0..4 {
        let expected = if n < 3 { 1 } else { TABLE_LEVELS };
        pool.fork("main", &format!("new{n}"), false).unwrap();
        assert_eq!(pool.shared.state.lock().table.levels(), expected, "{n}");
        recording.mark("fork");
    }
    // A block of the table, and a leaf for it and one for the others, each twice; the root is one
    // as before.
    assert_eq!(pool.usage().free, free - 6 * UNIT);
    drop(pool);
    let mut found = [false; 2];
    let plan = CrashPlan::default().exhaustive_bits(2).listed_max(4).samples(1);
    for state in recording.crash_states(plan) {
        let device: Arc<dyn Device> = state.device();
        let levels = levels(&device);
        assert_eq!(levels.0 == 1, levels.1);
        found[usize::from(levels.0 - 1)] = true;
        let branches = count(device).unwrap_or_else(|why| panic!("after {}: {why}", state.id()));
        let told = FLAT_MAX - 4 + state.marks();
        assert!((told..=told + 1).contains(&branches), "after {}: {branches}", state.id());
    }
    assert_eq!(found, [true; 2]);
    // The tree retains the level, and the pool goes on.
    let device: Arc<dyn Device> = recording;
    let pool = Pool::open(device.clone()).unwrap();
    pool.delete("new3").unwrap();
    pool.fork("main", "other", true).unwrap();
    pool.close().unwrap();
    assert_eq!((levels(&device), count(device).unwrap()), ((TABLE_LEVELS, false), FLAT_MAX));
}

/// A history that fills the table refuses what adds to it, and can be opened and made smaller.
#[test]
fn a_full_table_refuses_forks_and_is_opened_again() {
    let device = device(10);
    let pool = Pool::open(device.clone()).unwrap();
    let nodes_max = {
        let table = &mut pool.shared.state.lock().table;
        // An opening takes no larger table than this.
        assert_eq!(table.nodes_max as u64, span(TABLE_LEVELS) * TABLE_RECORDS as u64);
        table.nodes_max = 20;
        table.nodes_max
    };
    let fork = |n: usize| {
        let main = pool.branch("main").unwrap();
        main.write_at(0, &[n as u8 + 1; UNIT as usize]).unwrap();
        main.close().unwrap();
        pool.fork("main", &format!("new{n}"), false)
    };
    let refused = (0..).find(|n| fork(*n).is_err()).unwrap();
    assert!(matches!(fork(refused), Err(Error::Nodes(20))));
    assert!(matches!(pool.create_branch("new", UNIT), Err(Error::Nodes(20))));
    assert!(pool.shared.state.lock().table.records().count() <= nodes_max);
    (0..refused).for_each(|n| pool.delete(&format!("new{n}")).unwrap());
    while pool.reap(1000).unwrap().more {}
    fork(refused).unwrap();
    pool.close().unwrap();
    assert_eq!(count(device).unwrap(), 11);
}
