use super::*;

#[test]
fn a_group_is_as_many_as_met_the_last_time() {
    let mut group = GroupCommit::default();
    let (mut one, mut other) = (None, None);
    group.count(&mut one);
    assert!(group.is_complete(), "no caller forced before");
    group.count(&mut other);
    // The first is served; the second arrived too late, and counts again.
    group.end_round();
    assert!(!group.is_complete());
    group.count(&mut other);
    group.count(&mut other);
    assert!(!group.is_complete(), "one caller counts once");
    let mut again = None;
    group.count(&mut again);
    assert!(group.is_complete());
    // Both are served, and only one of them forces again.
    group.end_round();
    group.count(&mut None);
    assert!(!group.is_complete());
    group.end_round();
    group.count(&mut None);
    assert!(group.is_complete(), "a single caller does not wait again");
}
