use super::*;
use crate::cpu;

const MAX: usize = 100 * PAGES;

fn keep() -> Keep {
    Keep { max: MAX, floor: FLOOR, least: 0, surplus: 0, is_short: false }
}

/// Ends windows in which nobody uses the pool, and returns what is free after each, until all that
/// decays is gone.
fn decay(keep: &mut Keep, mut idle: usize) -> Vec<usize> {
    let mut left = Vec::new();
    while keep.decays(idle) {
        assert!(left.len() < 64, "{idle} pages stay");
        keep.end_window(idle, false);
        let excess = keep.excess(idle, Kept::ByUse);
        idle -= excess;
        keep.note_returned(excess, idle);
        assert_eq!(keep.excess(idle, Kept::ByUse), 0);
        left.push(idle);
    }
    left
}

#[test]
fn unused_pages_become_half_in_each_window() {
    let above = 16 * PAGES;
    let expected = [16, 8, 4, 2, 1, 0].map(|regions| FLOOR + regions * PAGES);
    // Not in the window in which they were freed.
    assert_eq!(decay(&mut keep(), FLOOR + above), expected);
    assert_eq!(decay(&mut keep(), FLOOR + 1), [FLOOR + 1, FLOOR]);
    assert_eq!(decay(&mut keep(), FLOOR), []);
}

#[test]
fn pages_that_were_used_in_the_window_are_not_surplus() {
    let mut keep = keep();
    let most = FLOOR + 64 * PAGES;
    keep.end_window(most, false);
    for _ in 0..10 {
        // All but 10 regions above the floor are used, and freed again.
        keep.note_fewer(FLOOR + 10 * PAGES);
        keep.end_window(most, false);
        assert_eq!(keep.excess(most, Kept::ByUse), 5 * PAGES);
    }
    // Nor are those that are used before they could be given back.
    keep.note_fewer(FLOOR + PAGES);
    assert_eq!(keep.excess(most, Kept::ByUse), PAGES);
    keep.note_fewer(0);
    assert_eq!(keep.excess(most, Kept::ByUse), 0);
    keep.end_window(most, false);
    assert_eq!(keep.excess(most, Kept::ByUse), 0);
}

#[test]
fn kept_pages_beyond_the_maximum_go_back_at_once() {
    let mut keep = keep();
    assert!(keep.has_room(MAX - MAGAZINE) && !keep.has_room(MAX - MAGAZINE + 1));
    for kept in [Kept::ByUse, Kept::Max] {
        assert_eq!(keep.excess(MAX, kept), 0);
        assert_eq!(keep.excess(MAX + 3, kept), 3);
    }
    assert_eq!(keep.excess(MAX, Kept::Floor), MAX - FLOOR);
    assert_eq!(keep.excess(MAX, Kept::Nothing), MAX);
    keep.set_max(10);
    assert_eq!(keep.excess(25, Kept::Floor), 15);
    assert!(keep.decays(11) && !keep.decays(10));
}

#[test]
fn the_maximum_by_default_has_room_for_a_file_on_each_cpu() {
    let max = Keep::new(1, cpu::slots() as usize).max();
    assert!(max >= FLOOR);
    assert!(max <= FLOOR.max(cpu::possible() as usize * EACH_CPU));
    assert!(max <= FLOOR.max((machine::memory_bytes() / 16) as usize / PAGE_SIZE));
}

#[test]
fn everything_goes_back_while_the_system_is_short_of_memory() {
    let mut keep = keep();
    keep.end_window(FLOOR, true);
    assert_eq!(keep.excess(FLOOR, Kept::ByUse), FLOOR);
    keep.note_returned(PAGES, FLOOR - PAGES);
    assert_eq!(keep.excess(FLOOR - PAGES, Kept::ByUse), FLOOR - PAGES);
    assert!(keep.decays(1));
    keep.end_window(1, false);
    assert_eq!((keep.excess(1, Kept::ByUse), keep.decays(1)), (0, false));
}
