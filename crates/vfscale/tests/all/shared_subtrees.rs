//! Shared subtrees and private mount trees. `crates/difftest` compares them with the kernel's;
//! these tests show the single rules, and what only the library can show.

use std::sync::Arc;

use vfscale::posix::{At, AtFlags, MountFlags, OFlags, Propagation, UmountFlags};
use vfscale::{Credentials, Errno, MemFs, Mode, Task};

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

fn bind(task: &Task, source: &str, target: &str) {
    task.posix().bind(source, target, false).unwrap();
}

fn share(task: &Task, path: &str, kind: Propagation) {
    task.posix().set_propagation(path, kind, false).unwrap();
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

/// Returns the propagation of the topmost mount at a path: its peer group, its master, and the
/// nearest visible master.
fn sharing(task: &Task, path: &str) -> (Option<u64>, Option<u64>, Option<u64>) {
    let id = task.metadata(path).unwrap().mnt_id;
    let mounts = task.posix().mounts();
    let mount = mounts.iter().find(|mount| mount.id == id).unwrap();
    (mount.peer_group, mount.master, mount.propagate_from)
}

#[test]
fn peers_get_each_others_mounts() {
    let task = task(Propagation::Private);
    bind(&task, "/a", "/a");
    share(&task, "/a", Propagation::Shared);
    bind(&task, "/a", "/b");
    assert_eq!(sharing(&task, "/b"), (Some(1), None, None));
    mount(&task, "/b/x");
    assert_eq!(points(&task), ["/a", "/b", "/b/x", "/a/x"]);
    assert_eq!(sharing(&task, "/a/x"), sharing(&task, "/b/x"));
    task.write("/a/x/f", "same").unwrap();
    assert_eq!(task.read_to_string("/b/x/f").unwrap(), "same");
    umount(&task, "/a/x");
    assert_eq!(points(&task), ["/a", "/b"]);
}

#[test]
fn slaves_get_and_give_nothing_back() {
    let task = task(Propagation::Private);
    bind(&task, "/a", "/a");
    share(&task, "/a", Propagation::Shared);
    for copy in ["/b", "/c"] {
        bind(&task, "/a", copy);
    }
    share(&task, "/b", Propagation::Slave);
    share(&task, "/c", Propagation::Slave);
    // A slave that is also shared, with a slave of its own.
    share(&task, "/c", Propagation::Shared);
    bind(&task, "/c", "/m");
    share(&task, "/m", Propagation::Slave);
    mount(&task, "/a/x");
    assert_eq!(points(&task)[4..], ["/a/x", "/b/x", "/c/x", "/m/x"]);
    let (group, none, _) = sharing(&task, "/a/x");
    let (below, master, _) = sharing(&task, "/c/x");
    assert_eq!((none, master), (None, group));
    assert_eq!(sharing(&task, "/b/x"), (None, group, None));
    assert_eq!(sharing(&task, "/m/x"), (None, below, None));
    umount(&task, "/c/x");
    assert_eq!(points(&task)[4..], ["/a/x", "/b/x"]);
    umount(&task, "/a/x");
    assert_eq!(points(&task).len(), 4);
}

/// A task that does not see the master of a mount is shown the nearest visible master above it.
#[test]
fn the_nearest_visible_master_is_shown() {
    let task = task(Propagation::Private);
    bind(&task, "/m/y", "/m/y");
    share(&task, "/m/y", Propagation::Shared);
    bind(&task, "/m/y", "/a");
    share(&task, "/a", Propagation::Slave);
    share(&task, "/a", Propagation::Shared);
    task.create_dir("/m/z").unwrap();
    bind(&task, "/a", "/m/z");
    share(&task, "/m/z", Propagation::Slave);
    let (top, middle) = (sharing(&task, "/m/y").0, sharing(&task, "/a").0);
    assert_eq!(sharing(&task, "/m/z"), (None, middle, None));
    task.posix().chroot("/m").unwrap();
    assert_eq!(sharing(&task, "/z"), (None, middle, top));
}

/// Race: A mount that is propagated.
#[test]
fn what_is_there_already_stays_on_top() {
    let task = task(Propagation::Private);
    bind(&task, "/a", "/a");
    share(&task, "/a", Propagation::Shared);
    bind(&task, "/a", "/b");
    share(&task, "/b", Propagation::Slave);
    mount(&task, "/b/x");
    task.write("/b/x/mine", "").unwrap();
    mount(&task, "/a/x");
    assert_eq!(points(&task)[2..], ["/b/x", "/a/x", "/b/x"]);
    task.read_to_string("/b/x/mine").unwrap();
    umount(&task, "/a/x");
    assert_eq!(points(&task)[2..], ["/b/x"]);
    task.read_to_string("/b/x/mine").unwrap();
}

/// A mount with other mounts on it is not unmounted together with its peer.
#[test]
fn a_mount_with_mounts_on_it_stays() {
    let task = task(Propagation::Private);
    bind(&task, "/a", "/a");
    share(&task, "/a", Propagation::Shared);
    bind(&task, "/a", "/b");
    bind(&task, "/m", "/a/x");
    share(&task, "/b/x", Propagation::Private);
    mount(&task, "/b/x/y");
    umount(&task, "/a/x");
    assert_eq!(points(&task), ["/a", "/b", "/b/x", "/b/x/y"]);
    // In use, without mounts on it: busy.
    umount(&task, "/b/x/y");
    umount(&task, "/b/x");
    let cwd = task.fork();
    bind(&task, "/m", "/a/x");
    cwd.posix().chdir("/b/x").unwrap();
    assert_eq!(errno(task.posix().umount("/a/x", UmountFlags::empty())), Errno::BUSY);
    task.posix().umount("/a/x", UmountFlags::DETACH).unwrap();
}

#[test]
fn moves_and_binds_that_are_refused() {
    let task = task(Propagation::Private);
    bind(&task, "/a", "/a");
    mount(&task, "/a/x");
    share(&task, "/a", Propagation::Shared);
    assert_eq!(errno(task.posix().move_mount("/a/x", "/b")), Errno::INVAL, "from a shared mount");
    mount(&task, "/m");
    share(&task, "/m", Propagation::Unbindable);
    share(&task, "/a/x", Propagation::Shared);
    assert_eq!(errno(task.posix().bind("/m", "/b", false)), Errno::INVAL);
    assert_eq!(errno(task.posix().move_mount("/m", "/a/x")), Errno::INVAL, "to a shared mount");
    share(&task, "/a/x", Propagation::Private);
    task.posix().move_mount("/m", "/a/x").unwrap();
    assert_eq!(errno(task.posix().set_propagation("/b", Propagation::Shared, false)), Errno::INVAL);
    let user = task.with_credentials(Credentials::user(1000, 1000));
    assert_eq!(errno(user.posix().set_propagation("/a", Propagation::Shared, false)), Errno::PERM);
    assert_eq!(errno(user.posix().unshare_mounts()), Errno::PERM);
    assert_eq!(errno(task.posix().move_mount("/", "/a")), Errno::INVAL, "with an unbindable mount");
    share(&task, "/a", Propagation::Private);
    assert_eq!(errno(task.posix().move_mount("/", "/a")), Errno::LOOP);
    // An unbindable mount is left out of a bind of a directory above it.
    task.posix().bind("/a", "/c", true).unwrap();
    assert_eq!(points(&task), ["/a", "/a/x", "/a/x", "/c", "/c/x"]);
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
