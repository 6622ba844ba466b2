use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn of(runs: &[(u64, u64)]) -> FreeExtents {
    let mut free = FreeExtents::default();
    runs.iter().for_each(|(start, blocks)| assert!(free.insert(*start, *blocks)));
    free
}

fn runs(free: &FreeExtents) -> Vec<(u64, u64)> {
    free.runs().collect()
}

#[test]
fn runs_that_touch_are_one() {
    let mut free = of(&[(10, 5), (20, 5)]);
    assert!(free.insert(15, 5));
    assert_eq!(runs(&free), [(10, 15)]);
    for (start, blocks) in [(10, 1), (5, 6), (24, 3), (9, 20), (24, 1)] {
        assert!(!free.insert(start, blocks), "{start} {blocks}");
    }
    assert!(free.insert(8, 2) && free.insert(25, 1));
    assert_eq!(runs(&free), [(8, 18)]);
    assert!(!free.remove(8, 19) && !free.remove(7, 2) && !free.remove(26, 1));
    assert!(free.remove(10, 2));
    assert_eq!((runs(&free), free.blocks()), (vec![(8, 2), (12, 14)], 16));
}

#[test]
fn a_search_goes_on_where_an_extent_ends() {
    let free = of(&[(10, 90), (200, 50), (300, 10), (400, 1000)]);
    assert_eq!(free.find(20, 1, 30), Some(BlockRange::new(20, 30)));
    assert_eq!(free.find(95, 1, 30), Some(BlockRange::new(95, 5)), "the rest of the run");
    assert_eq!(free.find(95, 6, 30), Some(BlockRange::new(10, 30)), "not far away");
    assert_eq!(free.find(150, 1, 30), Some(BlockRange::new(200, 30)), "not far away");
    assert_eq!(free.find(150, 1, 60), Some(BlockRange::new(10, 60)));
    assert_eq!(free.find(2000, 1, 60), Some(BlockRange::new(400, 60)));
    assert_eq!(free.find(0, 1, 2000), Some(BlockRange::new(400, 1000)), "the longest there is");
    assert_eq!(free.find(0, 1001, 2000), None);
    assert_eq!(of(&[]).find(0, 1, 1), None);
}

#[test]
fn far_away_the_best_fit_counts() {
    // More short runs around `near` than are examined one by one.
    let mut free = FreeExtents::default();
    for at in 0..100 {
        assert!(free.insert(1000 + 3 * at, 1));
    }
    assert!(free.insert(10, 70) && free.insert(100, 64) && free.insert(5000, 500));
    assert_eq!(free.find(1151, 1, 64), Some(BlockRange::new(100, 64)));
    assert_eq!(free.find(1151, 1, 65), Some(BlockRange::new(10, 65)));
    assert_eq!(free.find(1151, 1, 71), Some(BlockRange::new(5000, 71)));
}

#[test]
fn places_for_chunks_are_aligned() {
    let find = |runs: &[(u64, u64)], near| of(runs).find_aligned(near, 8).map(|run| run.start);
    assert_eq!(find(&[(9, 14)], 0), None);
    assert_eq!(find(&[(9, 15)], 0), Some(16));
    assert_eq!(find(&[(9, 15)], 17), Some(16));
    assert_eq!(find(&[(8, 100)], 50), Some(56), "behind the wish");
    assert_eq!(find(&[(8, 100)], 105), Some(8));
    assert_eq!(find(&[(8, 8), (200, 8), (300, 50)], 100), Some(200));
    let mut free = FreeExtents::default();
    (0..100).for_each(|at| assert!(free.insert(1001 + 16 * at, 14)));
    assert_eq!(free.find_aligned(1800, 8), None);
    assert!(free.insert(16, 8));
    assert_eq!(free.find_aligned(1800, 8), Some(BlockRange::new(16, 8)), "the only one");
    assert!(free.insert(9001, 15));
    assert_eq!(
        free.find_aligned(1800, 8),
        Some(BlockRange::new(9008, 8)),
        "one that is sure to fit"
    );
    assert_eq!(free.find_aligned(u64::MAX, 8), Some(BlockRange::new(9008, 8)));
}

#[derive(Clone, Debug)]
enum Call {
    Insert(u64, u64),
    Remove(u64, u64),
    Find(u64, u64, u64),
}

fn call() -> impl Strategy<Value = Call> {
    prop_oneof![
        (0..200u64, 1..20u64).prop_map(|(start, blocks)| Call::Insert(start, blocks)),
        (0..200u64, 1..20u64).prop_map(|(start, blocks)| Call::Remove(start, blocks)),
        (0..220u64, 1..8u64, 0..30u64).prop_map(|(near, min, more)| Call::Find(
            near,
            min,
            min + more
        )),
    ]
}

proptest! {
    #[test]
    fn agrees_with_a_set_of_blocks(calls in prop::collection::vec(call(), 1..200)) {
        let (mut free, mut model) = (FreeExtents::default(), BTreeSet::new());
        for call in calls {
            match call {
                Call::Insert(start, blocks) => {
                    let fits = !(start..start + blocks).any(|block| model.contains(&block));
                    prop_assert_eq!(free.insert(start, blocks), fits);
                    if fits {
                        model.extend(start..start + blocks);
                    }
                }
                Call::Remove(start, blocks) => {
                    let is_there = (start..start + blocks).all(|block| model.contains(&block));
                    prop_assert_eq!(free.remove(start, blocks), is_there);
                    if is_there {
                        model.retain(|block| !(start..start + blocks).contains(block));
                    }
                }
                Call::Find(near, min, max) => {
                    let longest = free.longest().map_or(0, |(_, blocks)| blocks);
                    match free.find(near, min, max) {
                        Some(run) => {
                            prop_assert!((min..=max).contains(&run.len()));
                            prop_assert!(run.range().all(|block| model.contains(&block)));
                        }
                        None => prop_assert!(longest < min),
                    }
                }
            }
            prop_assert_eq!(free.blocks(), model.len() as u64);
            let shown: Vec<_> = free.runs().flat_map(|(at, len)| at..at + len).collect();
            prop_assert_eq!(shown, model.iter().copied().collect::<Vec<_>>());
            let ends: Vec<_> = free.runs().map(|(at, len)| (at, at + len)).collect();
            prop_assert!(ends.windows(2).all(|pair| pair[0].1 < pair[1].0));
        }
    }
}
