//! Blocks that an opening can't read, or reads with a wrong byte, and that are well afterwards:
//! everything that was flushed is there then, or the opening has failed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use vfscale_block::{CowDevice, Device, MemoryDevice, Operation, OsError};
use vfscale_sync::random::{Random, seed};
use vfscale_testkit::{Fault, FaultyDevice};

use crate::disk::format::PLACE_BYTES;
use crate::state::commit::Shared;
use crate::{Branch, Pool};

const UNIT: u64 = PLACE_BYTES as u64;
const PLACES: u64 = 300;
const BLOCKS: u64 = 40;

/// The contents of a branch: of each block the bytes that it has had, the present one last.
type Model = BTreeMap<u64, Vec<u8>>;
type World = BTreeMap<String, Model>;

/// Plays forks, deletions, writes with flushes, and closings, and leaves the pool without closing
/// it unless `is_closed`.
fn play(pool: Pool, random: &mut Random, is_closed: bool) -> World {
    let mut world = World::from([("main".into(), Model::new())]);
    let mut open: BTreeMap<String, Arc<Branch>> = BTreeMap::new();
    for step in 0..10 + random.below(30) as u8 {
        let names: Vec<&String> = world.keys().collect();
        let name = random.one(&names).clone();
        match random.below(8) {
            0 if world.len() < 5 => {
                let child = format!("b{step}");
                pool.fork(&name, &child, false).unwrap();
                world.insert(child, world[&name].clone());
            }
            1 => _ = open.remove(&name).map(|branch| branch.close().unwrap()),
            2 if world.len() > 2 && name != "main" => {
                _ = open.remove(&name).map(|branch| branch.close().unwrap());
                pool.delete(&name).unwrap();
                world.remove(&name);
            }
            3 => _ = pool.reap(1000).unwrap(),
            _ => {
                let opened = || pool.branch(&name).unwrap();
                let branch = open.entry(name.clone()).or_insert_with(opened);
                let model = world.get_mut(&name).unwrap();
                for _ in 0..1 + random.below(8) {
                    let block = random.below(BLOCKS);
                    branch.write_at(block * UNIT, &[step + 1; PLACE_BYTES]).unwrap();
                    model.entry(block).or_insert(vec![0]).push(step + 1);
                }
                branch.flush().unwrap();
            }
        }
    }
    if is_closed {
        open.into_values().for_each(|branch| branch.close().unwrap());
        pool.close().unwrap();
    }
    world
}

/// Returns the first thing that is not as the model says. If `may_be_old`, blocks may have what
/// they had before.
fn mismatch(pool: &Pool, world: &World, may_be_old: bool) -> Result<(), String> {
    let found: BTreeSet<String> = pool.list().into_iter().map(|info| info.name).collect();
    let told: BTreeSet<String> = world.keys().cloned().collect();
    if found != told {
        return Err(format!("branches {found:?}, not {told:?}"));
    }
    for (name, model) in world {
        let branch = pool.branch(name).map_err(|error| format!("{name}: {error}"))?;
        for block in 0..BLOCKS {
            let mut bytes = [0; PLACE_BYTES];
            branch.read_at(block * UNIT, &mut bytes).map_err(|error| error.to_string())?;
            let had = model.get(&block).map_or(&[0][..], |had| had);
            let now = had[had.len() - 1];
            let is_right = bytes[0] == now || may_be_old && had.contains(&bytes[0]);
            if !is_right || bytes.iter().any(|byte| *byte != bytes[0]) {
                return Err(format!("{name} block {block}: {}, not {now}", bytes[0]));
            }
        }
    }
    match &pool.check().map_err(|error| error.to_string())?.problems[..] {
        [] => Ok(()),
        problems => Err(format!("{problems:?}")),
    }
}

/// Returns the faults of a block: it can't be read, or its first sector can't, or a byte is wrong.
/// Zeros stand for what can't be read if `is_absent`.
fn faults(place: u64, is_absent: bool) -> [(bool, Fault); 3] {
    let start = place * UNIT;
    let unreadable = |length| {
        let fault = Fault::on(Operation::Read).within(start..start + length);
        (false, if is_absent { fault.lie() } else { fault.fail(OsError::IO) })
    };
    let wrong = Fault::on(Operation::Read).flip(start + 200, 0x11);
    [unreadable(UNIT), unreadable(512), (true, wrong)]
}

/// Opens the pool of a device once for each block and fault. Returns how many openings met the
/// fault, and how many of them failed.
fn sweep(device: &Arc<dyn Device>, world: &World, is_absent: bool) -> Result<(u64, u64), String> {
    let (mut met, mut refused) = (0, 0);
    mismatch(&Pool::open(Arc::new(CowDevice::new(device.clone()))).unwrap(), world, false)?;
    for place in 0..PLACES {
        let mut bytes = [0; PLACE_BYTES];
        device.read_at(place * UNIT, &mut bytes).unwrap();
        // A wrong content of a last record was not there when power failed: nothing tells that it
        // was.
        let is_content = !bytes.starts_with(b"poo") && !bytes.starts_with(b"vfs");
        for (is_wrong, fault) in faults(place, is_absent) {
            let image = Arc::new(FaultyDevice::new(CowDevice::new(device.clone())));
            image.arm(fault.clone());
            let opened = Shared::open(image.clone(), 0, 1)
                .and_then(|shared| Pool::recovered(Arc::new(shared)));
            if image.fired() == 0 {
                break;
            }
            met += 1;
            refused += u64::from(opened.is_err());
            let told = format!("{:?}", opened.as_ref().err());
            drop(opened);
            image.disarm();
            let kind = String::from_utf8_lossy(&bytes[..4]);
            let tell =
                |what| format!("block {place} {kind:?}, {fault:?}: {what}; the opening: {told}");
            let again = Pool::open(image).map_err(|error| tell(error.to_string()))?;
            mismatch(&again, world, is_wrong && is_content).map_err(tell)?;
        }
    }
    Ok((met, refused))
}

/// Plays rounds, each with a sweep. Returns how many openings met a fault, and how many failed.
fn rounds(seed: u64, is_absent: bool) -> Result<(u64, u64), String> {
    let (mut met, mut refused) = (0, 0);
    for round in 0..24 {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(PLACES * UNIT).unwrap());
        let pool = Pool::create(device.clone(), [7; 16]).unwrap();
        pool.create_branch("main", BLOCKS * UNIT).unwrap();
        let mut random = Random::new(seed.wrapping_add(round));
        let world = play(pool, &mut random, round % 3 == 0);
        let swept =
            sweep(&device, &world, is_absent).map_err(|why| format!("round {round}: {why}"));
        let (more, errors) = swept?;
        (met, refused) = (met + more, refused + errors);
    }
    Ok((met, refused))
}

#[test]
fn an_opening_with_a_bad_block_fails_or_loses_nothing() {
    let (met, refused) = rounds(seed(), false).unwrap();
    assert!(met > 500 && refused > 50, "{met} openings, {refused} failed");
}

#[test]
fn openings_that_take_unreadable_for_absent_are_found() {
    rounds(1, true).unwrap_err();
}
