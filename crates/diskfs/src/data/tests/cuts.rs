//! Tests of what a cut writes before it shuts the gate, and behind it.

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
fn a_cut_writes_before_it_shuts_the_gate() {
    for pages in [30, 2600] {
        let mounted = Mounted::open(&made(), CACHE);
        dirty(&mounted, pages);
        let low = mounted.files.drain().unwrap();
        assert_eq!(unstable(&mounted), 0);
        dirty(&mounted, 30);
        let shut = mounted.files.shut().unwrap();
        assert_eq!(unstable(&mounted), 0);
        drop((shut, low));
    }
}
