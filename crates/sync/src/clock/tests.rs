use super::*;

const WINDOW: i64 = 100;

#[test]
fn ticks_are_exact_until_one_is_later_than_all_exact_readings() {
    let clock = MultigrainClock::new(WINDOW);
    let tick = |tick, now| clock.coarse(tick, || now);
    assert_eq!(tick(1_000, 1_050), 1_000);
    assert_eq!(clock.exact(|| 1_060), 1_060);
    assert_eq!(tick(1_000, 1_070), 1_070);
    // A tick that is not above the bound, though above what was read.
    assert_eq!(tick(1_100, 1_120), 1_120);
    // No reading of a tick exceeds the bound.
    assert_eq!(tick(1_000, 1_300), 1_160);
    assert_eq!(tick(1_200, 1_300), 1_200);
}

#[test]
fn exact_readings_write_once_in_a_window() {
    let clock = MultigrainClock::new(WINDOW);
    let bound = |now| {
        assert_eq!(clock.exact(|| now), now);
        clock.bound.load(Ordering::Relaxed)
    };
    assert_eq!([1_000, 1_001, 1_100, 1_101].map(bound), [1_100, 1_100, 1_100, 1_201]);
}

#[test]
fn a_clock_that_is_set_back_has_ticks_again_after_a_window() {
    for exact in [false, true] {
        let clock = MultigrainClock::new(WINDOW);
        clock.exact(|| 1_000_000);
        let read = |now: i64| {
            if exact { clock.exact(|| now) } else { clock.coarse(now - now % 10, || now) }
        };
        assert_eq!(read(5_005), 5_005);
        assert_eq!(clock.coarse(5_100, || 5_109), 5_105);
        assert_eq!(clock.coarse(5_110, || unreachable!("a tick is late enough")), 5_110);
    }
}

/// A reader that was delayed between the clock and the bound must not take the readings of others
/// for a clock that was set back.
#[test]
fn a_late_reader_leaves_the_bound() {
    let clock = MultigrainClock::new(WINDOW);
    clock.exact(|| 1_000);
    let late = || {
        assert_eq!(clock.exact(|| 9_000), 9_000);
        1_050
    };
    assert_eq!(clock.exact(late), 1_050);
    assert_eq!(clock.coarse(8_990, || 9_010), 9_010);
}

#[test]
fn an_exact_reading_in_the_order_of_the_system_is_told() {
    let clock = MultigrainClock::new(WINDOW);
    let ahead = |read: &dyn Fn() -> i64| in_system_order(read).1;
    assert!(!is_in_system_order());
    assert!(!ahead(&|| clock.coarse(1_000, || unreachable!("a tick is late enough"))));
    assert!(ahead(&|| clock.exact(|| 1_010)));
    assert!(ahead(&|| clock.coarse(1_000, || 1_020)));
    assert!(!ahead(&|| i64::from(is_in_system_order())));
    assert!(in_system_order(is_in_system_order).0 && !is_in_system_order());
}
