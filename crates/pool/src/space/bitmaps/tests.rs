use std::collections::BTreeSet;
use std::sync::Arc;

use vfscale_block::{Device, MemoryDevice};
use vfscale_sync::random::{Random, seed};

use super::*;

fn space(places: u64) -> Space {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(places * 4096).unwrap());
    let disk = Disk::new(device, [1; 16], Layout::whole(places));
    Space::new(&disk, &[0; 3840], 0, 1)
}

#[test]
fn places_are_handed_out_once() {
    let places = 2 * ZONE_PLACES + 70;
    let space = space(places);
    let (mut seen, mut lease) = (BTreeSet::new(), Lease::default());
    while let Ok((first, count)) = space.take(&mut lease, 1, 5000) {
        for place in first..first + count {
            assert!(seen.insert(place) && space.disk.layout().has(place));
        }
    }
    assert_eq!(seen.len() as u64, places - space.disk.layout().fixed());
    space.free(&[100, 101, 102]);
    space.give(3);
    assert_eq!(space.take(&mut lease, 3, 5).unwrap(), (100, 3));
}

#[test]
fn siblings_take_places_from_different_zones() {
    let space = space(3 * ZONE_PLACES);
    let zones: BTreeSet<u64> = (0..3)
        .map(|_| {
            let mut lease = Lease::default();
            space.take(&mut lease, 1, 1).unwrap().0 / ZONE_PLACES
        })
        .collect();
    assert_eq!(zones.len(), 3);
}

#[test]
fn bitmaps_are_read_as_they_were_written() {
    let space = space(2 * ZONE_PLACES);
    let mut random = Random::new(seed());
    let mut used = BTreeSet::new();
    for generation in 1..20 {
        let (mut sets, mut clears) = (Vec::new(), Vec::new());
        for _ in 0..50 {
            let place = random.below(2 * ZONE_PLACES);
            if space.disk.layout().is_fixed(place)
                || sets.contains(&place)
                || clears.contains(&place)
            {
                continue;
            }
            if used.remove(&place) { clears.push(place) } else { sets.push(place) }
        }
        used.extend(&sets);
        let blocks = space.commit(&sets, &clears, BTreeSet::new(), generation).unwrap();
        space.disk.write(&blocks).unwrap();
        let mut copies = [0; 3840];
        let made = space.describe(&mut copies);
        let again = Space::new(&space.disk, &copies, made, 1);
        for place in (0..2 * ZONE_PLACES).filter(|place| space.disk.layout().has(*place)) {
            assert_eq!(again.status(place).unwrap().0, used.contains(&place), "place {place}");
        }
    }
    assert!(space.commit(&[*used.first().unwrap()], &[], BTreeSet::new(), 99).is_err());
}
