//! Shared subtrees and private mount trees, as only the library can show them. `crates/difftest`
//! compares their rules with those of the kernel.

use std::sync::Arc;

use vfscale::posix::{At, AtFlags, MountFlags, OFlags, Propagation, UmountFlags};
use vfscale::{Errno, MemFs, Mode, Task};

const MODE: Mode = Mode::from_bits_retain(0o755);

/// Returns a tree with some directories in its root, whose mount has the propagation `root`.
fn task(root: Propagation) -> Task {
    let task = vfscale::memory().size(64 << 20).build().unwrap().task();
    for dir in ["/a", "/a/x", "/b", "/c", "/m", "/m/y"] {
        task.create_dir(dir).unwrap();
    }
    task.posix().set_propagation("/", root, true).unwrap();
    task
}

fn memory() -> Arc<MemFs> {
    MemFs::builder().size(1 << 20).build()
}

fn mount(task: &Task, path: &str) {
    task.posix().mount(memory(), path, MountFlags::empty()).unwrap();
}

fn umount(task: &Task, path: &str) {
    task.posix().umount(path, UmountFlags::empty()).unwrap();
}

fn errno<T: std::fmt::Debug>(result: vfscale::Result<T>) -> Errno {
    result.unwrap_err().errno()
}

/// Returns the mountpoints in the order of mounting, without the root.
fn points(task: &Task) -> Vec<String> {
    let all = task.posix().mounts().into_iter().skip(1);
    all.map(|mount| mount.mount_point.to_str().unwrap().to_owned()).collect()
}

#[test]
fn a_tree_of_its_own() {
    let host = task(Propagation::Private);
    host.posix().chdir("/a").unwrap();
    mount(&host, "/m");
    let sandbox = host.posix().unshare_mounts().unwrap();
    assert_eq!(sandbox.posix().getcwd().unwrap().to_str(), Some("/a"));
    mount(&sandbox, "/b");
    umount(&sandbox, "/m");
    assert_eq!((points(&host), points(&sandbox)), (vec!["/m".into()], vec!["/b".into()]));
    // The file systems are shared by the trees.
    sandbox.write("/a/f", "seen").unwrap();
    assert_eq!(host.read_to_string("/a/f").unwrap(), "seen");
    let ids = |task: &Task| task.posix().mounts().iter().map(|mount| mount.id).collect::<Vec<_>>();
    assert!(ids(&host).iter().all(|id| !ids(&sandbox).contains(id)));
    // Another task of that tree, and a tree copied from it.
    assert_eq!(points(&sandbox.vfs().task()), ["/b"]);
    let inner = sandbox.posix().unshare_mounts().unwrap();
    drop(sandbox);
    assert_eq!(points(&inner), ["/b"]);
    // A directory in another tree can't be mounted on or bound.
    let elsewhere = host.posix().open("/", OFlags::RDONLY, MODE).unwrap();
    inner.posix().fchdir(&elsewhere).unwrap();
    assert_eq!(errno(inner.posix().mount(memory(), "c", MountFlags::empty())), Errno::INVAL);
    assert_eq!(errno(inner.posix().bind("c", "/c", false)), Errno::INVAL);
    assert_eq!(errno(inner.posix().umount("m", UmountFlags::empty())), Errno::INVAL);
    // Nor is it in the list, which contains only mounts of the tree.
    inner.posix().chroot("m").unwrap();
    assert_eq!(inner.posix().mounts(), []);
}

#[test]
fn trees_that_share() {
    let host = task(Propagation::Shared);
    let peer = host.posix().unshare_mounts().unwrap();
    let slave = host.posix().unshare_mounts().unwrap();
    slave.posix().set_propagation("/", Propagation::Slave, true).unwrap();
    mount(&peer, "/a/x");
    assert_eq!([points(&host), points(&slave)], [["/a/x"], ["/a/x"]]);
    mount(&slave, "/b");
    assert_eq!((points(&host).len(), points(&peer).len()), (1, 1));
    // In use in any of the trees: busy in all.
    let file = slave.posix().open("/a/x", OFlags::RDONLY, MODE).unwrap();
    assert_eq!(errno(host.posix().umount("/a/x", UmountFlags::empty())), Errno::BUSY);
    drop(file);
    umount(&host, "/a/x");
    assert_eq!((points(&peer), points(&slave)), (vec![], vec!["/b".to_owned()]));
    // The end of a tree unmounts nothing in its peers.
    mount(&host, "/c");
    drop(peer);
    assert_eq!(points(&slave), ["/b", "/c"]);
    assert_eq!(points(&host), ["/c"]);
}

/// A directory removed in one tree is no longer a mountpoint in other trees.
#[test]
fn names_that_are_mountpoints_elsewhere() {
    let host = task(Propagation::Private);
    let other = host.posix().unshare_mounts().unwrap();
    for dir in ["/b", "/c", "/a/x"] {
        mount(&other, dir);
    }
    assert_eq!(errno(other.remove_dir("/b")), Errno::BUSY);
    host.remove_dir("/b").unwrap();
    assert_eq!(points(&other), ["/c", "/a/x"]);
    let rename = |from, to| host.rename(from, to);
    assert_eq!(errno(host.remove_dir("/m")), Errno::NOTEMPTY);
    assert_eq!(errno(other.rename("/m", "/c")), Errno::BUSY);
    rename("/m", "/c").unwrap();
    assert_eq!(points(&other), ["/a/x"]);
    // A mountpoint that is renamed remains one.
    rename("/a/x", "/z").unwrap();
    assert_eq!(points(&other), ["/z"]);
    drop(other);
    host.remove_dir("/z").unwrap();
}

/// A mount at a directory that is reached through a handle of another tree counts as elsewhere.
#[test]
fn names_of_another_tree_are_no_mountpoints_of_ones_own() {
    let host = task(Propagation::Private);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let root = host.posix().open("/", flags, Mode::empty()).unwrap();
    let other = host.posix().unshare_mounts().unwrap();
    mount(&host, "/a");
    mount(&host, "/b");
    assert_eq!(errno(host.posix().unlinkat(At::File(&root), "a", AtFlags::REMOVEDIR)), Errno::BUSY);
    assert_eq!(
        errno(other.posix().unlinkat(At::File(&root), "a", AtFlags::REMOVEDIR)),
        Errno::NOTEMPTY
    );
    other.posix().unlinkat(At::File(&root), "b", AtFlags::REMOVEDIR).unwrap();
    assert_eq!(points(&host), ["/a"]);
}

/// Binds of binds, files that outlive their tree, names that are removed while other trees use
/// them: in the end everything is freed.
#[test]
fn the_end_of_trees_gives_everything_back() {
    let host = task(Propagation::Shared);
    let free = |task: &Task| {
        let stat = task.posix().statfs(At::Cwd, "/").unwrap();
        (stat.blocks_free, stat.files_free)
    };
    let before = free(&host);
    for _ in 0..3 {
        let sandbox = host.posix().unshare_mounts().unwrap();
        sandbox.posix().set_propagation("/", Propagation::Slave, true).unwrap();
        sandbox.create_dir("/dir").unwrap();
        sandbox.posix().bind("/", "/dir", true).unwrap();
        sandbox.write("/dir/a/f", vec![1; 9000]).unwrap();
        let open = sandbox.posix().open("/dir/a/f", OFlags::RDONLY, MODE).unwrap();
        drop(sandbox);
        assert_eq!(open.stat().unwrap().size, 9000);
        host.remove_file("/a/f").unwrap();
        host.remove_dir("/dir").unwrap();
    }
    // The end of a mount waits until removed files are freed.
    mount(&host, "/c");
    umount(&host, "/c");
    assert_eq!(free(&host), before);
}
