//! The state after a crash at every moment of a script.

use std::sync::Arc;

use vfscale_block::Device;
use vfscale_testkit::{CrashPlan, RecordingDevice};

use super::{
    Numbers, check_data, insert, keys, made, make_tree, need, open, options, remove, write_data,
};
use crate::base::fault::Fault;
use crate::btree::{Nodes, Tree};
use crate::format::BlockRange;
use crate::volume::Volume;
use crate::volume::tx::TxReservation;

fn plan() -> CrashPlan {
    CrashPlan::default().exhaustive_bits(2).listed_max(3).samples(2)
}

/// Returns the keys of each tree after `rounds` transactions of the script.
fn after(rounds: u64) -> Vec<u64> {
    let mut keys = Vec::new();
    for round in 0..rounds {
        keys.extend(round * 12..round * 12 + 12);
        keys.retain(|key| round % 3 != 2 || key % 4 != 0);
    }
    keys
}

/// Executes one transaction of the script, which changes both trees alike.
fn round(volume: &Volume, trees: [Tree<Numbers>; 2], round: u64) -> Result<u64, Fault> {
    let mut tx = volume.begin(need(volume, 40))?;
    for tree in trees {
        insert(&mut tx, tree, round * 12..round * 12 + 12);
        if round % 3 == 2 {
            let gone: Vec<_> = keys(&tx, tree).into_iter().filter(|key| key % 4 == 0).collect();
            remove(&mut tx, tree, gone);
        }
    }
    tx.commit()
}

/// Returns the number of blocks of a tree.
fn blocks<N: Nodes<Error = Fault>>(nodes: &N, tree: Tree<Numbers>) -> u64 {
    let mut blocks = 0;
    tree.check(nodes, |damage| panic!("{damage}"), |_| blocks += 1).unwrap();
    blocks
}

#[test]
fn a_crash_leaves_all_of_a_transaction_or_nothing() {
    let base = made();
    let volume = open(&base);
    let trees = [make_tree(&volume, 3), make_tree(&volume, 4)];
    let empty = volume.groups().totals().available + 2;
    volume.close().unwrap();
    let recording = Arc::new(RecordingDevice::new(base));
    let device: Arc<dyn Device> = recording.clone();
    let volume = open(&device);
    let mut promised = vec![0];
    for number in 0..7 {
        let sequence = round(&volume, trees, number).unwrap();
        if number % 2 == 1 {
            volume.force(sequence).unwrap();
            recording.mark(format!("{number}"));
            promised.push(number + 1);
        }
        if number == 3 {
            volume.journal().unwrap().quiesce().unwrap();
        }
    }
    volume.close().unwrap();
    recording.mark("closed");
    promised.push(7);
    let mut seen = std::collections::BTreeSet::new();
    for state in recording.crash_states(plan()) {
        let device: Arc<dyn Device> = state.device();
        let volume = open(&device);
        let reader = volume.reader();
        let found = keys(&reader, trees[0]);
        assert_eq!(found, keys(&reader, trees[1]), "state {}", state.id());
        let rounds = (0..=7).find(|rounds| after(*rounds) == found);
        let rounds = rounds.unwrap_or_else(|| panic!("state {}: {found:?}", state.id()));
        assert!(rounds >= promised[state.marks()], "state {}: {rounds}", state.id());
        let used: u64 = trees.map(|tree| blocks(&reader, tree)).iter().sum();
        assert_eq!(volume.groups().totals().available, empty - used, "state {}", state.id());
        if seen.insert(rounds) {
            // The volume continues from that state.
            let mut tx = volume.begin(need(&volume, 20)).unwrap();
            insert(&mut tx, trees[0], 1000..1020);
            tx.commit().unwrap();
            volume.close().unwrap();
        }
    }
    assert!(seen.len() >= 4, "{seen:?}");
}

/// Claims all blocks that are available near the start of the volume.
fn claim_all(volume: &Volume, tree: Tree<Numbers>) -> (u64, Vec<BlockRange>) {
    let mut tx = volume.begin(TxReservation { space: 300, ..need(volume, 0) }).unwrap();
    let mut runs = Vec::new();
    let mut blocks = 0;
    while blocks < 290 {
        let run = tx.claim(0, 1, 290 - blocks).unwrap();
        blocks += run.blocks;
        runs.push(run);
    }
    write_data(volume, &runs);
    insert(&mut tx, tree, [1]);
    (tx.commit().unwrap(), runs)
}

#[test]
fn replay_writes_no_metadata_over_data() {
    let base = made();
    let volume = open(&base);
    let (marker, tree) = (make_tree(&volume, 3), make_tree(&volume, 4));
    volume.close().unwrap();
    let recording = Arc::new(RecordingDevice::new(base));
    let device: Arc<dyn Device> = recording.clone();
    let volume = open(&device);
    let mut tx = volume.begin(need(&volume, 40)).unwrap();
    insert(&mut tx, tree, 0..60);
    volume.force(tx.commit().unwrap()).unwrap();
    let mut tx = volume.begin(need(&volume, 40)).unwrap();
    remove(&mut tx, tree, 0..60);
    volume.force(tx.commit().unwrap()).unwrap();
    let free = super::left(&volume);
    let (sequence, runs) = claim_all(&volume, marker);
    volume.force(sequence).unwrap();
    recording.mark("data");
    // Freed blocks become data; otherwise the test would prove nothing.
    assert!(runs.iter().any(|run| run.start < 60), "{runs:?}");
    assert!(super::left(&volume) < free);
    volume.close().unwrap();
    let (mut before, mut behind) = (0, 0);
    for state in recording.crash_states(plan()) {
        let device: Arc<dyn Device> = state.device();
        let volume = open(&device);
        let has_data = keys(&volume.reader(), marker) == [1];
        assert!(has_data || state.marks() == 0, "state {}", state.id());
        if has_data {
            behind += 1;
            assert_eq!(keys(&volume.reader(), tree), [0; 0]);
            check_data(&device, &runs);
            volume.close().unwrap();
            check_data(&device, &runs);
        } else {
            before += 1;
        }
    }
    assert!(before > 0 && behind > 0, "{before} and {behind}");
}

#[test]
fn replay_leaves_the_later_of_two_metadata_blocks() {
    let base = made();
    let volume = open(&base);
    let trees = [make_tree(&volume, 3), make_tree(&volume, 4)];
    volume.close().unwrap();
    let recording = Arc::new(RecordingDevice::new(base));
    let device: Arc<dyn Device> = recording.clone();
    let volume = open(&device);
    // The blocks of one tree become blocks of the other, back and forth.
    let mut expected = vec![[0, 0]];
    for round in 0..6_u64 {
        let (full, empty) = if round % 2 == 0 { (0, 1) } else { (1, 0) };
        let mut tx = volume.begin(need(&volume, 40)).unwrap();
        insert(&mut tx, trees[full], 0..40);
        let mut last = tx.commit().unwrap();
        let mut counts = [0, 0];
        if round > 0 {
            let mut tx = volume.begin(need(&volume, 40)).unwrap();
            counts = [40, 40];
            expected.push(counts);
            remove(&mut tx, trees[empty], 0..40);
            last = tx.commit().unwrap();
        }
        (counts[full], counts[empty]) = (40, 0);
        expected.push(counts);
        volume.force(last).unwrap();
        recording.mark("round");
    }
    volume.close().unwrap();
    for state in recording.crash_states(plan()) {
        let device: Arc<dyn Device> = state.device();
        let volume = crate::Volume::open(device, options()).unwrap();
        let found = trees.map(|tree| keys(&volume.reader(), tree).len());
        let at_least = (2 * state.marks()).saturating_sub(usize::from(state.marks() > 0));
        assert!(expected[at_least..].contains(&found), "state {}: {found:?}", state.id());
    }
}
