//! Tests of rounds and ratios.

use std::time::Duration;

use super::{Harness, Plan, Rounds};
use crate::subject::{Work, repeat};

fn plan() -> Plan {
    Plan { slice: Duration::from_millis(2), rounds: 5, share_min: 0.0 }
}

/// Creates work that takes `units` times as long as one unit.
fn spin(units: u32) -> Work {
    repeat(move || {
        for i in 0..units * 200 {
            std::hint::black_box(i);
        }
    })
}

#[test]
fn work_that_is_ten_times_cheaper_is_ten_times_faster() {
    let harness = Harness::new(1, plan()).unwrap();
    let ratio = harness.faster(spin(1), spin(10)).median();
    assert!((5.0..20.0).contains(&ratio), "{ratio}");
}

#[test]
fn disturbed_rounds_do_not_count() {
    let mut rounds = Rounds::new(Plan { share_min: 0.9, ..plan() });
    rounds.add(100.0, [1.0, 1.0], 0.5);
    for _ in 0..5 {
        assert!(!rounds.is_done());
        rounds.add(2.0, [3.0, 6.0], 0.95);
    }
    assert!(rounds.is_done());
    let ratios = rounds.finish();
    assert_eq!((ratios.median(), ratios.range()), (2.0, (2.0, 2.0)));
    assert_eq!((ratios.disturbed, ratios.share), (1, 0.95));
    assert_eq!(ratios.nanos, [3.0, 6.0]);
}

#[test]
fn a_machine_that_is_always_disturbed_ends_all_the_same() {
    let mut rounds = Rounds::new(Plan { share_min: 0.9, ..plan() });
    let mut tries = 0;
    while !rounds.is_done() {
        rounds.add(1.0, [1.0, 1.0], 0.5);
        tries += 1;
    }
    assert_eq!(tries, 35);
}

#[test]
fn both_threads_work_in_a_slice() {
    let Ok(harness) = Harness::new(2, plan()) else { return };
    let ratios = harness.scaling(vec![spin(1), spin(1)]);
    assert!((0.5..4.0).contains(&ratios.median()), "{ratios:?}");
    let ratio = harness.faster_together(vec![spin(1), spin(1)], vec![spin(10), spin(10)]).median();
    assert!((3.0..30.0).contains(&ratio), "{ratio}");
}
