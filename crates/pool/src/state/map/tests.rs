use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use vfscale_block::{Device, MemoryDevice};
use vfscale_sync::percpu::Budget;
use vfscale_sync::random::{Random, seed};

use super::*;
use crate::disk::device::offset;
use crate::disk::layout::Layout;

fn disk() -> Disk {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(4096 * 4096).unwrap());
    Disk::new(device, [1; 16], Layout::whole(4096))
}

#[test]
fn a_map_is_read_as_it_was_written() {
    let (disk, budget) = (disk(), Budget::new(u64::MAX, 1));
    let mut random = Random::new(seed());
    let (mut model, mut root, mut next) = (HashMap::new(), Entry::NONE, 40);
    for generation in 1..12 {
        let map = Map::open(&disk, 0, root, 3).unwrap();
        for (block, entry) in &model {
            assert_eq!(map.find(*block).unwrap(), *entry);
        }
        for _ in 0..20 {
            let block = random.below(span(3));
            let entry = match random.below(4) {
                0 => Entry::NONE,
                _ => Entry::new(40 + random.below(900), 1),
            };
            let path = map.path(block).unwrap();
            path.make_dirty(&Purse::new(&budget, 0), &mut |_| ()).unwrap();
            path.leaf().replace(block, entry);
            model.insert(block, entry);
        }
        let mut place = || {
            next += 1;
            if is_skipped(next) {
                next += 1;
            }
            Ok(Entry::new(next, 1))
        };
        let mut written = Written::default();
        root = map.write(generation, &mut place, &mut written).unwrap();
        disk.write(&written.blocks).unwrap();
    }
}

/// Returns the map of `model`, written and opened again; `next` is the last place in use.
fn written(disk: &Disk, root: Entry, levels: u8, model: &[(u64, Entry)], next: &mut u64) -> Entry {
    let (map, budget) = (Map::open(disk, 0, root, levels).unwrap(), Budget::new(u64::MAX, 1));
    for (block, entry) in model {
        let path = map.path(*block).unwrap();
        path.make_dirty(&Purse::new(&budget, 0), &mut |_| ()).unwrap();
        path.leaf().replace(*block, *entry);
    }
    let mut place = || {
        *next += 1;
        *next += u64::from(is_skipped(*next));
        Ok(Entry::new(*next, 1))
    };
    let mut written = Written::default();
    let root = map.write(1, &mut place, &mut written).unwrap();
    disk.write(&written.blocks).unwrap();
    root
}

/// Also if one map has grown, or has nothing; and no other nodes are read than lead there.
#[test]
fn differing_blocks_are_those_with_other_entries() {
    let mut random = Random::new(seed());
    for round in 0..60 {
        let (disk, mut next, blocks) = (disk(), 40, span(2));
        let mut some = |count| -> Vec<(u64, Entry)> {
            let one = |at: u64| match at {
                0 => Entry::NONE,
                at => Entry::new(1100 + at, 1),
            };
            (0..count).map(|_| (random.below(blocks), one(random.below(900)))).collect()
        };
        let (base, changes) = (some(200), some(round % 5));
        let root = written(&disk, Entry::NONE, 2, &base, &mut next);
        let grown = 2 + (round % 3 / 2) as u8;
        let above = match grown {
            2 => root,
            _ => {
                next += 1;
                let home = Entry::new(next, 1);
                disk.write(&[(next, Map::above(&disk, root, 2, home, 1))]).unwrap();
                home
            }
        };
        let changed = written(&disk, above, grown, &changes, &mut next);
        let (one, other) = [(root, 2), (changed, grown)]
            .map(|(root, levels)| Map::open(&disk, 0, root, levels).unwrap())
            .into();
        let (found, back) = (one.differing(&other).unwrap(), other.differing(&one).unwrap());
        let leaves = one.root.kids().count();
        let differs = |block: &u64| one.find(*block).unwrap() != other.find(*block).unwrap();
        let expected: Vec<u64> = (0..blocks).filter(differs).collect();
        assert_eq!(found.into_iter().flatten().collect::<Vec<_>>(), expected);
        assert_eq!(back.into_iter().flatten().collect::<Vec<_>>(), expected);
        let changed: HashSet<u64> = changes.iter().map(|(block, _)| block / span(1)).collect();
        assert!(leaves <= changed.len(), "{leaves} leaves were read for {changes:?}");
    }
}

fn is_skipped(place: u64) -> bool {
    Layout::whole(4096).is_fixed(place)
}

#[test]
fn a_node_gives_up_its_place_once() {
    let (disk, budget) = (disk(), Budget::new(10, 1));
    let map = Map::open(&disk, 0, Entry::NONE, 2).unwrap();
    let path = map.path(7).unwrap();
    let mut count = 0;
    let mut none = |home: Entry| count += usize::from(home.is_none());
    path.make_dirty(&Purse::new(&budget, 0), &mut none).unwrap();
    path.make_dirty(&Purse::new(&budget, 0), &mut |_| panic!("it is dirty")).unwrap();
    assert_eq!(count, 2);
    assert_eq!(budget.used(), 2);
    path.leaf().replace(7, Entry::new(50, 1));
    let (mut next, mut written) = (100, Written::default());
    let mut place = || {
        next += 1;
        Ok(Entry::new(next, 1))
    };
    map.write(1, &mut place, &mut written).unwrap();
    let mut homes = Vec::new();
    path.make_dirty(&Purse::new(&budget, 0), &mut |home| homes.push(home.place())).unwrap();
    path.make_dirty(&Purse::new(&budget, 0), &mut |home| homes.push(home.place())).unwrap();
    homes.sort_unstable();
    assert_eq!(homes, [101, 102]);
}

#[test]
fn an_empty_node_takes_no_place() {
    let (disk, budget) = (disk(), Budget::new(10, 1));
    let map = Map::open(&disk, 0, Entry::NONE, 2).unwrap();
    map.path(7).unwrap().make_dirty(&Purse::new(&budget, 0), &mut |_| ()).unwrap();
    let mut written = Written::default();
    let mut place = || panic!("no place is needed");
    let root = map.write(1, &mut place, &mut written).unwrap();
    assert_eq!((root, written.spared), (Entry::NONE, 2));
}

/// Bytes that have a right checksum and make no sense.
#[test]
fn a_hostile_node_is_an_error() {
    let disk = disk();
    let entry = Entry::new(50, 3);
    let put = |change: &dyn Fn(&mut NodeBlock)| {
        let mut block: NodeBlock = format::zeroed();
        block.header = format::header(disk.expect(NODE, 50), 1, 0, 504);
        block.header.extra = (3_u64 << 32).into();
        change(&mut block);
        disk.device.write_at(offset(50), &*format::seal(&block)).unwrap();
        read_node(&disk, 0, entry, 0, 504).map(drop)
    };
    put(&|_| ()).unwrap();
    put(&|block| block.entries[3] = Entry::new(60, 3).0.into()).unwrap();
    put(&|block| block.header.owner = 1.into()).unwrap_err();
    put(&|block| block.header.number = 0.into()).unwrap_err();
    put(&|block| block.header.extra = (3_u64 << 32 | 1).into()).unwrap_err();
    put(&|block| block.header.extra = (2_u64 << 32).into()).unwrap_err();
    put(&|block| block.entries[3] = Entry::new(60, 4).0.into()).unwrap_err();
    put(&|block| block.entries[503] = Entry::new(4096, 1).0.into()).unwrap_err();
    put(&|block| block.entries[0] = Entry::new(9, 1).0.into()).unwrap_err();
    put(&|block| block.entries[0] = (Entry::new(60, 3).0 | 1 << 63).into()).unwrap_err();
}

/// An open branch visits few nodes, so it must not have room for all others.
#[test]
fn a_node_has_room_for_few_more_nodes_than_were_visited() {
    let disk = disk();
    let map = Map::open(&disk, 0, Entry::NONE, 2).unwrap();
    let groups = || map.root.kids.iter().filter(|kids| kids.get().is_some()).count();
    assert!(size_of_val(&*map.root.kids) <= 512);
    assert_eq!((groups(), map.root.kids().count()), (0, 0));
    for (visited, groups_now) in [(0, 1), (KIDS - 1, 1), (KIDS, 2), (FANOUT - 1, 3)] {
        map.path(visited as u64 * span(1)).unwrap();
        assert_eq!(groups(), groups_now);
    }
    let kids: Vec<_> = map.root.kids().map(|(index, kid)| (index, kid.first)).collect();
    let expected = [0, KIDS - 1, KIDS, FANOUT - 1].map(|index| (index, index as u64 * span(1)));
    assert_eq!(kids, expected);
}
