//! Devices that fail a call: errors, and after the next opening everything that was flushed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use vfscale_block::{CowDevice, Device, MemoryDevice, Operation, OsError};
use vfscale_sync::random::Random;
use vfscale_testkit::{CrashPlan, Fault, FaultyDevice, RecordingDevice};

use crate::{Branch, Error, Pool};

const UNIT: u64 = 4096;
const BLOCKS: u64 = 12;

/// The contents that blocks may have: now, and after the next opening.
#[derive(Clone, Default)]
struct Model {
    now: BTreeMap<u64, BTreeSet<u8>>,
    durable: BTreeMap<u64, BTreeSet<u8>>,
}

impl Model {
    fn write(&mut self, block: u64, tag: u8, is_ok: bool) {
        let zero = || BTreeSet::from([0]);
        let now = self.now.entry(block).or_insert_with(zero);
        if is_ok {
            now.clear();
        }
        now.insert(tag);
        self.durable.entry(block).or_insert_with(zero).insert(tag);
    }

    fn flush(&mut self) {
        self.durable = self.now.clone();
    }
}

type World = BTreeMap<String, Model>;

/// Plays calls of all kinds, some of which fail. Returns what may be there, and the branches that
/// may or may not exist.
fn play(pool: &Pool, seed: u64) -> (World, BTreeSet<String>) {
    let mut random = Random::new(seed);
    let (mut world, mut doubtful) = (World::new(), BTreeSet::new());
    let mut open: BTreeMap<String, Arc<Branch>> = BTreeMap::new();
    world.insert("main".into(), Model::default());
    for step in 0..60_u8 {
        let names: Vec<&String> = world.keys().collect();
        let name = random.one(&names).clone();
        let Ok(branch) = open
            .get(&name)
            .cloned()
            .map_or_else(|| pool.branch(&name), Ok)
            .map(|branch| open.entry(name.clone()).or_insert(branch).clone())
        else {
            continue;
        };
        let Some(model) = world.get_mut(&name) else { continue };
        match random.below(8) {
            0 if doubtful.is_empty() => {
                let child = format!("b{step}");
                if pool.fork(&name, &child, false).is_ok() {
                    model.flush();
                    let model = model.clone();
                    world.insert(child, model);
                } else {
                    doubtful.insert(child);
                }
            }
            1 => {
                if branch.close().is_ok() {
                    model.flush();
                }
                open.remove(&name);
            }
            2 => _ = pool.reap(1),
            3..5 => {
                if branch.flush().is_ok() {
                    model.flush();
                }
            }
            _ => {
                let block = random.below(BLOCKS);
                let bytes = vec![step + 1; UNIT as usize];
                let is_ok = branch.write_at(block * UNIT, &bytes).is_ok();
                model.write(block, step + 1, is_ok);
            }
        }
    }
    (world, doubtful)
}

fn explain(pool: &Pool, world: &World, doubtful: &BTreeSet<String>) -> Result<(), String> {
    let report = pool.check().map_err(|error| error.to_string())?;
    if !report.problems.is_empty() {
        return Err(format!("{:?}", report.problems));
    }
    let found: Vec<String> = pool.list().into_iter().map(|info| info.name).collect();
    let missing = world.keys().find(|name| !found.contains(name));
    if let Some(name) = missing {
        return Err(format!("no branch {name}"));
    }
    for name in found {
        let Some(model) = world.get(&name) else {
            if doubtful.contains(&name) {
                continue;
            }
            return Err(format!("a branch {name}"));
        };
        let branch = pool.branch(&name).map_err(|error| error.to_string())?;
        for (block, allowed) in &model.durable {
            let mut bytes = vec![0; UNIT as usize];
            branch.read_at(block * UNIT, &mut bytes).map_err(|error| error.to_string())?;
            if !allowed.contains(&bytes[0]) || bytes.iter().any(|byte| *byte != bytes[0]) {
                return Err(format!("{name} block {block}: {}, not of {allowed:?}", bytes[0]));
            }
        }
    }
    Ok(())
}

/// One call of the device fails, or it and all later ones of its kind. The pool is opened again, as
/// it is, and after a power cut that loses all that no flush has covered.
#[test]
fn any_call_of_the_device_may_fail() {
    let (mut images, mut fired) = (0, 0);
    for operation in [Operation::Read, Operation::Write, Operation::Flush] {
        for n in 1..70 {
            for rest in [false, true] {
                let memory = MemoryDevice::with_block_size(300 * UNIT, 4096).unwrap();
                let recording = Arc::new(RecordingDevice::new(memory));
                let device = Arc::new(FaultyDevice::new(recording.clone()));
                let pool = Pool::create(device.clone(), [1; 16]).unwrap();
                pool.create_branch("main", BLOCKS * UNIT).unwrap();
                let fault = Fault::on(operation).fail(OsError::IO);
                device.arm(if rest { fault.from(n) } else { fault.nth(n) });
                let (world, doubtful) = play(&pool, n);
                device.disarm();
                let what = format!("{operation:?} {n} {rest}");
                let last = CrashPlan::default().exhaustive_bits(0).listed_max(2).samples(1);
                let point = recording.mark("end");
                let lost = recording
                    .crash_states(last)
                    .filter(|state| state.marks() == point)
                    .map(|state| state.device());
                fired += device.fired();
                for image in lost {
                    images += 1;
                    let again = Pool::open(image).unwrap_or_else(|why| panic!("{what}: {why}"));
                    explain(&again, &world, &doubtful)
                        .unwrap_or_else(|why| panic!("{what}, power cut: {why}"));
                }
                let again = Pool::open(recording).unwrap_or_else(|why| panic!("{what}: {why}"));
                explain(&again, &world, &doubtful).unwrap_or_else(|why| panic!("{what}: {why}"));
            }
        }
    }
    assert!(images > 800 && fired > 400, "{images} images, {fired} faults");
}

/// A failed commit ends the pool: nothing is written any more.
#[test]
fn a_pool_that_has_failed_says_so() {
    let device = Arc::new(FaultyDevice::new(MemoryDevice::new(300 * UNIT).unwrap()));
    let pool = Pool::create(device.clone(), [1; 16]).unwrap();
    pool.create_branch("main", BLOCKS * UNIT).unwrap();
    let branch = pool.branch("main").unwrap();
    device.arm(Fault::on(Operation::Flush).nth(1).fail(OsError::IO));
    pool.create_branch("other", BLOCKS * UNIT).unwrap_err();
    let writes = device.calls(Operation::Write);
    assert_eq!(pool.create_branch("other2", BLOCKS * UNIT).unwrap_err(), Error::Failed);
    assert_eq!(pool.fork("main", "other2", true).unwrap_err(), Error::Failed);
    branch.write_at(0, &[1; 4096]).unwrap_err();
    branch.flush().unwrap_err();
    pool.delete("main").unwrap_err();
    pool.reap(1).unwrap_err();
    assert_eq!(device.calls(Operation::Write), writes);
}

/// A record that can't be read never ends the log, whether one of a later flush follows it or not.
#[test]
fn a_record_that_cannot_be_read_is_an_error() {
    let device = Arc::new(FaultyDevice::new(MemoryDevice::new(300 * UNIT).unwrap()));
    let pool = Pool::create(device.clone(), [1; 16]).unwrap();
    pool.create_branch("main", 1000 * UNIT).unwrap();
    pool.create_branch("other", 10 * UNIT).unwrap();
    let branch = pool.branch("main").unwrap();
    // The first flush makes the log, with a record; then two of one batch, and another one.
    for (block, count) in [(0, 1), (2, 170), (300, 1)] {
        branch.write_at(block * UNIT, &vec![block as u8 + 1; count * UNIT as usize]).unwrap();
        branch.flush().unwrap();
    }
    let log = pool.shared.state.lock().table.named("main").unwrap().log.unwrap();
    for number in 0..4 {
        let image = CowDevice::new(device.clone());
        let image = Arc::new(FaultyDevice::new(image));
        let start = (log.place + number) * UNIT;
        image.arm(Fault::on(Operation::Read).within(start..start + UNIT).fail(OsError::IO));
        let writes = image.calls(Operation::Write);
        let error = Pool::open(image.clone()).unwrap_err();
        assert!(matches!(error, Error::Unreadable { .. }), "record {number}: {error}");
        assert_eq!(image.calls(Operation::Write), writes);
        // To read, it costs that branch.
        let pool = Pool::open_to_read(image.clone(), 0).unwrap();
        assert_eq!(pool.list().len(), 2);
        assert_eq!(pool.branch("main").unwrap_err(), error);
        let mut bytes = vec![0; UNIT as usize];
        pool.branch("other").unwrap().read_at(0, &mut bytes).unwrap();
        drop(pool);
        // A repair goes on with what comes before, and says so.
        let (pool, repaired) = Pool::open_repaired(image, 0).unwrap();
        let [loss] = &repaired.losses[..] else { panic!("{repaired:?}") };
        assert!(loss.starts_with("branch \"main\": block "), "{loss}");
        assert_eq!(pool.check().unwrap().problems, Vec::<String>::new());
        let branch = pool.branch("main").unwrap();
        for (block, record) in [(0, 0), (100, 1), (300, 3)] {
            branch.read_at(block * UNIT, &mut bytes).unwrap();
            assert_eq!(bytes[0] != 0, record < number, "record {number} block {block}");
        }
    }
}

/// The first record of a log is there before the commit that names the log. If that commit fails,
/// a later one with the same number may name a log in the same place.
#[test]
fn a_record_of_a_log_that_no_commit_names_does_not_count() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(300 * UNIT).unwrap());
    let pool = Pool::create(device.clone(), [1; 16]).unwrap();
    pool.create_branch("main", 1000 * UNIT).unwrap();
    pool.close().unwrap();
    let copies = [1, 2].map(|byte| {
        let copy: Arc<dyn Device> = Arc::new(CowDevice::new(device.clone()));
        let pool = Pool::open(copy.clone()).unwrap();
        let branch = pool.branch("main").unwrap();
        branch.write_at(0, &[byte; UNIT as usize]).unwrap();
        branch.flush().unwrap();
        let state = pool.shared.state.lock();
        let log = state.table.named("main").unwrap().log.unwrap();
        let generation = state.generation;
        drop(state);
        std::mem::forget((branch, pool));
        (copy, log, generation)
    });
    let byte = |device: &Arc<dyn Device>| {
        let pool = Pool::open(device.clone()).unwrap();
        let mut bytes = [9; UNIT as usize];
        pool.branch("main").unwrap().read_at(0, &mut bytes).unwrap();
        bytes[0]
    };
    let [(first, log, generation), (second, other, same)] = copies;
    assert_eq!((log.place, generation), (other.place, same));
    let mut record = [0; UNIT as usize];
    first.read_at(log.place * UNIT, &mut record).unwrap();
    assert_eq!(byte(&first), 1);
    second.write_at(log.place * UNIT, &record).unwrap();
    assert_eq!(byte(&second), 0);
}
