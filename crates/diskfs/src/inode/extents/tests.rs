use std::collections::BTreeMap;

use super::*;
use crate::btree::memory::{Failure, Memory, number};
use crate::format::extent::{EXTENT_BLOCKS_MAX, LIST_MAX, check_order};

mod model;

const INO: u64 = 77;
const OWNER: MapOwner = MapOwner { ino: INO, list_max: LIST_MAX };

/// Checks the whole map and reports all faults, except those within the blocks of its tree
/// ([`Tree::check`] finds these): extents that overlap, or lie where none can. Calls `visit` with
/// each possible extent.
///
/// # Errors
/// [`Error`], if blocks can't be read.
fn check<N: Nodes>(
    map: &ExtentMap,
    nodes: &N,
    ino: u64,
    mut report: impl FnMut(Damage),
    mut visit: impl FnMut(&Extent),
) -> Outcome<(), N> {
    let mut before: Option<Extent> = None;
    let mut look = |extent: Extent| {
        match extent.checked(ino, |start, blocks| nodes.is_for_data(start, blocks)) {
            Err(damage) => return report(damage.into()),
            Ok(extent) => visit(&extent),
        }
        if let Some(Err(damage)) = before.map(|before| check_order(ino, &before, &extent)) {
            report(damage.into());
        }
        before = Some(extent);
    };
    match map {
        ExtentMap::Empty | ExtentMap::List(_) => map.listed().iter().copied().for_each(look),
        ExtentMap::Tree(root) => {
            for record in tree(*root, ino).range(nodes, ..)? {
                let record = record?;
                look(Extent::of(record.key.get(), &record.value));
            }
        }
    }
    Ok(())
}

fn extent(file_block: u64, start: u64, blocks: u32) -> Extent {
    Extent { file_block, start, blocks, is_unwritten: false }
}

fn unwritten(file_block: u64, start: u64, blocks: u32) -> Extent {
    Extent { is_unwritten: true, ..extent(file_block, start, blocks) }
}

fn written(map: &mut ExtentMap, nodes: &mut Memory, range: (u64, u64)) {
    let mut grown = 0;
    assert_eq!(map.convert(nodes, OWNER, range, false, 99, &mut grown).unwrap(), range.1);
    assert_eq!(grown, 0);
}

/// Lists all extents, after checks of the map, of the tree and of all blocks.
fn all(map: &ExtentMap, nodes: &Memory) -> Vec<Extent> {
    let mut found = Vec::new();
    check(map, nodes, INO, |damage| panic!("{damage}"), |extent| found.push(*extent)).unwrap();
    let blocks = match map {
        ExtentMap::Empty => 0,
        ExtentMap::List(list) => {
            assert!((1..=LIST_MAX).contains(&list.len()));
            0
        }
        ExtentMap::Tree(root) => {
            let damage = |damage| panic!("{damage}");
            let summary = tree(*root, INO).check(nodes, damage, |_| {}).unwrap();
            assert!(summary.records > 0);
            summary.blocks
        }
    };
    assert_eq!(blocks, nodes.blocks.len() as u64);
    let joinable = found.windows(2).find(|pair| pair[0].joined(&pair[1]).is_some());
    assert_eq!(joinable, None);
    found
}

#[test]
fn extents_join_with_what_is_beside_them() {
    let (mut map, mut nodes) = (ExtentMap::default(), Memory::new());
    for new in [extent(0, 100, 5), extent(10, 110, 5), unwritten(15, 115, 5)] {
        assert_eq!(map.insert(&mut nodes, OWNER, new).unwrap(), 0);
    }
    assert_eq!(map.insert(&mut nodes, OWNER, extent(5, 105, 5)).unwrap(), 0);
    assert_eq!(all(&map, &nodes), [extent(0, 100, 15), unwritten(15, 115, 5)]);
    written(&mut map, &mut nodes, (15, 17));
    assert_eq!(all(&map, &nodes), [extent(0, 100, 17), unwritten(17, 117, 3)]);
    written(&mut map, &mut nodes, (18, 19));
    let middle = [unwritten(17, 117, 1), extent(18, 118, 1), unwritten(19, 119, 1)];
    assert_eq!(all(&map, &nodes)[1..], middle);
    written(&mut map, &mut nodes, (0, 100));
    assert_eq!(all(&map, &nodes), [extent(0, 100, 20)]);
    let mut grown = 0;
    let done = map.convert(&mut nodes, OWNER, (5, 7), true, 9, &mut grown).unwrap();
    let parts = [extent(0, 100, 5), unwritten(5, 105, 2), extent(7, 107, 13)];
    assert_eq!((done, all(&map, &nodes)), (7, parts.to_vec()));
}

#[test]
fn a_lookup_says_how_far_it_goes() {
    let (mut map, mut nodes) = (ExtentMap::default(), Memory::new());
    map.insert(&mut nodes, OWNER, extent(10, 100, 5)).unwrap();
    map.insert(&mut nodes, OWNER, unwritten(20, 200, 2)).unwrap();
    let at = |block| map.lookup(&nodes, INO, block).unwrap();
    assert_eq!(at(0), Mapping::Hole { blocks: 10 });
    assert_eq!(at(12), Mapping::Mapped { start: 102, blocks: 3 });
    assert_eq!(at(15), Mapping::Hole { blocks: 5 });
    assert_eq!(at(21), Mapping::Unwritten { start: 201, blocks: 1 });
    assert_eq!(at(22), Mapping::Hole { blocks: FILE_BLOCKS_MAX - 22 });
}

#[test]
fn a_long_list_becomes_a_tree_and_nothing_again() {
    let (mut map, mut nodes) = (ExtentMap::default(), Memory::new());
    let mut grown = 0;
    for at in 0..2000 {
        grown += map.insert(&mut nodes, OWNER, extent(at * 2, 100 + at * 3, 1)).unwrap();
        assert_eq!(grown > 0, at >= LIST_MAX as u64);
    }
    assert!(matches!(map, ExtentMap::Tree(_)));
    assert_eq!(grown, nodes.blocks.len() as i64);
    assert_eq!(all(&map, &nodes).len(), 2000);
    let (mut freed, mut from, mut calls) = (Vec::new(), 0, 0);
    while from < 5000 {
        let range = (from, 5000);
        from = map.remove(&mut nodes, OWNER, range, 64, &mut freed, &mut grown).unwrap();
        nodes.commit();
        calls += 1;
    }
    assert_eq!((grown, freed.len(), calls), (0, 2000, 2000 / 64 + 1));
    assert_eq!(map, ExtentMap::default());
    assert!(nodes.blocks.is_empty());
}

#[test]
fn an_extent_is_not_inserted_over_another() {
    for count in [1, 100] {
        let (mut map, mut nodes) = (ExtentMap::default(), Memory::new());
        for at in 0..count {
            map.insert(&mut nodes, OWNER, extent(at * 10, 100 + at * 7, 5)).unwrap();
        }
        let before = all(&map, &nodes);
        for wrong in [extent(4, 5000, 1), extent(0, 5000, 1), extent(2, 5000, 20)] {
            let error = map.insert(&mut nodes, OWNER, wrong).unwrap_err();
            assert_eq!(number(&error), Some(701));
        }
        assert_eq!(number(&map.insert(&mut nodes, OWNER, extent(7, 0, 1)).unwrap_err()), Some(702));
        assert_eq!(all(&map, &nodes), before);
    }
}

#[test]
fn damage_in_a_tree_is_found_when_it_is_met() {
    let records: Vec<_> = (0..30).map(|at| extent(at * 10, 100 + at * 20, 10)).collect();
    let spoil = |at: usize, wrong: Extent| {
        let mut nodes = Memory::new();
        let mut wrong_list = records.clone();
        wrong_list[at] = wrong;
        let root = grown_out(&mut nodes, INO, &wrong_list).unwrap();
        nodes.commit();
        (ExtentMap::Tree(root), nodes)
    };
    let impossible = [
        (extent(50, 1 << 32, 10), 702),
        (extent(50, u64::MAX - 3, 10), 702),
        (extent(50, 100, 0), 703),
        (extent(50, (1 << 32) - 3, 10), 702),
    ];
    for (wrong, expected) in impossible {
        let (map, nodes) = spoil(5, wrong);
        let error = map.lookup(&nodes, INO, 52).unwrap_err();
        assert_eq!(number(&error), Some(expected));
        let mut found = Vec::new();
        check(&map, &nodes, INO, |damage| found.push(damage.number()), |_| {}).unwrap();
        assert_eq!(found, [expected]);
    }
    let (map, nodes) = spoil(29, extent(FILE_BLOCKS_MAX - 1, 500, 2));
    let error = map.lookup(&nodes, INO, FILE_BLOCKS_MAX - 1).unwrap_err();
    assert_eq!(number(&error), Some(704));
    let (map, nodes) = spoil(5, extent(50, 9000, 11));
    let mut found = Vec::new();
    check(&map, &nodes, INO, |damage| found.push(damage.number()), |_| {}).unwrap();
    assert_eq!(found, [701]);
}

#[test]
fn errors_are_passed_on() {
    let (mut map, mut nodes) = (ExtentMap::default(), Memory::new());
    for at in 0..100 {
        map.insert(&mut nodes, OWNER, extent(at * 2, 100 + at * 3, 1)).unwrap();
    }
    nodes.commit();
    nodes.limit = nodes.blocks.len() as u64;
    let mut full = None;
    for at in 100..2000 {
        let copy = (map.clone(), nodes.clone());
        if let Err(error) = map.insert(&mut nodes, OWNER, extent(at * 2, 100 + at * 3, 1)) {
            assert_eq!(error, Error::Nodes(Failure::NoSpace));
            full = Some(at);
            // Like a dropped transaction.
            (map, nodes) = copy;
            break;
        }
        nodes.commit();
    }
    assert_eq!(all(&map, &nodes).len() as u64, full.unwrap());
    nodes.failing = Some(nodes.calls.get() + 1);
    let injected = Error::Nodes(Failure::Injected);
    assert_eq!(map.lookup(&nodes, INO, 0).unwrap_err(), injected);
}

#[test]
fn the_longest_extent_is_not_made_longer() {
    let (mut map, mut nodes) = (ExtentMap::default(), Memory::new());
    let long = extent(0, 1, EXTENT_BLOCKS_MAX);
    map.insert(&mut nodes, OWNER, long).unwrap();
    let next = extent(long.end(), long.place_end(), 5);
    map.insert(&mut nodes, OWNER, next).unwrap();
    assert_eq!(all(&map, &nodes), [long, next]);
}
