//! Tests of the heat of a group.

use super::*;

#[test]
fn a_group_is_hot_after_twelve_waits() {
    let heat = Heat::default();
    for _ in 0..11 {
        heat.note(true);
    }
    assert!(!heat.is_hot());
    heat.note(true);
    assert!(heat.is_hot());
}

#[test]
fn waits_that_are_rare_do_not_heat() {
    let heat = Heat::default();
    for i in 0..100_000 {
        heat.note(i % 65 == 0);
    }
    assert!(!heat.is_hot());
}

#[test]
fn a_hot_group_cools_down_in_4096_commits() {
    let heat = Heat::default();
    for _ in 0..1_000 {
        heat.note(true);
    }
    for _ in 0..4_096 {
        heat.note(false);
    }
    assert!(heat.is_hot());
    heat.note(false);
    assert!(!heat.is_hot());
}
