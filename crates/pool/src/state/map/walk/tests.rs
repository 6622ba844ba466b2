use std::sync::Arc;

use vfscale_block::{Device, MemoryDevice};
use vfscale_sync::percpu::Budget;
use vfscale_sync::random::{Random, seed};

use super::*;
use crate::disk::layout::Layout;
use crate::space::bitmaps::Purse;
use crate::state::map::{Map, Written};

/// Writes a map with the changes of another one, and returns it.
fn write(disk: &Disk, from: Tree, levels: u8, entries: &[(u64, Entry)], next: &mut u64) -> Tree {
    let budget = Budget::new(u64::MAX, 1);
    let map = Map::open(disk, 0, from.root, levels).unwrap();
    for (block, entry) in entries {
        let path = map.path(*block).unwrap();
        path.make_dirty(&Purse::new(&budget, 0), &mut |_| ()).unwrap();
        path.leaf().replace(*block, *entry);
    }
    let layout = disk.layout();
    let mut place = || {
        *next += 1;
        while !layout.has(*next) {
            *next += 1;
        }
        Ok(Entry::new(*next, 1))
    };
    let mut written = Written::default();
    let root = map.write(1, &mut place, &mut written).unwrap();
    disk.write(&written.blocks).unwrap();
    Tree { root, levels }
}

/// The changes are those that a comparison of all blocks finds, of maps of any heights.
#[test]
fn changes_are_those_of_all_blocks() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(60_000 * 4096).unwrap());
    let disk = Disk::new(device, [1; 16], Layout::whole(60_000));
    let (mut random, mut next) = (Random::new(seed()), 2000);
    let blocks = span(2) + 700;
    for _ in 0..30 {
        let heights = [2, 2 + random.below(2) as u8];
        let entry = |random: &mut Random| match random.below(4) {
            0 => Entry::NONE,
            _ => Entry::new(1000 + random.below(20), 1),
        };
        let end = |levels: u8| if levels == 2 { span(2) } else { blocks };
        let mut some = |levels: u8| -> Vec<(u64, Entry)> {
            let near = random.below(end(levels) - 20);
            let far = random.below(end(levels));
            let near = (0..15).map(|at| (near + at, entry(&mut random))).collect::<Vec<_>>();
            near.into_iter().chain([(far, entry(&mut random))]).collect()
        };
        let (first, second) = (some(heights[0]), some(heights[1]));
        let base = write(&disk, Tree::EMPTY, heights[0], &first, &mut next);
        let from = if heights[1] == 2 { base } else { Tree::EMPTY };
        let new = write(&disk, from, heights[1], &second, &mut next);
        for [base, new] in [[base, new], [Tree::EMPTY, new], [new, base], [base, base]] {
            let [old, now] =
                [base, new].map(|tree| Map::open(&disk, 0, tree.root, tree.levels.max(1)).unwrap());
            let find = |map: &Map, tree: Tree, block| match block < span(tree.levels.max(1)) {
                true => map.find(block).unwrap(),
                false => Entry::NONE,
            };
            let mut told = std::collections::BTreeMap::new();
            let mut last = 0;
            changes(&disk, base, new, &mut |range, place| {
                assert!(range.start >= last && !range.is_empty());
                last = range.end;
                for (block, at) in range.zip(0..).take_while(|(block, _)| *block < blocks) {
                    told.insert(block, place.map(|place| place + at));
                }
                Ok(())
            })
            .unwrap();
            for block in 0..blocks {
                let (was, is) = (find(&old, base, block), find(&now, new, block));
                match told.get(&block) {
                    Some(place) => assert_eq!(*place, (!is.is_none()).then(|| is.place())),
                    None => assert_eq!(was, is, "block {block}"),
                }
            }
        }
    }
}
