use super::*;

#[test]
fn zones_are_loaded_and_dropped() {
    let mut zones = Zones::new(1000, 100 * ZONE_BLOCKS - 1);
    assert_eq!((zones.len(), zones.is_whole()), (100, false));
    assert_eq!((zones.of(0), zones.of(1000), zones.of(u64::MAX)), (0, 0, 99));
    assert_eq!((zones.of(999 + ZONE_BLOCKS), zones.of(1000 + ZONE_BLOCKS)), (0, 1));
    assert_eq!(zones.first(70), 1000 + 70 * ZONE_BLOCKS);
    assert_eq!(zones.next_loaded(0), 100);
    zones.load(70);
    zones.load(70);
    assert_eq!((zones.next_loaded(0), zones.next_loaded(71)), (70, 100));
    assert_eq!((zones.summary(69), zones.summary(70)), (Some(UNKNOWN), None));
    assert!(zones.was_touched(70) && !zones.was_touched(70) && !zones.was_touched(7));
    zones.drop(70, 5);
    assert_eq!(zones.summary(70), Some(5));
    (0..100).for_each(|zone| zones.load(zone));
    assert!(zones.is_whole());
    zones.drop(3, 0);
    assert!(!zones.is_whole());
}

#[test]
fn zones_are_found_by_what_is_known() {
    let mut zones = Zones::new(0, 10 * ZONE_BLOCKS);
    (0..10).for_each(|zone| zones.set_summary(zone, zone as u16));
    zones.load(9);
    let at_least = |least: u16| move |known: u16| known >= least;
    assert_eq!(zones.find(3, at_least(5)), Some(5));
    assert_eq!(zones.find(7, at_least(5)), Some(7));
    assert_eq!(zones.find(9, at_least(5)), Some(5), "around");
    assert_eq!(zones.find(3, at_least(9)), None, "that is loaded");
    assert_eq!(zones.best(u64::from), Some((8, 8)));
    assert_eq!(zones.best(|_| 0), None);
    (0..10).for_each(|zone| zones.load(zone));
    assert_eq!((zones.find(0, |_| true), zones.best(u64::from)), (None, None));
}
