use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use vfscale_block::MemoryDevice;
use vfscale_testkit::{Call, HookedDevice};

use super::*;
use crate::disk::device::Disk;
use crate::disk::layout::Layout;
use crate::space::bitmaps::{Lease, Taker};

/// A device that notes the places that are discarded.
type Noting = HookedDevice<MemoryDevice, Mutex<Vec<Range<u64>>>>;

fn space(places: u64) -> (Space, Arc<Noting>) {
    let inner = MemoryDevice::new(places * 4096).unwrap();
    let device = Arc::new(Noting::new(inner, Mutex::default(), |below, discarded, call| {
        if let Call::Discard(offset, len) = call {
            discarded.lock().unwrap().push(offset / 4096..(offset + len) / 4096);
        }
        call.pass(below)
    }));
    let disk = Disk::new(device.clone(), [1; 16], Layout::whole(places));
    (Space::new(&disk, &[0; 3840], 0, 1), device)
}

fn discarded(device: &Noting) -> BTreeSet<u64> {
    std::mem::take(&mut *device.state.lock().unwrap()).into_iter().flatten().collect()
}

#[test]
fn what_has_become_free_and_still_is_is_discarded_once() {
    let (space, device) = space(2 * ZONE_PLACES);
    let mut lease = Lease::default();
    let (first, count) = space.take(&mut lease, 600, 600).unwrap();
    assert_eq!(space.discard_freed().unwrap(), 0);
    let places: Vec<u64> = (first..first + count).collect();
    space.free(&places[100..300]);
    space.give(200);
    // One of them is in use again.
    assert!(space.claim(places[150]).unwrap());
    assert!(space.has_freed());
    assert_eq!(space.discard_freed().unwrap(), 199);
    let expected: BTreeSet<u64> = places[100..300].iter().copied().collect();
    assert_eq!(discarded(&device), &expected - &BTreeSet::from([places[150]]));
    assert!(!space.has_freed());
    assert_eq!(space.discard_freed().unwrap(), 0);
}

#[test]
fn all_free_places_are_discarded_and_no_others() {
    let places = 2 * ZONE_PLACES + 70;
    let (space, device) = space(places);
    let mut lease = Lease::default();
    let (first, count) = space.take_as(Taker::Ordinary, &mut lease, 1, 700).unwrap();
    let is_free =
        |place: &u64| space.disk.layout().has(*place) && !(first..first + count).contains(place);
    let expected: BTreeSet<u64> = (0..places).filter(is_free).collect();
    assert_eq!(space.discard_all().unwrap(), expected.len() as u64);
    assert_eq!(discarded(&device), expected);
}

#[test]
fn what_is_protected_keeps_its_storage() {
    let (space, device) = space(ZONE_PLACES);
    assert!(space.protect(1000));
    let backed = space.backed.load(Ordering::Relaxed);
    assert!(backed >= 1000);
    space.discard_all().unwrap();
    assert!(space.backed.load(Ordering::Relaxed) >= 1000);
    assert!(discarded(&device).len() as u64 <= ZONE_PLACES - 1000);
    space.unprotect(1000);
    space.discard_all().unwrap();
    assert_eq!(space.backed.load(Ordering::Relaxed), 0);
}
