use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::io::Errno;

use crate::names_only_tests::NamesOnly;
use crate::namespace::Vfs;
use crate::task::At;
use crate::types::{Mode, MountFlags, OFlags};

/// `sync` reaches every file system once, however often it is mounted; `syncfs` that of its file.
#[test]
fn syncs_reach_the_file_systems_they_are_for() {
    let (root, other) = (Arc::new(NamesOnly::default()), Arc::new(NamesOnly::default()));
    let syncs = || [&root, &other].map(|fs| fs.syncs.load(Ordering::Relaxed));
    let task = Vfs::new(Arc::clone(&root) as _).unwrap().task();
    let mode = Mode::from_bits_retain(0o755);
    for dir in ["/a", "/b"] {
        task.mkdir(At::Cwd, dir, mode).unwrap();
    }
    task.mount(Arc::clone(&other) as _, "/a", MountFlags::empty()).unwrap();
    task.bind("/a", "/b", false).unwrap();
    task.sync();
    assert_eq!(syncs(), [1, 1]);

    let open = |path, flags| task.open(path, flags, Mode::empty()).unwrap();
    let fd = task.descriptors().install(open("/b", OFlags::RDONLY), 0, false).unwrap();
    task.syncfs(fd).unwrap();
    assert_eq!(syncs(), [1, 2]);
    open("/", OFlags::RDONLY).sync_fs().unwrap();
    assert_eq!(syncs(), [2, 2]);
    let place = open("/", OFlags::PATH);
    assert_eq!(place.sync_fs().unwrap_err().errno(), Errno::BADF);
    task.close(fd).unwrap();
    assert_eq!(task.syncfs(fd).unwrap_err().errno(), Errno::BADF);

    // On a file system that is read-only nothing can have changed.
    task.remount("/a", MountFlags::RDONLY).unwrap();
    task.sync();
    assert_eq!(syncs(), [3, 2]);
}
