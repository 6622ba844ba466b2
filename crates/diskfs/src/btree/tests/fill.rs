//! Fill of blocks, by the order of insertions and removals.

use super::*;

const COUNT: u64 = 60_000;

fn filled(keys: impl IntoIterator<Item = u64>) -> (Memory, Tree<Large>, Summary) {
    let mut nodes = Memory::new();
    let tree = create::<Large>(&mut nodes);
    for key in keys {
        assert!(tree.insert(&mut nodes, double(key), 1.into()).unwrap());
    }
    nodes.commit();
    let summary = sound(&tree, &nodes);
    (nodes, tree, summary)
}

fn percent(summary: Summary) -> u64 {
    summary.records * 100 / summary.room
}

fn distinct() -> impl Iterator<Item = u64> {
    let mut seen = BTreeSet::new();
    scattered(COUNT).map(|key| key >> 24).filter(move |key| seen.insert(*key))
}

#[test]
fn keys_in_order_fill_blocks_wholly() {
    let (_, _, summary) = filled(0..COUNT);
    assert_eq!((summary.records, summary.levels), (COUNT, 3));
    assert_eq!(percent(summary), 99);
    let (_, _, summary) = filled((0..COUNT).rev());
    assert_eq!(percent(summary), 99);
}

#[test]
fn keys_in_no_order_fill_blocks_by_two_thirds() {
    let (_, _, summary) = filled(distinct());
    let percent = percent(summary);
    assert!((63..=75).contains(&percent), "{percent} percent");
}

#[test]
fn blocks_that_get_empty_are_freed() {
    let (mut nodes, tree, before) = filled(distinct());
    for (index, key) in distinct().enumerate() {
        if index % 10 != 0 {
            assert_eq!(tree.remove(&mut nodes, double(key)).unwrap(), Some(1.into()));
        }
    }
    nodes.commit();
    let after = sound(&tree, &nodes);
    assert!(percent(after) >= 33, "{} percent", percent(after));
    assert!(after.blocks * 4 < before.blocks);
    for key in distinct().step_by(10) {
        assert_eq!(tree.remove(&mut nodes, double(key)).unwrap(), Some(1.into()));
    }
    nodes.commit();
    let expected = Summary { levels: 1, blocks: 1, leaves: 1, records: 0, room: 251 };
    assert_eq!(sound(&tree, &nodes), expected);
}

#[test]
fn removing_in_order_from_either_end_leaves_one_block() {
    for is_backward in [false, true] {
        let (mut nodes, tree, _) = filled(0..COUNT / 4);
        for key in 0..COUNT / 4 {
            let key = if is_backward { COUNT / 4 - 1 - key } else { key };
            assert_eq!(tree.remove(&mut nodes, double(key)).unwrap(), Some(1.into()));
            if key % 1000 == 0 {
                nodes.commit();
                sound(&tree, &nodes);
            }
        }
        nodes.commit();
        assert_eq!(sound(&tree, &nodes).blocks, 1);
    }
}

#[test]
fn a_queue_does_not_grow() {
    let (mut nodes, tree, before) = filled(0..COUNT / 10);
    for key in 0..COUNT / 2 {
        assert!(tree.insert(&mut nodes, double(key + COUNT / 10), 1.into()).unwrap());
        assert_eq!(tree.remove(&mut nodes, double(key)).unwrap(), Some(1.into()));
    }
    nodes.commit();
    assert!(sound(&tree, &nodes).blocks <= before.blocks + 3);
}
