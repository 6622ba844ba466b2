//! The records read of a tree with an unreadable block.

use super::*;
use crate::btree::Record;
use crate::btree::memory::VOLUME;
use crate::format::Identity;
use crate::format::btree::{raw, raw_mut};

type Deep = Tree<Small<4>>;

/// Knowledge that finds all blocks, and agrees as the test chooses.
struct All<'m>(&'m Memory, bool);

impl Around<Small<4>> for All<'_> {
    fn is_unowned(&self, _: u64) -> bool {
        true
    }

    fn search(&self) -> Vec<u64> {
        self.0.blocks.keys().copied().collect()
    }

    fn agrees(&self, _: &[Record<Small<4>>], _: usize) -> bool {
        self.1
    }
}

fn sample() -> (Memory, Deep) {
    let (nodes, tree) = tree_of::<4>(scattered(100).map(|key| key >> 32));
    assert!(tree.height(&nodes).unwrap() >= 4);
    (nodes, tree)
}

fn kept(tree: &Deep, nodes: &Memory, agrees: bool) -> Vec<u64> {
    let kept = tree.salvage(nodes, &All(nodes, agrees)).unwrap();
    let mut blocks = kept.blocks.clone();
    blocks.dedup();
    assert_eq!(blocks.len(), kept.blocks.len());
    kept.records.iter().map(|record| record.key.get()).collect()
}

/// Returns the keys of a leaf; none of a block above.
fn keys_in(tree: &Deep, nodes: &Memory, address: u64) -> Vec<u64> {
    let view = tree.view(address, &nodes.blocks[&address]).unwrap();
    view.records().iter().map(|record| record.key.get()).collect()
}

#[test]
fn a_block_takes_its_own_records_with_it_and_no_others() {
    let (whole, tree) = sample();
    let all = keys(&tree, &whole);
    for address in whole.blocks.keys() {
        let lost = keys_in(&tree, &whole, *address);
        let expected: Vec<_> = all.iter().copied().filter(|key| !lost.contains(key)).collect();
        for is_sealed in [false, true] {
            let mut nodes = whole.clone();
            // A wrong checksum, or an intact block without a meaning.
            nodes.damage(*address, is_sealed, |block| raw_mut(block).records = 900.into());
            assert_eq!(kept(&tree, &nodes, true), expected, "block {address}");
        }
    }
    assert_eq!(kept(&tree, &whole, true), all);
}

#[test]
fn salvage_leaves_out_contradictory_nodes() {
    let (mut nodes, tree) = sample();
    nodes.damage(tree.root(), false, |block| raw_mut(block).records = 900.into());
    assert!(kept(&tree, &nodes, false).is_empty());
    // A row with a gap is not salvaged.
    let (_, leaf) = leaves(&nodes)[3];
    nodes.damage(leaf, false, |block| raw_mut(block).level = 5.into());
    assert!(kept(&tree, &nodes, true).is_empty());
}

/// Returns the leaves with their least keys, in order.
fn leaves(nodes: &Memory) -> Vec<(u64, u64)> {
    let leaves = nodes.blocks.iter().filter_map(|(address, block)| {
        let view = Deep::at(10, OWNER).view(*address, block).ok()?;
        Some((view.records().first()?.key.get(), *address))
    });
    let mut leaves: Vec<_> = leaves.collect();
    leaves.sort_unstable();
    leaves
}

/// A leaf that only a neighbour points to is trusted if it points back.
#[test]
fn a_neighbour_that_does_not_know_of_it_is_none() {
    let (mut nodes, tree) = sample();
    let leaves = leaves(&nodes);
    // The block above the first leaf, and so the path to it, is lost, and it has another neighbour.
    let above = nodes.blocks.iter().find_map(|(address, block)| {
        let view = tree.view(*address, block).ok()?;
        let leads = view.branches().iter().any(|branch| branch.value == leaves[0].1);
        leads.then_some(*address)
    });
    let above = above.unwrap();
    nodes.damage(above, false, |block| raw_mut(block).records = 900.into());
    let all = kept(&tree, &nodes, true);
    assert_eq!(all.len(), 100);
    nodes.damage(leaves[0].1, true, |block| raw_mut(block).right = 999.into());
    let first = keys_in(&tree, &nodes, leaves[0].1);
    let rest: Vec<_> = all.into_iter().filter(|key| !first.contains(key)).collect();
    assert_eq!(kept(&tree, &nodes, true), rest);
}

/// Of two rows of leaves, salvage returns the one written last.
#[test]
fn an_older_tree_is_not_taken_for_the_newer() {
    for newer in [false, true] {
        let (mut nodes, tree) = sample();
        let all = keys(&tree, &nodes);
        // An older copy of the tree, elsewhere, with other values.
        let addresses: Vec<_> = nodes.blocks.keys().copied().collect();
        for address in addresses {
            let (from, to) = (nodes.blocks[&address].clone(), address + 1000);
            if raw(&from).level != 0 {
                continue;
            }
            nodes.place(to, &tree.expected());
            let mut copy = from;
            let node = raw_mut(&mut copy);
            for link in [&mut node.left, &mut node.right] {
                *link = if *link == 0 { *link } else { (link.get() + 1000).into() };
            }
            // Changes the least key of each leaf.
            node.area[0] ^= 1;
            let identity =
                Identity { magic: Small::<4>::MAGIC, address: to, owner: OWNER, volume: VOLUME };
            copy.seal(&identity, if newer { 9 } else { 3 });
            nodes.blocks.insert(to, copy);
            let identity = Identity { address, ..identity };
            nodes.blocks.get_mut(&address).unwrap().seal(&identity, 5);
        }
        nodes.damage(tree.root(), false, |block| raw_mut(block).records = 900.into());
        assert_eq!(kept(&tree, &nodes, true) == all, !newer);
        assert_eq!(kept(&tree, &nodes, true).len(), 100);
    }
}
