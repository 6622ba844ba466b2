use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

#[test]
fn runs_that_touch_are_taken_out_as_one() {
    let mut pending = Pending::default();
    for (start, blocks) in [(10, 5), (15, 5), (30, 2)] {
        pending.add(BlockRange::new(start, blocks));
    }
    pending.remove(BlockRange::new(12, 6));
    assert_eq!(pending.runs().collect::<Vec<_>>(), [(10, 2), (18, 2), (30, 2)]);
    pending.remove(BlockRange::new(0, 100));
    assert_eq!(pending.runs().count(), 0);
}

proptest! {
    #[test]
    fn agrees_with_a_set_of_blocks(
        calls in prop::collection::vec((any::<bool>(), 0..200u64, 1..20u32), 1..100),
    ) {
        let (mut pending, mut model) = (Pending::default(), BTreeSet::new());
        for (adds, start, blocks) in calls {
            let run = BlockRange::new(start, blocks);
            let is_there = run.range().any(|block| model.contains(&block));
            prop_assert_eq!(pending.has_of(run), is_there);
            let mut rest = Vec::new();
            pending.without(run.start, run.end(), |from, to| rest.extend(from..to));
            let expected: Vec<_> = run.range().filter(|block| !model.contains(block)).collect();
            prop_assert_eq!(rest, expected);
            if !adds {
                pending.remove(run);
                model.retain(|block| !run.range().contains(block));
            } else if !is_there {
                pending.add(run);
                model.extend(run.range());
            }
            let has: BTreeSet<_> = pending.runs().flat_map(|(at, len)| at..at + len).collect();
            prop_assert_eq!(&has, &model);
        }
    }
}
