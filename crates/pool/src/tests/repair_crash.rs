//! Power cuts during a repair: after each one, another repair leaves a pool that is whole, and each
//! branch has what it had.

use std::collections::BTreeMap;
use std::sync::Arc;

use vfscale_block::{Device, Operation};
use vfscale_testkit::{CrashPlan, Fault, FaultyDevice, RecordingDevice};

use crate::Pool;
use crate::calls::repair::Repaired;
use crate::disk::device::offset;
use crate::state::commit::Shared;
use crate::state::dead_list::{self, DeadList};
use crate::state::head::Purpose;
use crate::tests::harness::put;
use crate::tests::plants::reuses_early;
use crate::tests::repair::{
    BLOCKS, CUT, FREED, bytes, cut_with_log, damaged_former_volume, device,
    device_with_damaged_zombie, device_with_long_list, free_places, lose_places, miscount,
    overwrite, rewrite_list, share_list, share_map,
};

/// The first byte of each block of each branch.
type Contents = BTreeMap<String, Vec<u8>>;

/// Repairs the pool of a device.
type Open = fn(Arc<dyn Device>, u64) -> Result<(Pool, Repaired), String>;

/// A pool that has to be repaired.
struct Damaged {
    device: Arc<dyn Device>,
    /// Where the pool begins.
    first: u64,
    /// The contents that the branches have to have after a repair.
    contents: Contents,
    /// The problems that are left then.
    problems: Vec<String>,
}

fn contents(pool: &Pool) -> Contents {
    pool.list().into_iter().map(|info| (info.name.clone(), bytes(pool, &info.name))).collect()
}

fn plan() -> CrashPlan {
    CrashPlan::default().exhaustive_bits(4).listed_max(8).samples(2)
}

fn open(device: Arc<dyn Device>, first: u64) -> Result<(Pool, Repaired), String> {
    let shared = Shared::open_for(device, first, 1, Purpose::Repair);
    shared.and_then(Pool::repaired).map_err(|error| error.to_string())
}

/// Repairs with a device that shows no log before the first flush.
fn open_without_log(device: Arc<dyn Device>, first: u64) -> Result<(Pool, Repaired), String> {
    let device = Arc::new(FaultyDevice::new(device));
    let shared = Shared::open_for(device.clone(), first, 1, Purpose::Repair).unwrap();
    let log = shared.state.lock().table.named("main").unwrap().log.unwrap().places();
    device.arm(Fault::on(Operation::Read).within(offset(log.start)..offset(log.end)).lie());
    let ends = device.clone();
    device.arm(Fault::on(Operation::Flush).run(move || ends.disarm()));
    Pool::repaired(shared).map_err(|error| error.to_string())
}

impl Damaged {
    /// Damages a pool that is whole, or of which only a dead list is not.
    fn new(device: Arc<dyn Device>, damage: impl FnOnce(&Arc<dyn Device>)) -> Self {
        let contents = contents(&Pool::open(device.clone()).unwrap());
        damage(&device);
        Self { device, first: 0, contents, problems: Vec::new() }
    }

    /// Writes some blocks of the branch `main`, and cuts the power when its log has them.
    fn with_log(mut self) -> Self {
        cut_with_log(&self.device);
        self.contents.get_mut("main").unwrap()[CUT.start as usize..CUT.end as usize].fill(8);
        self
    }

    /// Checks a repaired pool.
    fn compare(&self, pool: &Pool) -> Result<(), String> {
        let problems = pool.check().map_err(|error| error.to_string())?.problems;
        if problems != self.problems {
            return Err(format!("{problems:?}, not {:?}", self.problems));
        }
        let found = contents(pool);
        if !found.keys().eq(self.contents.keys()) {
            return Err(format!("branches {:?}", found.keys()));
        }
        for (name, bytes) in found {
            let at =
                bytes.iter().zip(&self.contents[&name]).position(|(found, told)| found != told);
            if let Some(at) = at {
                return Err(format!("branch {name} block {at}: {}", bytes[at]));
            }
        }
        Ok(())
    }

    /// Repairs with power cuts, each followed by a repair. Returns how many cuts there were, and
    /// how many of them had left something to repair.
    fn sweep(&self, first_open: Open) -> Result<(usize, usize), String> {
        let recording = Arc::new(RecordingDevice::new(self.device.clone()));
        let (pool, repaired) = first_open(recording.clone(), self.first)?;
        assert!(repaired.is_any());
        self.compare(&pool)?;
        drop(pool);
        let (mut count, mut unfinished) = (0, 0);
        for state in recording.crash_states(plan()) {
            let tell = |what: String| format!("after {}: {what}", state.id());
            let device: Arc<dyn Device> = state.device();
            let (pool, again) = open(device.clone(), self.first).map_err(tell)?;
            self.compare(&pool).map_err(tell)?;
            pool.close().map_err(|error| tell(error.to_string()))?;
            let (_, third) = open(device, self.first).map_err(tell)?;
            if self.problems.is_empty() && third.is_any() {
                return Err(tell(format!("a third repair found {third:?}")));
            }
            count += 1;
            unfinished += usize::from(again.is_any());
        }
        Ok((count, unfinished))
    }

    fn is_repaired_after_cuts(&self) {
        let (count, unfinished) = self.sweep(open).unwrap();
        assert!(count > 10 && unfinished > 5, "{unfinished} of {count} states");
    }
}

#[test]
fn cuts_while_places_and_counts_are_repaired() {
    for damage in [lose_places, free_places, miscount] {
        Damaged::new(device(), damage).is_repaired_after_cuts();
    }
}

#[test]
fn cuts_while_a_former_volume_is_repaired() {
    let (device, first) = damaged_former_volume();
    let mut main: Vec<u8> = (0..first).map(|block| (block % 200) as u8).collect();
    main[FREED.start as usize..FREED.end as usize].fill(0);
    let contents = Contents::from([("main".into(), main)]);
    Damaged { device, first, contents, problems: Vec::new() }.is_repaired_after_cuts();
}

#[test]
fn cuts_while_a_dead_list_is_written_anew() {
    let (device, blocks) = device_with_long_list();
    Damaged::new(device, |device| rewrite_list(device, blocks)).is_repaired_after_cuts();
    for damaged in [0..1, 1..2, 0..2] {
        let (device, blocks) = device_with_long_list();
        let damage = |device: &_| overwrite(device, &blocks[damaged]);
        Damaged::new(device, damage).is_repaired_after_cuts();
    }
    Damaged::new(device_with_long_list().0, share_list).is_repaired_after_cuts();
    Damaged::new(device_with_damaged_zombie(), |_| ()).is_repaired_after_cuts();
}

/// A repair leaves alone whatever it can't mend, and mends the rest.
#[test]
fn cuts_while_two_branches_have_one_map() {
    let mut damaged = Damaged::new(device(), |device| {
        share_map(device);
        miscount(device);
    });
    let map = damaged.contents["a"].clone();
    damaged.contents.insert("b".into(), map);
    let copy = Arc::new(RecordingDevice::new(damaged.device.clone()));
    damaged.problems = open(copy, 0).unwrap().0.check().unwrap().problems;
    assert!(!damaged.problems.is_empty());
    damaged.is_repaired_after_cuts();
}

/// Makes all dead lists unreadable: the repair needs many places.
fn overwrite_lists(device: &Arc<dyn Device>) {
    let shared = Shared::open(device.clone(), 0, 1).unwrap();
    let state = shared.state.lock();
    let blocks = |record| dead_list::read(&shared.disk, DeadList::of(record)).unwrap().1;
    let blocks: Vec<u64> = state.table.records().flat_map(blocks).collect();
    assert!(blocks.len() >= 4);
    overwrite(device, &blocks);
}

/// Returns a pool whose repair needs many places, while only a log refers to some.
fn with_lists_and_log() -> Damaged {
    let device = device();
    let pool = Pool::open(device.clone()).unwrap();
    for name in ["c", "d"] {
        pool.fork("main", name, false).unwrap();
        put(&pool, name, 0..BLOCKS, 7);
    }
    pool.close().unwrap();
    Damaged::new(device, overwrite_lists).with_log()
}

/// A repair writes nothing to the places that only the log of a branch has.
#[test]
fn cuts_while_a_pool_with_a_log_is_repaired() {
    for damage in [lose_places, miscount] {
        Damaged::new(device(), damage).with_log().is_repaired_after_cuts();
    }
    with_lists_and_log().is_repaired_after_cuts();
}

/// Most of a repair that was lost is found again by the next one. But nobody finds what it has
/// overwritten.
#[test]
fn planted_faults_of_repairs_are_found() {
    let reusing_early: Open = |device, first| open(reuses_early(device), first);
    assert!(Damaged::new(device(), miscount).sweep(reusing_early).is_err());
    assert!(with_lists_and_log().sweep(open_without_log).is_err());
}
