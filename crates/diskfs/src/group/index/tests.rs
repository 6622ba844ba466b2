use super::*;

fn index() -> Index {
    let mut index = Index { tree_total: 4, tree_max: 10, ..Index::default() };
    assert!(index.free.insert(100, 20));
    index
}

#[test]
fn what_the_trees_may_need_is_not_for_files() {
    let mut index = index();
    assert_eq!(index.available(), 14);
    assert_eq!(index.claim(100, 15, 20), None);
    assert_eq!(index.claim(100, 1, 20), Some(Run::new(100, 14)));
    assert_eq!((index.available(), index.claim(0, 1, 1)), (0, None));
    // The trees get it, from the end.
    assert_eq!(index.claim_for_trees(2), Some(Run::new(118, 2)));
    assert_eq!((index.tree_total, index.available()), (6, 0));
    assert_eq!(index.claim_for_trees(9), Some(Run::new(114, 4)));
    assert_eq!(index.claim_for_trees(1), None);
    assert_eq!((index.claim(0, 0, 0), index.claim(0, 0, 5)), (None, None));
}

#[test]
fn inodes_are_of_the_chunk_they_are_wanted_in() {
    let mut index = Index::default();
    index.add_inodes(1000, 0b110);
    index.add_inodes(2000, 0b1);
    assert_eq!(index.free_inodes, 3);
    assert_eq!(index.claim_inode(2007), Some((2000, 0)));
    assert_eq!(index.claim_inode(2007), Some((1000, 1)), "the other one is used up");
    index.add_inodes(3000, 1 << 63);
    assert_eq!(index.claim_inode(1008), Some((3000, 63)), "behind the wish first");
    assert_eq!(index.claim_inode(1008), Some((1000, 2)));
    assert_eq!((index.claim_inode(0), index.free_inodes), (None, 0));
}

#[test]
fn a_chunk_goes_if_nobody_has_claimed_of_it() {
    let mut index = Index::default();
    index.add_inodes(1000, !0b11);
    assert_eq!(index.claim_chunk(1000, 0b01), None, "bit 1 is somebody's");
    assert_eq!(index.claim_chunk(2000, 0b01), None);
    assert_eq!(index.claim_chunk(1000, 0b11), Some(!0b11));
    assert_eq!((index.free_inodes, index.claim_inode(1000)), (0, None));
    index.add_inodes(1000, !0b11);
    index.add_inodes(1000, !0b11);
    assert_eq!(index.free_inodes, 62);
}
