use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use vfscale_sync::random::Random;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::cursor::Cursor;
use super::memory::{Failure, Memory, number};
use super::*;
use crate::format::Magic;

mod around;
mod bulk;
mod damage;
mod faults;
mod fill;
mod model;
mod salvage;

const OWNER: u64 = 77;

/// A tree whose blocks have at most `MAX` records: few records make a high tree.
struct Small<const MAX: usize>;

impl<const MAX: usize> Kind for Small<MAX> {
    type Key = U64;
    type Value = U32;
    const MAGIC: Magic = Magic(*b"vfsT");
    const KEY_MIN: U64 = U64::ZERO;
    const RECORDS_MAX: usize = MAX;
}

/// A tree whose blocks have as many records as fit, with keys of two numbers.
struct Large;

#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
struct Double {
    major: U64,
    minor: U32,
}

impl Kind for Large {
    type Key = Double;
    type Value = U32;
    const MAGIC: Magic = Magic(*b"vfsL");
    const KEY_MIN: Double = Double { major: U64::ZERO, minor: U32::ZERO };
}

fn double(key: u64) -> Double {
    Double { major: (key >> 8).into(), minor: (key as u32 & 0xFF).into() }
}

fn create<K: Kind>(nodes: &mut Memory) -> Tree<K> {
    let tree = Tree::create(nodes, OWNER, 10).unwrap();
    nodes.commit();
    tree
}

/// Returns the records before `cursor`, in descending order. Ends after an error.
fn backward<K: Kind, N: Nodes>(
    mut cursor: Cursor<'_, K, N>,
) -> impl Iterator<Item = Result<Record<K>, Error<N::Error>>> {
    let mut is_over = false;
    std::iter::from_fn(move || {
        let next = if is_over { None } else { cursor.backward().transpose() };
        is_over = !matches!(next, Some(Ok(_)));
        next
    })
}

fn tree_of<const MAX: usize>(keys: impl IntoIterator<Item = u64>) -> (Memory, Tree<Small<MAX>>) {
    let mut nodes = Memory::new();
    let tree = create(&mut nodes);
    for key in keys {
        assert!(tree.insert(&mut nodes, key.into(), (key as u32).into()).unwrap());
        nodes.commit();
    }
    (nodes, tree)
}

/// Returns all faults of the tree, by number.
fn wrong<K: Kind>(tree: &Tree<K>, nodes: &Memory) -> Vec<u32> {
    let mut numbers = Vec::new();
    tree.check(nodes, |damage| numbers.push(damage.number()), |_| {}).unwrap();
    numbers
}

/// Asserts that the tree has no fault, and owns all blocks of the volume.
fn sound<K: Kind>(tree: &Tree<K>, nodes: &Memory) -> Summary {
    let mut used = BTreeSet::new();
    let mut found = Vec::new();
    let summary = tree
        .check(nodes, |damage| found.push(damage), |address| assert!(used.insert(address)))
        .unwrap();
    assert_eq!(found, []);
    assert_eq!(used, nodes.blocks.keys().copied().collect());
    assert_eq!(summary.blocks, nodes.blocks.len() as u64);
    assert_eq!(summary.levels, tree.height(nodes).unwrap());
    summary
}

fn keys<const MAX: usize>(tree: &Tree<Small<MAX>>, nodes: &Memory) -> Vec<u64> {
    tree.range(nodes, ..).unwrap().map(|record| record.unwrap().key.get()).collect()
}

/// Returns random numbers, in a fixed sequence.
fn scattered(count: u64) -> impl Iterator<Item = u64> {
    let mut random = Random::new(0);
    (0..count).map(move |_| random.number())
}

#[test]
fn a_new_tree_is_an_empty_leaf() {
    let mut nodes = Memory::new();
    let tree = create::<Small<4>>(&mut nodes);
    let expected = Summary { levels: 1, blocks: 1, leaves: 1, records: 0, room: 4 };
    assert_eq!(sound(&tree, &nodes), expected);
    assert_eq!(tree.first(&nodes).unwrap(), None);
    assert_eq!(tree.last(&nodes).unwrap(), None);
    assert_eq!(tree.get(&nodes, 5.into()).unwrap(), None);
    assert_eq!(tree.count(&nodes).unwrap(), 0);
    assert_eq!((tree.root(), tree.owner()), (10, OWNER));
    assert_eq!(tree.remove(&mut nodes, 5.into()).unwrap(), None);
    assert_eq!(tree.update(&mut nodes, 5.into(), 1.into()).unwrap(), None);
}

#[test]
fn a_key_is_there_once() {
    let (mut nodes, tree) = tree_of::<4>([1, 2, 3]);
    assert!(!tree.insert(&mut nodes, 2.into(), 9.into()).unwrap());
    assert_eq!(tree.get(&nodes, 2.into()).unwrap(), Some(2.into()));
    assert_eq!(tree.update(&mut nodes, 2.into(), 9.into()).unwrap(), Some(2.into()));
    assert_eq!(tree.get(&nodes, 2.into()).unwrap(), Some(9.into()));
    assert_eq!(tree.count(&nodes).unwrap(), 3);
}

#[test]
fn the_least_and_the_greatest_key_have_a_place() {
    let (mut nodes, tree) = tree_of::<4>([u64::MAX, 5, 0, 7, 9, 11, 1, u64::MAX - 1]);
    sound(&tree, &nodes);
    assert_eq!(tree.first(&nodes).unwrap().unwrap().key, 0);
    assert_eq!(tree.last(&nodes).unwrap().unwrap().key, u64::MAX);
    assert_eq!(tree.remove(&mut nodes, 0.into()).unwrap(), Some(0.into()));
    assert_eq!(tree.remove(&mut nodes, u64::MAX.into()).unwrap(), Some(u32::MAX.into()));
    nodes.commit();
    assert_eq!(keys(&tree, &nodes), [1, 5, 7, 9, 11, u64::MAX - 1]);
}

#[test]
fn a_call_reads_one_block_per_level_and_changes_one_mostly() {
    let (mut nodes, tree) = tree_of::<8>((0..4000).map(|key| key * 2));
    let height = u64::from(tree.height(&nodes).unwrap());
    assert!(height >= 4);
    nodes.reads.set(0);
    tree.get(&nodes, 4000.into()).unwrap().unwrap();
    assert_eq!(nodes.reads.get(), height);
    assert_eq!(tree.remove(&mut nodes, 4000.into()).unwrap(), Some(4000.into()));
    (nodes.writes, nodes.reads) = (0, 0.into());
    assert!(tree.insert(&mut nodes, 4001.into(), 1.into()).unwrap());
    assert_eq!((nodes.writes, nodes.reads.get()), (1, height));
}

#[test]
fn keys_of_two_numbers_are_in_order() {
    let mut nodes = Memory::new();
    let tree = create::<Large>(&mut nodes);
    for key in scattered(3000) {
        tree.insert(&mut nodes, double(key % 100_000), 1.into()).unwrap();
    }
    nodes.commit();
    let summary = sound(&tree, &nodes);
    assert_eq!((Tree::<Large>::LEAF_RECORDS_MAX, Tree::<Large>::BRANCH_RECORDS_MAX), (251, 201));
    assert_eq!(summary.levels, 2);
    let expected: BTreeSet<u64> = scattered(3000).map(|key| key % 100_000).collect();
    let found = tree.range(&nodes, ..).unwrap().map(|record| record.unwrap().key);
    assert!(found.eq(expected.into_iter().map(double)));
}
