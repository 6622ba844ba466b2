//! Tests of what a cut writes before it shuts the gate, and behind it.

use std::time::Duration;

use super::volume::{Mounted, made};
use super::*;

/// Memory in which nothing is written for want of room.
const CACHE: u64 = 512 << 20;

fn unstable(mounted: &Mounted) -> u64 {
    mounted.files.pages().unstable()
}

/// Writes pages in descending order, so none is written behind them.
fn dirty(mounted: &Mounted, pages: u64) {
    let node = mounted.create();
    let file = mounted.files.file(&node);
    for page in (0..pages).rev() {
        file.write(page * PAGE, &[3; PAGE_SIZE]).unwrap();
    }
    assert_eq!(unstable(mounted), pages);
}

#[test]
fn a_cut_of_a_quick_device_leaves_a_little_to_the_gate() {
    let mounted = Mounted::open(&made(), CACHE);
    dirty(&mounted, 30);
    // The speed of the device is not known yet.
    drop(mounted.files.drain().unwrap());
    assert_eq!(unstable(&mounted), 0);
    mounted.files.pace().note(1000, Duration::from_millis(1));
    dirty(&mounted, 30);
    let low = mounted.files.drain().unwrap();
    assert_eq!(unstable(&mounted), 30);
    let shut = mounted.files.shut().unwrap();
    assert_eq!(unstable(&mounted), 0);
    drop((shut, low));
}

/// Returns how many of the pages that were dirty are dirty when the gate is about to be shut, if
/// 1,000 pages took so long before.
fn left_to_the_gate(took: Duration, pages: u64) -> u64 {
    let mounted = Mounted::open(&made(), CACHE);
    mounted.files.pace().note(1000, took);
    dirty(&mounted, pages);
    drop(mounted.files.drain().unwrap());
    unstable(&mounted)
}

#[test]
fn a_cut_of_a_slow_device_writes_before_the_gate() {
    assert_eq!(left_to_the_gate(Duration::from_secs(1), 30), 0);
}

#[test]
fn a_cut_leaves_a_little_and_not_much() {
    assert_eq!(left_to_the_gate(Duration::from_micros(1), 2600), 0);
}

#[test]
fn a_cut_notes_what_it_took_behind_the_gate() {
    let mounted = Mounted::open(&made(), CACHE);
    assert!(!mounted.files.pace().is_known());
    drop(mounted.files.shut().unwrap());
    assert!(mounted.files.pace().is_known());
}
