//! Comparison of a set of blocks with a simple list.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

const BLOCKS: u64 = 5 * PAGE / 2;

fn listed(runs: &[Range<u64>]) -> BTreeSet<u64> {
    runs.iter().flat_map(Clone::clone).collect()
}

fn are_apart(runs: &[Range<u64>]) -> bool {
    runs.windows(2).all(|pair| pair[0].end < pair[1].start)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn is_a_set(runs in prop::collection::vec((0..BLOCKS + 70, 0..2 * PAGE), 1..20)) {
        let (mut set, mut model) = (BlockSet::new(BLOCKS), BTreeSet::new());
        for (start, len) in runs {
            let run = start..start + len % if start % 3 == 0 { 2 * PAGE } else { 130 };
            let mut twice = Vec::new();
            set.insert(run.clone(), |part| twice.push(part));
            let inside: BTreeSet<_> = run.filter(|block| *block < BLOCKS).collect();
            let expected: BTreeSet<_> = model.intersection(&inside).copied().collect();
            prop_assert!(are_apart(&twice));
            prop_assert_eq!(listed(&twice), expected);
            model.extend(inside);
        }
        let mut absent = Vec::new();
        set.absent(3..BLOCKS - 5, |part| absent.push(part));
        prop_assert!(are_apart(&absent));
        let expected = (3..BLOCKS - 5).filter(|block| !model.contains(block)).collect();
        prop_assert_eq!(listed(&absent), expected);
    }
}

/// A full volume takes little memory: its pages are full or empty.
#[test]
fn whole_pages_take_no_memory() {
    let mut set = BlockSet::new(1 << 32);
    set.insert(0..1 << 32, |_| panic!("nothing was there"));
    assert!(set.pages.iter().all(|page| matches!(page, Page::Full)));
    let mut absent = 0;
    set.absent(0..1 << 32, |_| absent += 1);
    assert_eq!(absent, 0);
    let mut set = BlockSet::new(PAGE);
    for block in (0..PAGE).step_by(64) {
        set.insert(block..block + 64, |_| panic!("nothing was there"));
    }
    assert!(matches!(set.pages[0], Page::Full));
}
