//! Tests of mounts that holders publish.

use std::fs::OpenOptions;

use super::*;

fn open(path: &std::path::Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

#[test]
fn holders_publish_their_mounts() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    let (ours, others, theirs) = (open(&path), open(&path), open(&path));
    assert!(!are_gone(&theirs), "no holder has a mount");
    // The last numbers that there are, side by side, so that the kernel might join their locks.
    let (last, before) = ((0xfff, 0xf_ffff), (0xfff, 0xf_fffe));
    publish(&ours, last).unwrap();
    publish(&others, before).unwrap();
    let mut found = published(&theirs);
    found.sort_unstable();
    assert_eq!(found, [before, last]);
    assert!(are_gone(&theirs));
    let existing = std::os::unix::fs::MetadataExt::dev(&std::fs::metadata("/proc").unwrap());
    let number = (rustix::fs::major(existing), rustix::fs::minor(existing));
    publish(&others, number).unwrap();
    assert!(!are_gone(&theirs), "one of them exists");
    drop(others);
    assert!(are_gone(&theirs));
    drop(ours);
    assert!(!are_gone(&theirs));
    assert!(publish(&theirs, (1 << 12, 0)).is_err() && publish(&theirs, (0, 1 << 20)).is_err());
}

#[test]
fn the_table_has_whole_numbers() {
    let table = b"30 22 0:40 / /mnt rw - fuse.vfscale /data/0:4 rw\n31 22 8:1 / / rw - ext4 x rw\n";
    assert!(lists(table, (0, 40)) && lists(table, (8, 1)));
    assert!(!lists(table, (0, 4)) && !lists(table, (0, 22)) && !lists(b"", (0, 40)));
}
