//! The state after failures of a device.

use std::sync::Arc;

use vfscale_block::{Device, MemoryDevice};
use vfscale_testkit::{Fault as DeviceFault, FaultyDevice};

use super::{Numbers, insert, keys, make, make_tree, memory, need, open, options, remove};
use crate::base::fault::Fault;
use crate::btree::Tree;
use crate::volume::Volume;

const ROUNDS: u64 = 4;

/// Opens, changes, frees, writes back, closes. Returns the number of rounds that were promised, and
/// the result of the whole script.
fn script(device: &Arc<dyn Device>, tree: Tree<Numbers>) -> (u64, Result<(), Fault>) {
    let mut promised = 0;
    let result = run(device, tree, &mut promised);
    (promised, result)
}

fn run(device: &Arc<dyn Device>, tree: Tree<Numbers>, promised: &mut u64) -> Result<(), Fault> {
    let volume = Volume::open(device.clone(), options())?;
    for round in 0..ROUNDS {
        let result = change(&volume, tree, round);
        if let Err(fault) = result {
            // After any fault, every call fails or succeeds, and none hangs.
            let later = change(&volume, tree, ROUNDS);
            assert!(later.is_err() || volume.failure().is_none(), "after {fault}");
            let _ = volume.close();
            return Err(fault);
        }
        *promised = round + 1;
        if round == 1 {
            volume.journal().unwrap().quiesce()?;
        }
    }
    volume.close()
}

fn change(volume: &Volume, tree: Tree<Numbers>, round: u64) -> Result<(), Fault> {
    let mut tx = volume.begin(need(volume, 40))?;
    for key in round * 20..round * 20 + 20 {
        tree.insert(&mut tx, key.into(), (key * 2).into())?;
    }
    for key in (round * 20).saturating_sub(20)..round * 20 {
        tree.remove(&mut tx, key.into())?;
    }
    volume.force(tx.commit()?)
}

fn each_call(fault: impl Fn(u64) -> DeviceFault) {
    let mut failed = 0;
    for number in 1.. {
        let faulty = Arc::new(FaultyDevice::new(memory()));
        let device: Arc<dyn Device> = faulty.clone();
        make(&device);
        let volume = open(&device);
        let tree = make_tree(&volume, 3);
        volume.close().unwrap();
        drop(volume);
        faulty.arm(fault(number));
        let (promised, result) = script(&device, tree);
        let has_fired = faulty.fired() > 0;
        faulty.disarm();
        check(&faulty, tree, promised, result.is_ok());
        failed += u64::from(result.is_err());
        if !has_fired {
            assert!(failed > 20, "{failed} calls failed");
            return;
        }
    }
}

/// Checks that all promised changes exist, and none in part.
fn check(
    faulty: &Arc<FaultyDevice<MemoryDevice>>,
    tree: Tree<Numbers>,
    promised: u64,
    is_done: bool,
) {
    let device: Arc<dyn Device> = faulty.clone();
    let volume = open(&device);
    let found = keys(&volume.reader(), tree);
    let round = found.first().map_or(0, |key| key / 20 + 1);
    let expected: Vec<_> =
        if round == 0 { Vec::new() } else { (round * 20 - 20..round * 20).collect() };
    assert_eq!(found, expected);
    assert!(round >= promised && (!is_done || round == ROUNDS), "{round}, promised {promised}");
    let mut tx = volume.begin(need(&volume, 40)).unwrap();
    remove(&mut tx, tree, found);
    insert(&mut tx, tree, 500..520);
    tx.commit().unwrap();
    volume.close().unwrap();
}

#[test]
fn one_call_of_the_device_fails() {
    each_call(|number| DeviceFault::on_any().nth(number));
}

#[test]
fn all_calls_of_the_device_fail_from_one_on() {
    each_call(|number| DeviceFault::on_any().from(number));
}

#[test]
fn writes_are_torn() {
    each_call(|number| DeviceFault::on(vfscale_block::Operation::Write).nth(number).tear(2048));
}
