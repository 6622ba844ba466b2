//! Tests of the end of a case.

use super::*;

/// An interrupted case has not unmounted what it mounted.
#[test]
fn mounts_that_a_case_left_are_removed_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("kept.vfs");
    let volume = vfscale::volume(&path).create(64 << 20).open().unwrap();
    volume.task().write("/mine", "untouched").unwrap();
    volume.close().unwrap();
    let image = Image::open(&path, Scaling::default()).unwrap();
    let case = image.case().unwrap();
    let calls = case.enter().unwrap();
    for name in [c"real", c"real/in", c"at"] {
        calls.mkdir(name).unwrap();
    }
    calls.bind(c"real", c"at").unwrap();
    calls.bind(c"real", c"at/in").unwrap();
    drop(calls);
    case.remove();
    drop((case, image));
    let volume = vfscale::volume(&path).open().unwrap();
    assert_eq!(volume.task().read_dir("/").unwrap().count(), 1);
    assert_eq!(volume.task().read_to_string("/mine").unwrap(), "untouched");
    volume.close().unwrap();
}
