use proptest::prelude::*;

use super::*;

const MIB: u64 = 256;
const GIB: u64 = 1024 * MIB;
const TIB: u64 = 1024 * GIB;

#[test]
fn sizes_of_groups_are_those_of_the_table() {
    let of = |blocks| {
        let geometry = Geometry::for_blocks(blocks).unwrap();
        (geometry.group_blocks(), geometry.groups())
    };
    assert_eq!(of(16 * MIB), (4 * MIB, 4));
    assert_eq!(of(128 * MIB), (4 * MIB, 32));
    assert_eq!(of(128 * MIB + 256), (8 * MIB, 17));
    assert_eq!(of(10 * GIB), (512 * MIB, 20));
    assert_eq!(of(TIB), (32 * GIB, 32));
    assert_eq!(of(8 * TIB), (256 * GIB, 32));
    assert_eq!(of(16 * TIB), (256 * GIB, 64));
}

#[test]
fn sizes_that_no_volume_has() {
    let (min, max) = (VOLUME_BLOCKS_MIN, VOLUME_BLOCKS_MAX);
    assert_eq!(Geometry::for_blocks(min - 1), Err(SizeError::TooSmall { blocks: min - 1 }));
    assert_eq!(Geometry::for_blocks(max + 1), Err(SizeError::TooLarge { blocks: max + 1 }));
    assert_eq!(Geometry::for_blocks(0), Err(SizeError::TooSmall { blocks: 0 }));
    assert!(matches!(Geometry::for_blocks(u64::MAX), Err(SizeError::TooLarge { .. })));
    for log2 in [0, 9, 11, 12, 27, 63, 64, 255] {
        assert!(matches!(Geometry::new(min, log2), Err(SizeError::Groups { .. })), "{log2}");
    }
}

#[test]
fn a_volume_grows_by_groups() {
    let geometry = Geometry::for_blocks(16 * MIB).unwrap();
    let grown = geometry.grown(16 * TIB).unwrap();
    assert_eq!((grown.group_blocks(), grown.groups()), (4 * MIB, 4 << 20));
    assert_eq!(geometry.grown(16 * MIB + 255), Ok(geometry), "too little for one more");
    assert_eq!(geometry.grown(16 * MIB + 256).map(Geometry::groups), Ok(5));
    assert!(matches!(grown.grown(15 * TIB), Err(SizeError::Shrinks { .. })));
    assert!(matches!(grown.grown(17 * TIB), Err(SizeError::TooLarge { .. })));
}

proptest! {
    #[test]
    fn every_block_is_in_one_group(
        blocks in VOLUME_BLOCKS_MIN..=VOLUME_BLOCKS_MAX,
        small in VOLUME_BLOCKS_MIN..100_000_u64,
        is_small in any::<bool>(),
        part in 0.0..1.0_f64,
    ) {
        let blocks = if is_small { small } else { blocks };
        let geometry = Geometry::for_blocks(blocks).unwrap();
        prop_assert!(geometry.blocks() <= blocks);
        prop_assert!(blocks - geometry.blocks() < LAST_GROUP_BLOCKS_MIN);
        let block = (geometry.blocks() as f64 * part) as u64;
        let group = geometry.group_of(block).unwrap();
        prop_assert!(geometry.blocks_of(group).unwrap().contains(&block));
        let last = geometry.groups() - 1;
        let last = geometry.blocks_of(last).unwrap();
        prop_assert_eq!(last.end, geometry.blocks());
        prop_assert!(last.end - last.start >= LAST_GROUP_BLOCKS_MIN);
        prop_assert_eq!(geometry.group_of(last.end), None);
        prop_assert_eq!(geometry.blocks_of(geometry.groups()), None);
        prop_assert_eq!(geometry.blocks_of(u32::MAX), None);
        let copies: Vec<_> = geometry.copies().collect();
        prop_assert_eq!(copies.len(), COPIES as usize);
        prop_assert!(copies.iter().skip(1).all(|copy| geometry.group_of(*copy) > Some(0)));
        prop_assert_eq!(Geometry::new(geometry.blocks(), geometry.group_log2()), Ok(geometry));
    }
}
