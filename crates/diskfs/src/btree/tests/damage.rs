//! Wrong bytes in trees: an error with a number, never a panic, an endless loop, or a wild read.

use super::*;
use crate::btree::node;
use crate::format::Block;
use crate::format::btree::{raw, raw_mut};

type Deep = Tree<Small<4>>;
type Records = Vec<Result<Record<Small<4>>, Error<Failure>>>;

/// Returns the addresses of each level, from left to right, from the leaves upward.
fn levels(tree: &Deep, nodes: &Memory) -> Vec<Vec<u64>> {
    let height = usize::from(tree.height(nodes).unwrap());
    let mut levels = vec![Vec::new(); height];
    let record = |address| {
        let level = raw(&nodes.blocks[&address]).level.get();
        levels[usize::from(level)].push(address);
    };
    tree.check(nodes, |_| {}, record).unwrap();
    levels
}

fn sample() -> (Memory, Deep, Vec<Vec<u64>>) {
    let (nodes, tree) = tree_of::<4>(scattered(100).map(|key| key >> 32));
    let levels = levels(&tree, &nodes);
    assert!(levels.len() >= 4);
    (nodes, tree, levels)
}

/// Returns up to 1,000 records from `from` on, or before it, and the error that ends them.
fn records(
    tree: &Deep,
    nodes: &Memory,
    from: Option<U64>,
    is_backward: bool,
) -> Result<Records, Error<Failure>> {
    Ok(match (from, is_backward) {
        (Some(from), false) => tree.range(nodes, from..)?.take(1000).collect(),
        (None, false) => tree.range(nodes, ..)?.take(1000).collect(),
        (Some(from), true) => backward(tree.seek(nodes, from)?).take(1000).collect(),
        (None, true) => backward(tree.seek_end(nodes)?).take(1000).collect(),
    })
}

/// Calls every operation of a tree. Returns the numbers of the faults.
fn everything(tree: &Deep, nodes: &mut Memory) -> BTreeSet<u32> {
    let mut numbers = BTreeSet::new();
    let mut note = |error: Option<Error<Failure>>| {
        match error.as_ref() {
            None | Some(Error::Nodes(Failure::Missing(_))) => {}
            Some(error) => numbers.extend([number(error).unwrap()]),
        };
    };
    for is_backward in [false, true] {
        match records(tree, nodes, None, is_backward) {
            Ok(records) => {
                assert!(records.len() < 1000, "an endless loop");
                records.into_iter().for_each(|record| note(record.err()));
            }
            Err(error) => note(Some(error)),
        }
    }
    note(tree.count(nodes).err());
    for key in scattered(100).map(|key| key >> 32) {
        note(tree.get(nodes, key.into()).err());
        note(tree.at_or_before(nodes, (key + 1).into()).err());
        note(tree.insert(nodes, (key ^ 5).into(), 1.into()).err());
        note(tree.remove(nodes, key.into()).err());
        nodes.commit();
    }
    note(tree.insert(nodes, u64::MAX.into(), 1.into()).err());
    note(tree.insert(nodes, 0.into(), 1.into()).err());
    tree.check(nodes, |damage| assert!(damage.number() > 0), |_| {}).unwrap_or_default();
    numbers
}

/// Damages the block, with a right checksum, and returns what the checker finds.
fn found_after(
    nodes: &Memory,
    tree: &Deep,
    address: u64,
    change: impl FnOnce(&mut Block),
) -> BTreeSet<u32> {
    let mut nodes = nodes.clone();
    nodes.damage(address, true, change);
    let found = wrong(tree, &nodes).into_iter().collect();
    everything(tree, &mut nodes);
    found
}

#[test]
fn each_thing_that_is_wrong_has_its_number() {
    let (nodes, tree, levels) = sample();
    let (leaf, next) = (levels[0][5], levels[0][6]);
    let (branch, root) = (levels[1][2], tree.root());
    let found = |address, change: fn(&mut Block)| found_after(&nodes, &tree, address, change);
    assert_eq!(found(leaf, |_| {}), [].into());
    assert!(found(leaf, |block| raw_mut(block).level = 1.into()).contains(&200));
    assert!(found(branch, |block| raw_mut(block).level = 2.into()).contains(&200));
    assert!(found(leaf, |block| raw_mut(block).records = 5.into()).contains(&201));
    assert!(found(leaf, |block| raw_mut(block).records = 0.into()).contains(&201));
    assert!(found(branch, |block| raw_mut(block).records = u16::MAX.into()).contains(&201));
    assert!(found(branch, |block| raw_mut(block).records = 1.into()).contains(&201));
    let swap = |block: &mut Block| {
        let mut records = node::copied::<U64, U32>(block);
        records.swap(0, 1);
        node::write_entries(block, &records);
    };
    assert!(found(leaf, swap).contains(&202));
    let too_low = |block: &mut Block| {
        let mut records = node::copied::<U64, U32>(block);
        records[0].key = 0.into();
        node::write_entries(block, &records);
    };
    assert_eq!(found(leaf, too_low), [203].into());
    let too_high = |block: &mut Block| {
        let mut records = node::copied::<U64, U32>(block);
        records.last_mut().unwrap().key = u64::MAX.into();
        node::write_entries(block, &records);
    };
    assert_eq!(found(leaf, too_high), [203].into());
    assert_eq!(found(next, |block| raw_mut(block).left = 1.into()), [204].into());
    assert_eq!(found(leaf, |block| raw_mut(block).right = 1.into()), [205].into());
    let wild = |block: &mut Block| {
        let mut branches = node::copied::<U64, U64>(block);
        branches[1].value = (1 << 40).into();
        node::write_entries(block, &branches);
    };
    assert!(found(branch, wild).contains(&206));
    assert!(found(root, |block| raw_mut(block).level = 16.into()).contains(&207));
    let twice = |block: &mut Block| {
        let mut branches = node::copied::<U64, U64>(block);
        branches[1].value = branches[0].value;
        node::write_entries(block, &branches);
    };
    assert!(found(branch, twice).contains(&209));
}

#[test]
fn blocks_that_are_not_full_enough_are_told() {
    let (mut nodes, tree) = tree_of::<9>(0..200);
    let mut leaves = Vec::new();
    tree.check(&nodes, |_| {}, |address| leaves.push(address)).unwrap();
    leaves.retain(|address| raw(&nodes.blocks[address]).level == 0);
    let remove_most = |block: &mut Block| {
        let records = node::copied::<U64, U32>(block);
        node::write_entries(block, &records[..2]);
    };
    // The first and the last block of the level may have fewer.
    nodes.damage(leaves[0], true, remove_most);
    assert!(wrong(&tree, &nodes).is_empty());
    nodes.damage(leaves[3], true, remove_most);
    assert_eq!(wrong(&tree, &nodes), [208]);
}

#[test]
fn calls_tell_what_is_wrong_on_their_way() {
    let (nodes, tree, levels) = sample();
    let damaged = |address, change: fn(&mut Block)| {
        let mut nodes = nodes.clone();
        nodes.damage(address, true, change);
        everything(&tree, &mut nodes)
    };
    let (leaf, branch) = (levels[0][5], levels[1][2]);
    assert_eq!(damaged(leaf, |_| {}), [].into());
    assert!(damaged(branch, |block| raw_mut(block).level = 2.into()).contains(&200));
    assert!(damaged(leaf, |block| raw_mut(block).records = 9.into()).contains(&201));
    assert!(damaged(leaf, |block| raw_mut(block).left = 1.into()).contains(&204));
    assert!(damaged(leaf, |block| raw_mut(block).right = 1.into()).contains(&205));
    assert!(damaged(branch, |block| raw_mut(block).left = 0.into()).contains(&204));
    let wild = |block: &mut Block| {
        let mut branches = node::copied::<U64, U64>(block);
        branches.iter_mut().for_each(|branch| branch.value = 0.into());
        node::write_entries(block, &branches);
    };
    assert!(damaged(branch, wild).contains(&206));
}

#[test]
fn a_block_of_another_tree_or_place_is_told() {
    let (nodes, tree, levels) = sample();
    let leaf = levels[0][5];
    let mut other = nodes.clone();
    other.set_owner(leaf, OWNER + 1);
    assert_eq!(wrong(&tree, &other), [5]);
    assert!(everything(&tree, &mut other).contains(&5));
    // Without the check of blocks from the device: the block is in memory, for another tree.
    let mut other = nodes.clone();
    let stranger = Tree::<Small<4>>::at(tree.root(), OWNER + 1);
    assert_eq!(wrong(&stranger, &other), [5]);
    let block = other.blocks[&levels[0][6]].clone();
    other.blocks.insert(leaf, block);
    assert_eq!(wrong(&tree, &other), [3]);
}

#[test]
fn a_lost_block_hides_only_what_is_below_it() {
    let (mut nodes, tree, levels) = sample();
    nodes.damage(levels[0][5], false, |block| block.body_mut()[100] ^= 1);
    nodes.damage(levels[0][9], false, |block| block.body_mut()[100] ^= 1);
    assert_eq!(wrong(&tree, &nodes), [2, 2]);
    nodes.damage(levels[1][0], false, |block| block.body_mut()[0] ^= 1);
    assert!(wrong(&tree, &nodes).iter().all(|number| *number == 2));
}

#[test]
fn links_that_make_a_ring_have_an_end() {
    let (mut nodes, tree, levels) = sample();
    let (first, last) = (levels[0][0], *levels[0].last().unwrap());
    nodes.damage(first, true, |block| raw_mut(block).left = last.into());
    nodes.damage(last, true, |block| raw_mut(block).right = first.into());
    let numbers = wrong(&tree, &nodes);
    assert!(numbers.contains(&204) && numbers.contains(&205), "{numbers:?}");
    // A cursor that moves from inside of the ring to an end passes no leaf twice.
    let middle = U64::from(raw_key(&nodes, levels[0][5]));
    for is_backward in [false, true] {
        let records = records(&tree, &nodes, Some(middle), is_backward).unwrap();
        let Some((Err(error), before)) = records.split_last() else { panic!("an endless loop") };
        assert_eq!(number(error), Some(203));
        assert!(!before.is_empty() && before.iter().all(Result::is_ok));
    }
    assert_eq!(everything(&tree, &mut nodes).first(), Some(&204));
}

#[test]
fn a_split_refuses_a_neighbour_that_does_not_lead_back() {
    let (nodes, tree, levels) = sample();
    let mut refused = 0;
    for pair in levels[0].windows(2) {
        let mut nodes = nodes.clone();
        nodes.damage(pair[1], true, |block| raw_mut(block).left = 1.into());
        let (bodies, key) = (nodes.bodies(), raw_key(&nodes, pair[0]) + 1);
        let outcome = tree.insert(&mut nodes, key.into(), 1.into());
        if raw(&nodes.blocks[&pair[0]]).records.get() < 4 || outcome.is_ok() {
            continue;
        }
        nodes.commit();
        assert_eq!(number(&outcome.unwrap_err()), Some(204));
        assert!(nodes.bodies() == bodies);
        refused += 1;
    }
    let full = levels[0].split_last().unwrap().1.iter();
    let full = full.filter(|address| raw(&nodes.blocks[address]).records == 4).count();
    assert!(full > 2);
    assert_eq!(refused, full);
}

/// Returns the first key of a leaf.
fn raw_key(nodes: &Memory, address: u64) -> u64 {
    node::copied::<U64, U32>(&nodes.blocks[&address])[0].key.get()
}

/// Returns the highest possible tree, of which only the path to the last leaf exists.
#[test]
fn a_tree_does_not_get_higher_than_trees_are() {
    let mut nodes = Memory::new();
    let tree = create::<Small<4>>(&mut nodes);
    let mut way = vec![(tree.root(), nodes.writable(tree.root(), &tree.expected()).unwrap())];
    for _ in 1..LEVELS_MAX {
        way.push(nodes.allocate(100, &tree.expected()).unwrap());
    }
    for (at, (_, slot)) in way.iter().enumerate() {
        let (level, low) = (LEVELS_MAX - 1 - at as u16, at as u64 * 3);
        let left = if at == 0 { 0 } else { 1000 + at as u64 - 1 };
        let entry = |index: u64, value| Entry { key: U64::from(low + index), value };
        if let Some((next, _)) = way.get(at + 1) {
            let beside = U64::from(1000 + at as u64);
            let value = |index| if index == 3 { U64::from(*next) } else { beside };
            let entries: Vec<_> = (0..4).map(|index| entry(index, value(index))).collect();
            node::write(nodes.edit(*slot), level, [left, 0], &entries);
        } else {
            let entries: Vec<_> = (0..4)
                .map(|index| Entry { key: U64::from(low + index), value: U32::ZERO })
                .collect();
            node::write(nodes.edit(*slot), level, [left, 0], &entries);
        }
    }
    let blocks = nodes.blocks.len();
    let error = tree.insert(&mut nodes, 500.into(), 1.into()).unwrap_err();
    assert_eq!(number(&error), Some(207));
    assert_eq!(nodes.blocks.len(), blocks);
    assert_eq!(tree.last(&nodes).unwrap().unwrap().key, 48);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn any_flipped_bits_are_found(
        which in any::<prop::sample::Index>(),
        changes in prop::collection::vec((48..4096_usize, 1..=255_u8), 1..4),
    ) {
        let (mut nodes, tree, levels) = sample();
        let address = *which.get(&levels.concat());
        let body = nodes.blocks[&address].body().to_vec();
        nodes.damage(address, false, |block| {
            changes.iter().for_each(|(at, bits)| block.bytes_mut()[*at] ^= bits);
        });
        prop_assume!(nodes.blocks[&address].body().to_vec() != body);
        prop_assert_eq!(wrong(&tree, &nodes)[0], 2);
        prop_assert!(everything(&tree, &mut nodes).contains(&2));
    }

    /// The checksums are right, as if a program had written the bytes.
    #[test]
    fn any_bytes_under_a_right_checksum_end_with_an_answer(
        damages in prop::collection::vec(
            (any::<prop::sample::Index>(), 48..136_usize, any::<u8>()), 1..6),
    ) {
        let (mut nodes, tree, levels) = sample();
        for (which, at, byte) in damages {
            let address = *which.get(&levels.concat());
            nodes.damage(address, true, |block| block.bytes_mut()[at] = byte);
        }
        everything(&tree, &mut nodes);
    }

    /// Replaces addresses and links of one block by those of another.
    #[test]
    fn any_swapped_addresses_end_with_an_answer(
        damages in prop::collection::vec(
            (any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0..6_usize), 1..4),
    ) {
        let (mut nodes, tree, levels) = sample();
        let all = levels.concat();
        for (which, to, at) in damages {
            let (address, to) = (*which.get(&all), *to.get(&all));
            nodes.damage(address, true, |block| {
                let at = [8, 16, 32, 48, 64, 80][at];
                block.body_mut()[at..at + 8].copy_from_slice(&to.to_le_bytes());
            });
        }
        everything(&tree, &mut nodes);
    }
}
