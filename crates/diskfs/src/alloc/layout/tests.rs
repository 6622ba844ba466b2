use super::*;

fn layouts(blocks: u64) -> Vec<Layout> {
    let geometry = Geometry::for_blocks(blocks).unwrap();
    let log = LogPlace::inside(geometry, None);
    (0..geometry.groups()).map(|group| Layout::new(geometry, log, group).unwrap()).collect()
}

#[test]
fn every_block_is_kept_or_usable_or_of_the_log() {
    for blocks in [1 << 12, (1 << 12) + 300, 1 << 16, 1 << 20, 1 << 32] {
        let geometry = Geometry::for_blocks(blocks).unwrap();
        let log = LogPlace::inside(geometry, None);
        let usable: u64 = layouts(blocks).iter().map(Layout::usable_blocks).sum();
        let kept = u64::from(geometry.groups()) * GROUP_BLOCKS_KEPT;
        assert_eq!(usable + kept + log.blocks(), geometry.blocks(), "{blocks}");
    }
}

#[test]
fn the_log_lies_between_what_is_usable() {
    let geometry = Geometry::for_blocks(1 << 12).unwrap();
    let log = LogPlace::Inside { start: 1024 + 100, blocks: 256 };
    let layout = Layout::new(geometry, log, 1).unwrap();
    let usable: Vec<_> = layout.usable().collect();
    assert_eq!(usable, [BlockRange::new(1032, 92), BlockRange::new(1380, 668)]);
    assert!(layout.is_usable(1032, 92) && layout.is_usable(1380, 668));
    assert!(layout.is_usable(1123, 1) && layout.is_usable(2047, 1));
    for (start, blocks) in
        [(1032, 0), (1032, 93), (1031, 2), (1124, 1), (1379, 2), (2047, 2), (2048, 1), (0, 1)]
    {
        assert!(!layout.is_usable(start, blocks), "{start} {blocks}");
    }
    assert!(!layout.is_usable(u64::MAX, 1) && !layout.is_usable(1032, u64::MAX));
    assert!(layout.is_node(1026) && layout.is_node(1027) && layout.is_node(1032));
    assert!(!layout.is_node(1024) && !layout.is_node(1025) && !layout.is_node(1028));
    let full = LogPlace::Inside { start: 1032, blocks: 1016 };
    let layout = Layout::new(geometry, full, 1).unwrap();
    assert_eq!((layout.usable_blocks(), layout.tree_blocks_max()), (0, 0));
    assert!(Layout::new(geometry, full, 4).is_none());
}

#[test]
fn trees_take_less_than_a_hundredth_of_a_group() {
    for blocks in [1 << 20, 1 << 28, 1 << 32] {
        let layout = &layouts(blocks)[0];
        let most = layout.tree_blocks_max();
        assert!(most * 100 < layout.usable_blocks(), "{most} of {}", layout.usable_blocks());
        assert!(layout.levels_max() <= 5);
    }
    assert_eq!(layouts(1 << 12)[0].tree_blocks_max(), 508 / 83 + 2);
    assert_eq!(layouts(1 << 12)[0].levels_max(), 2);
}
