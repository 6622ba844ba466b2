use super::*;

const MICROSECOND: Duration = Duration::from_micros(1);

#[test]
fn pages_are_quick_once_a_cut_was() {
    let pace = Pace::new();
    assert!(pace.is_quick(0) && !pace.is_quick(1));
    pace.note(1000, 1000 * MICROSECOND);
    assert!(pace.is_quick(8000) && !pace.is_quick(8001));
}

#[test]
fn a_few_pages_tell_little() {
    let pace = Pace::new();
    pace.note(0, 64 * MICROSECOND);
    assert!(pace.is_quick(8000) && !pace.is_quick(8001));
    // An answer from afar takes a millisecond or two.
    for _ in 0..5 {
        pace.note(3, 2000 * MICROSECOND);
    }
    assert!(pace.is_quick(64) && !pace.is_quick(1000));
}

#[test]
fn a_cut_that_was_held_up_counts_twice_at_most() {
    let pace = Pace::new();
    pace.note(1000, 1000 * MICROSECOND);
    pace.note(1000, Duration::MAX);
    assert!(pace.is_quick(4000) && !pace.is_quick(4001));
    pace.note(1000, 500 * MICROSECOND);
    assert!(pace.is_quick(16_000) && !pace.is_quick(16_001));
    // A device that takes no time at all can become slow.
    pace.note(1000, Duration::ZERO);
    for _ in 0..30 {
        pace.note(1000, Duration::from_secs(1000));
    }
    assert!(!pace.is_quick(1));
}
