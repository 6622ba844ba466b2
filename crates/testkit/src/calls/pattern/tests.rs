//! Tests of the pattern.

use super::*;

#[test]
fn a_part_of_a_pattern_is_the_pattern_of_the_part() {
    let whole = bytes(7, 0, 100);
    for start in 0..50_u64 {
        assert_eq!(bytes(7, start, 50), whole[start as usize..][..50]);
    }
    assert_ne!(bytes(8, 0, 100), whole);
}

#[test]
fn origins_are_explained() {
    assert_eq!(explain(&[0; 512]), "zeros");
    assert_eq!(explain(&[vfscale_block::DISCARDED; 16]), "discarded bytes");
    assert_eq!(explain(&bytes(3, 512, 512)), "bytes of write 3 at 512");
    let mut late = vec![0; 512];
    fill(5, 512 + 496, &mut late[496..]);
    assert_eq!(explain(&late), "bytes of write 5 at 1008");
    assert!(explain(b"something else..").starts_with("strange"));
}
