use super::Inodes;

#[test]
fn inodes_of_both_sides_pair_up() {
    let mut inodes = Inodes::default();
    assert!(inodes.pair((1, 5), (70, 8)));
    assert!(inodes.pair((1, 6), (70, 9)));
    assert!(inodes.pair((1, 5), (70, 8)));
    assert!(!inodes.pair((1, 5), (70, 9)));
    assert!(!inodes.pair((1, 7), (70, 8)));
}

#[test]
fn a_device_that_nobody_mounted_is_a_difference() {
    let mut inodes = Inodes::default();
    assert!(inodes.pair((1, 5), (70, 8)));
    assert!(!inodes.pair((2, 5), (71, 8)));
    assert!(!inodes.pair((1, 5), (71, 8)));
    assert!(!inodes.pair((2, 5), (70, 8)));
    inodes.mounted();
    assert!(inodes.pair((2, 5), (71, 8)));
    assert!(!inodes.pair((3, 5), (72, 8)));
}

/// After a mount, a device number may refer to another file system.
#[test]
fn the_number_of_a_device_is_used_again() {
    let mut inodes = Inodes::default();
    inodes.mounted();
    assert!(inodes.pair((1, 1), (70, 1)));
    assert!(inodes.pair((2, 5), (71, 8)));
    assert!(inodes.pair((2, 6), (71, 9)));
    inodes.mounted();
    // The device number is equal, the inodes differ.
    assert!(inodes.pair((2, 5), (72, 3)));
    assert!(inodes.pair((2, 6), (72, 4)));
    assert!(!inodes.pair((2, 6), (72, 3)));
    // Its old inodes do not reappear, and the root is unchanged.
    assert!(!inodes.pair((2, 5), (71, 8)));
    assert!(inodes.pair((1, 1), (70, 1)));
    assert!(!inodes.pair((1, 1), (70, 2)));
}

/// On a disk, a new file may have the number of a freed one, which then must not reappear.
#[test]
fn the_number_of_an_inode_is_used_again() {
    let mut inodes = Inodes { reuses_inode_numbers: true, ..Inodes::default() };
    assert!(inodes.pair((1, 5), (70, 8)));
    assert!(inodes.pair((1, 6), (70, 8)));
    assert!(inodes.pair((1, 6), (70, 8)));
    assert!(!inodes.pair((1, 5), (70, 8)));
    // A file that was seen does not become another one.
    assert!(!inodes.pair((1, 6), (70, 9)));
}
