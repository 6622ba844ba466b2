use std::cell::RefCell;

use super::*;
use crate::format::Expected;

/// Changes keys of a tree at random, some of them close together, when only the blocks around them
/// can be read. Returns the number of changes.
fn changed_around<const MAX: usize>(random: &mut Random) -> usize {
    let mut below = |most: u64| random.number() % most.max(1);
    let records = below(40 * MAX as u64);
    let span = 1 + 3 * records;
    let (mut nodes, tree) =
        tree_of::<MAX>((0..records).map(|_| below(span)).collect::<BTreeSet<_>>());
    // Removals leave blocks with few records.
    for _ in 0..below(records) {
        tree.remove(&mut nodes, below(span).into()).unwrap();
    }
    nodes.commit();
    let mut changes = BTreeMap::new();
    for _ in 0..below(6) {
        let most = 1 << below(9);
        let (first, keys, kind) = (below(span), below(most), below(3));
        for key in first..first + keys {
            changes.insert(key, kind == 0 || (kind == 1 && below(2) == 0));
        }
    }
    let held = RefCell::new(BTreeSet::new());
    let hold = |address, expected: &Expected| {
        held.borrow_mut().insert(address);
        nodes.read(address, expected)
    };
    for key in changes.keys() {
        let (low, high) = tree.around(&nodes, ((*key).into(), (*key).into()), hold).unwrap();
        assert!(low.get() <= *key && high.is_none_or(|high| *key < high.get()));
    }
    let held = held.into_inner();
    nodes.lost = nodes.blocks.keys().copied().filter(|address| !held.contains(address)).collect();
    for (key, is_new) in &changes {
        let done = match is_new {
            true => tree.insert(&mut nodes, (*key).into(), 1.into()).map(drop),
            false => tree.remove(&mut nodes, (*key).into()).map(drop),
        };
        assert_eq!(done, Ok(()), "key {key} of {changes:?}");
    }
    nodes.lost.clear();
    nodes.commit();
    sound(&tree, &nodes);
    changes.len()
}

/// Changes of any keys need no block that is not around the key of one of them.
#[test]
fn changes_in_order_need_the_blocks_around_them_only() {
    let mut random = Random::new(7);
    let mut changes = 0;
    for _ in 0..500 {
        changes += changed_around::<4>(&mut random);
        changes += changed_around::<5>(&mut random);
        changes += changed_around::<9>(&mut random);
        changes += changed_around::<16>(&mut random);
    }
    assert!(changes > 100_000, "{changes}");
}
