//! Symbolic links whose target is longer or shorter than their size says.

use super::mending::filled;
use super::repairs::repair;
use super::sample::LONG_LINK;
use crate::btree::Tree;
use crate::inode::blob::{self, LinkTree};
use crate::inode::core::DataFork;
use crate::tools::check::tests::sample::Sample;

fn target(sample: &Sample) -> Vec<u8> {
    let core = sample.core(LONG_LINK);
    let DataFork::Tree { root } = core.data else { panic!("a tree") };
    blob::load(&sample.media(), Tree::<LinkTree>::at(root, LONG_LINK), core.size as u32).unwrap()
}

/// The bytes of the target tell its length: no target has a byte that is zero.
#[test]
fn a_wrong_size_of_a_link_is_found_and_set_right() {
    let sample = filled();
    let (core, text) = (sample.core(LONG_LINK), target(&sample));
    assert_eq!((text.len() as u64, text.contains(&0)), (core.size, false));
    for size in [core.size + 1, core.size - 1, 1, core.size + 2000, 4095] {
        let copy = sample.copied();
        copy.inode(LONG_LINK, |inode| inode.size = size);
        assert_eq!(copy.found(), [1036], "{size}");
        let report = repair(&copy);
        assert_eq!((report.count, report.left), (1, 0), "{size}");
        assert_eq!((copy.core(LONG_LINK), target(&copy)), (core.clone(), text.clone()), "{size}");
        assert_eq!(repair(&copy).count, 0, "{size}");
    }
}
