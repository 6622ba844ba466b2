//! After the end of a tree its memory is returned to the system without another call.

#![allow(clippy::unwrap_used)]

mod memory_common;

use memory_common::resident;

#[test]
fn a_dropped_tree_frees_its_memory() {
    let before = resident();
    let vfs = vfscale::memory().size(1 << 30).build().unwrap();
    let task = vfs.task();
    for n in 0..200 {
        task.create_dir(format!("/d{n}")).unwrap();
        task.write(format!("/d{n}/f"), vec![1; 1 << 20]).unwrap();
    }
    let full = resident();
    assert!(full - before > 190 << 20, "{before} {full}");
    drop(task);
    drop(vfs);
    // All memory but the reserve for new pages is returned while this thread makes no call.
    vfscale_harness::wait_until("memory is given back", || resident() < before + (32 << 20));
}
