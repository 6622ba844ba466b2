//! Tests of the heat of a group.

use super::*;

#[test]
fn a_group_is_hot_after_twelve_waits() {
    let heat = Heat::default();
    for _ in 0..11 {
        heat.note(Came::Waiting);
    }
    assert!(!heat.is_hot());
    heat.note(Came::Waiting);
    assert!(heat.is_hot());
}

#[test]
fn waits_that_are_rare_do_not_heat() {
    let heat = Heat::default();
    for i in 0..100_000 {
        heat.note(if i % 65 == 0 { Came::Waiting } else { Came::FromSame });
    }
    assert!(!heat.is_hot());
}

#[test]
fn a_hot_group_cools_down_in_4096_commits() {
    let heat = Heat::default();
    for _ in 0..1_000 {
        heat.note(Came::Waiting);
    }
    for _ in 0..4_096 {
        heat.note(Came::FromSame);
    }
    assert!(heat.is_hot());
    heat.note(Came::FromSame);
    assert!(!heat.is_hot());
}

/// Two threads of a directory, whose lock keeps them from meeting at that of the group, take turns;
/// a thread that frees now and then what another one has removed does not heat.
#[test]
fn commits_in_turns_heat() {
    let (turns, seldom) = (Heat::default(), Heat::default());
    for i in 0..1_000 {
        turns.note(if i % 2 == 0 { Came::FromOther } else { Came::FromSame });
        seldom.note(if i % 32 < 2 { Came::FromOther } else { Came::FromSame });
    }
    assert!(turns.is_hot() && !seldom.is_hot());
}
