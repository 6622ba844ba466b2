use super::{MountSharing, PeerGroups, Receivers};

fn receivers(mounts: &[u64], is_shared: bool, master: usize) -> Receivers {
    Receivers { mounts: mounts.to_vec(), is_shared, master }
}

/// Mounts 1 and 2 are peers; 3 is their slave; 4 and 5 are peers in a slave group, and 6 is a slave
/// of that.
fn tree() -> (PeerGroups, u64, u64) {
    let mut groups = PeerGroups::default();
    let first = groups.make_shared(1);
    [2, 3, 4].into_iter().for_each(|copy| groups.add_copy(copy, 1));
    [3, 4].into_iter().for_each(|slave| groups.make_slave(slave));
    let second = groups.make_shared(4);
    [5, 6].into_iter().for_each(|copy| groups.add_copy(copy, 4));
    groups.make_slave(6);
    (groups, first, second)
}

#[test]
fn peers_come_first_and_masters_before_slaves() {
    let (groups, first, second) = tree();
    let expected = [
        receivers(&[2], true, 0),
        receivers(&[3], false, 0),
        receivers(&[4, 5], true, 0),
        receivers(&[6], false, 2),
    ];
    assert_eq!(groups.receivers(1), expected);
    assert_eq!(groups.receivers(4), [receivers(&[5], true, 0), receivers(&[6], false, 0)]);
    assert_eq!(groups.receivers(3), [], "a slave propagates nothing to its master");
    assert_eq!(
        (groups.master(3), groups.master(4), groups.master(6)),
        (Some(first), Some(first), Some(second))
    );
    assert_eq!(groups.sharing(4), MountSharing { group: Some(second), ..MountSharing::default() });
}

/// When the last member of a group leaves, its slaves become slaves of its master; without a master
/// they become private.
#[test]
fn slaves_of_a_group_that_ends() {
    let (mut groups, first, second) = tree();
    groups.make_private(4, false);
    assert_eq!(groups.master(6), Some(second), "its other member remains");
    assert_eq!(groups.sharing(4), MountSharing::default());
    assert_eq!(groups.leave(5), Some(first));
    assert_eq!(groups.master(6), Some(first));
    assert_eq!(groups.receivers(1)[1..], [receivers(&[3], false, 0), receivers(&[6], false, 0)]);
    groups.leave(1);
    groups.leave(2);
    assert_eq!((groups.master(3), groups.master(6)), (None, None));
    assert!(groups.of.is_empty() && groups.groups.is_empty());
}

#[test]
fn a_lone_shared_mount_that_becomes_a_slave_is_private() {
    let mut groups = PeerGroups::default();
    groups.make_shared(1);
    groups.make_slave(1);
    assert_eq!(groups.sharing(1), MountSharing::default());
    // With a master above, the mount becomes the slave of that master.
    let (mut groups, first, _) = tree();
    groups.leave(5);
    groups.make_slave(4);
    assert_eq!(groups.sharing(4), MountSharing { master: Some(first), ..MountSharing::default() });
    assert_eq!(groups.master(6), Some(first));
}

#[test]
fn numbers_of_groups_are_used_again() {
    let mut groups = PeerGroups::default();
    assert_eq!([1, 2, 3].map(|mount| groups.make_shared(mount)), [1, 2, 3]);
    assert_eq!(groups.make_shared(2), 2, "it already has a group");
    groups.make_private(2, true);
    assert!(groups.sharing(2).unbindable);
    assert_eq!(groups.make_shared(9), 2);
    assert_eq!(groups.make_shared(2), 4);
    assert!(!groups.sharing(2).unbindable);
    groups.make_slave(9);
    groups.make_private(7, true);
    groups.make_slave(7);
    assert!(groups.sharing(7).unbindable, "a mount that is not shared does not change");
}
