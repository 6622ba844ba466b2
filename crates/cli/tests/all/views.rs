//! `vfscale view`.

use std::ffi::CString;
use std::fs;

use rustix::mount::{MountFlags, UnmountFlags};

use super::branches::Image;

/// Asks Linux for a mount, whose answer tells whether it mounts files as EROFS here. The tests of
/// the library compare all of a view.
#[test]
fn a_read_only_branch_has_a_view() {
    let image = Image::new(true);
    let view = image.0.path().join("base.erofs");
    let out = view.to_str().unwrap();
    let said = image.bad(1, &["view", "--out", out], &["trial"]);
    assert!(said.contains("it can be written"), "{said}");
    let said = image.bad(1, &["view", "--out", out], &["none"]);
    assert!(said.contains("none"), "{said}");
    assert!(!view.exists());
    image.good(&["branch", "create", "--read-only"], &["base"]);
    image.write("main", "/f", "changed\n");
    fs::write(&view, "replaced").unwrap();
    assert_eq!(image.good(&["view"], &["base", "--out", out]), "");
    assert_eq!(fs::metadata(&view).unwrap().len() % 4096, 0);
    let dir = image.0.path().join("mnt");
    fs::create_dir(&dir).unwrap();
    let device = CString::new(format!("device={}", image.path().display())).unwrap();
    if let Err(error) = rustix::mount::mount(&view, &dir, "erofs", MountFlags::RDONLY, &*device) {
        println!("######## SKIPPED: a mount of a view: {error}");
        return;
    }
    let read = fs::read_to_string(dir.join("f"));
    rustix::mount::unmount(&dir, UnmountFlags::DETACH).unwrap();
    assert_eq!(read.unwrap(), "base\n");
}
