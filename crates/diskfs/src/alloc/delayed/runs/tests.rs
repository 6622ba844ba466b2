use super::*;

fn run(start: u64, end: u64) -> BlockRange {
    BlockRange::new(start, (end - start) as u32)
}

#[test]
fn what_is_claimed_and_freed_does_not_enter_the_tree() {
    let mut runs = DelayedRuns::default();
    [run(10, 20), run(20, 25), run(50, 51)].into_iter().for_each(|claim| runs.claim(claim));
    runs.free(run(15, 30));
    assert!(runs.has_freed(run(15, 16)) && runs.has_freed(run(29, 40)));
    assert!(!runs.has_freed(run(10, 15)) && !runs.has_freed(run(30, 40)));
    assert!(runs.has_claimed(run(9, 11)) && runs.has_claimed(run(24, 25)));
    assert!(!runs.has_claimed(run(25, 50)));
    let all = runs.with(vec![run(30, 35)], vec![run(12, 14)], vec![run(40, 41), run(50, 51)]);
    let RunsToWrite { claims, frees, destroyed, gone } = all.unwrap();
    assert_eq!(claims, [run(10, 12), run(14, 15), run(30, 35)]);
    assert_eq!(frees, [run(25, 30)]);
    assert_eq!(destroyed, [run(40, 41)]);
    assert_eq!(gone, [run(12, 14), run(15, 25), run(50, 51)]);
    // Nothing of that was noted.
    let noted = [vec![run(10, 15), run(50, 51)], vec![run(25, 30)], vec![run(15, 25)]];
    assert_eq!(runs.all(), noted);
    assert_eq!(runs.with(vec![], vec![run(26, 27)], vec![]).unwrap_err(), run(26, 27));
    assert_eq!(runs.forget_frees(), 5);
    assert!(!runs.has_freed(run(25, 30)) && !runs.is_empty());
}

#[test]
fn runs_that_touch_are_written_as_one() {
    let mut runs = DelayedRuns::default();
    (0..9).for_each(|at| runs.claim(BlockRange::one(100 - at)));
    let all = runs.with(vec![BlockRange::one(101)], vec![], vec![]).unwrap();
    assert_eq!(all.claims, [run(92, 102)]);
}
