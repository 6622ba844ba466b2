use std::collections::BTreeSet;

use super::*;

fn layouts() -> Vec<Layout> {
    let behind = |first, group, places| Layout { first, group, places };
    vec![
        Layout::whole(128),
        Layout::whole(2 * ZONE_PLACES + 70),
        behind(4096, 1024, 4096 + 130),
        behind(ZONE_PLACES + 5, 1024, 3 * ZONE_PLACES),
        behind(2 * ZONE_PLACES, 8192, 2 * ZONE_PLACES + 5000),
    ]
}

#[test]
fn each_place_is_in_one_zone() {
    for layout in layouts() {
        assert!(layout.is_valid(), "{layout:?}");
        let mut seen = 0;
        for zone in 0..layout.zones() {
            for (at, place) in layout.range(zone).enumerate() {
                assert_eq!(layout.locate(place), (zone, at as u64));
                seen += 1;
            }
        }
        assert_eq!(seen, layout.places);
        let fixed = (0..layout.places).filter(|place| layout.is_fixed(*place)).count() as u64;
        assert_eq!(layout.fixed(), fixed, "{layout:?}");
    }
}

#[test]
fn bitmaps_and_superblocks_are_never_handed_out() {
    for layout in layouts() {
        let mut own = BTreeSet::from(layout.superblocks());
        own.insert(layout.first);
        for zone in 0..layout.zones() {
            own.insert(layout.bitmap(zone, false));
            own.insert(layout.bitmap(zone, true));
        }
        assert_eq!(own.len(), 3 + 2 * layout.zones(), "{layout:?}");
        // The last zone may be too short for its bitmaps, and has no other place then.
        assert!(own.iter().all(|place| *place >= layout.first && !layout.has(*place)));
    }
}

#[test]
fn sizes_that_no_pool_has_are_refused() {
    let behind = |first, group, places| Layout { first, group, places };
    for layout in [
        Layout::whole(127),
        Layout::whole(ZONES_MAX * ZONE_PLACES + 1),
        behind(0, 1024, 5000),
        behind(4096, 0, 5000),
        behind(4096, 1000, 5000),
        behind(4096, 2048, 5000),
        behind(4096, 1024, 4096 + 129),
        behind(4096, 1024, 4000),
        behind(u64::MAX, 1024, 4000),
        behind(1 << 32, 1 << 26, 1 << 33),
    ] {
        assert!(!layout.is_valid(), "{layout:?}");
    }
}
