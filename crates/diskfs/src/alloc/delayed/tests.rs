use super::*;

#[test]
fn a_share_of_the_log_is_set_aside_at_most() {
    let groups = DelayedGroups::default();
    groups.open(1 << 20, true);
    groups.set_aside((1 << 20) / LOG_SHARE - 1);
    assert!(groups.is_open());
    groups.set_aside(1);
    assert!(!groups.is_open());
    groups.use_up(1);
    assert!(groups.is_open());
}
