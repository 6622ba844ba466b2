//! Mounting and unmounting; lookups and forgets. A test process of its own, because children that
//! other tests start would hold copies of open files until they execute, and so keep mounts busy.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

pub(crate) mod common;

use std::fs;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{BOTH, TestMount, drop_caches, is_root};
use vfscale::Mode;
use vfscale::posix::{At, OFlags};
use vfscale_fuse::{Builder, MountError, Sharing};

fn is_mounted(dir: &std::path::Path) -> bool {
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    mounts.lines().any(|line| line.split(' ').nth(1) == dir.to_str())
}

#[test]
fn errors_of_mounting_name_their_cause() {
    let vfs = vfscale::memory().build().unwrap();
    let mount = |dir: &std::path::Path| Builder::new(&vfs).mount(dir).map(drop).unwrap_err();
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("missing");
    let error = mount(&missing);
    assert!(matches!(error, MountError::Target { .. }), "{error:?}");
    assert!(error.to_string().contains("missing does not exist"), "{error}");
    assert!(error.to_string().contains("mkdir"), "{error}");
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let error = mount(&file);
    assert!(matches!(error, MountError::NotADirectory { .. }), "{error:?}");
    assert!(error.to_string().contains("file is not a directory"), "{error}");
}

#[test]
fn unmounting_waits_for_users() {
    let Some(mut m) = TestMount::new(Sharing::Exclusive) else { return };
    let file = fs::File::create(m.path("f")).unwrap();
    let (mounted, error) = m.take().unmount().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ResourceBusy);
    assert!(mounted.is_mounted());
    assert!(is_mounted(m.dir()));
    drop(file);
    assert!(mounted.unmount().is_ok());
    assert!(!is_mounted(m.dir()));
}

#[test]
fn force_does_not_wait() {
    let Some(mut m) = TestMount::new(Sharing::Exclusive) else { return };
    if !is_root() {
        return;
    }
    let mut file = fs::File::create(m.path("f")).unwrap();
    let mounted = m.take();
    assert!(mounted.unmounter().unmount_within(Duration::from_millis(50)).unwrap());
    mounted.wait();
    assert!(!is_mounted(m.dir()));
    assert!(file.write(b"x").is_err());
}

#[test]
fn dropping_unmounts() {
    let Some(mut m) = TestMount::new(Sharing::Exclusive) else { return };
    assert!(is_mounted(m.dir()));
    drop(m.take());
    assert!(!is_mounted(m.dir()));
}

#[test]
fn data_that_the_kernel_holds_back_is_sent_before_an_unmount_by_force() {
    for is_dropped in [true, false] {
        let gathers = |builder: Builder| builder.writeback(true);
        let Some(mut m) = TestMount::with(Sharing::Exclusive, gathers) else { return };
        let mut file = fs::File::create(m.path("f")).unwrap();
        file.write_all(b"held back").unwrap();
        let mounted = m.take();
        if is_dropped {
            drop(mounted);
        } else {
            assert!(mounted.unmounter().unmount_within(Duration::ZERO).unwrap());
        }
        assert_eq!(m.vfs.task().read_to_string("/f").unwrap(), "held back");
    }
}

/// Programs that have a mount namespace of their own have a copy of each mount, until its directory
/// is removed.
#[test]
fn dropping_ends_a_mount_that_another_namespace_has() {
    let dir = tempfile::tempdir().unwrap();
    let volume = vfscale::volume(dir.path().join("image")).create(64 << 20).open().unwrap();
    let tree = volume.vfs().clone();
    let Some(mut m) = TestMount::of(tree, Sharing::Exclusive, |builder| builder) else { return };
    if !is_root() {
        return;
    }
    let mut other = Command::new("unshare");
    other.args(["--mount", "sh", "-c", "echo; read line"]);
    let mut other = other.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = [0];
    other.stdout.as_mut().unwrap().read_exact(&mut line).unwrap();
    fs::write(m.path("f"), "kept").unwrap();
    drop(m.take());
    // A handle of a tree keeps its volume open.
    m.vfs = common::memory(1 << 20);
    assert_eq!(volume.task().read_to_string("/f").unwrap(), "kept");
    let closed = volume.close();
    drop(other.stdin.take());
    assert!(other.wait().is_ok());
    closed.unwrap();
}

#[test]
fn another_program_unmounts() {
    let Some(mut m) = TestMount::new(Sharing::Exclusive) else { return };
    if !is_root() {
        return;
    }
    fs::write(m.path("f"), "x").unwrap();
    assert!(Command::new("umount").arg(m.dir()).status().unwrap().success());
    let mounted = m.take();
    vfscale_harness::wait_until("the end of the workers", || !mounted.is_mounted());
    // A new mount at the directory, which dropping the former one must not end.
    let other = Builder::new(&m.vfs).mount(m.dir()).unwrap();
    drop(mounted);
    assert!(is_mounted(m.dir()));
    drop(other);
}

#[test]
fn a_file_system_outlives_its_mounts() {
    let Some(mut m) = TestMount::new(Sharing::Exclusive) else { return };
    fs::write(m.path("f"), "kept").unwrap();
    drop(m.take());
    assert_eq!(m.vfs.task().read_to_string("/f").unwrap(), "kept");
    let again = Builder::new(&m.vfs).mount(m.dir()).unwrap();
    assert_eq!(fs::read_to_string(m.path("f")).unwrap(), "kept");
    drop(again);
}

/// The counts of nodes and lookups are exactly zero after the kernel has forgotten everything.
#[test]
fn lookups_and_forgets_are_exact() {
    for m in TestMount::both_as_root() {
        fs::create_dir(m.path("d")).unwrap();
        std::thread::scope(|scope| {
            for t in 0..4 {
                let m = &m;
                scope.spawn(move || work(m, t));
            }
        });
        // Tests beside this one make the kernel forget all that is not open.
        let open = fs::File::open(m.path("d")).unwrap();
        assert!(m.mounted().stats().nodes > 0);
        drop(open);
        vfscale_harness::wait_until("a kernel that forgets", || {
            drop_caches();
            let stats = m.mounted().stats();
            (stats.nodes, stats.lookups, stats.open_files) == (0, 0, 0)
        });
        // Forgotten entries are found again.
        assert_eq!(fs::read_dir(m.path("d")).unwrap().count(), 4 * 40);
    }
}

/// Creates, links, renames, lists and removes, concurrently with three other threads.
fn work(m: &TestMount, t: u32) {
    for i in 0..200 {
        let name = m.path(&format!("d/{t}-{i}"));
        fs::write(&name, "x").unwrap();
        let link = m.path(&format!("link-{t}-{}", i % 7));
        let _ = fs::hard_link(&name, &link);
        if i % 5 == 0 {
            for entry in fs::read_dir(m.path("d")).unwrap().flatten() {
                let _ = entry.metadata();
            }
        }
        if i % 50 == 49 {
            drop_caches();
        }
        let moved = m.path(&format!("moved-{t}"));
        fs::rename(&name, &moved).unwrap();
        if i % 5 == 4 {
            fs::rename(&moved, &name).unwrap();
        } else {
            fs::remove_file(&moved).unwrap();
        }
        let _ = fs::remove_file(link);
    }
}

#[test]
fn removed_files_leave_no_nodes() {
    for m in TestMount::both() {
        for i in 0..500 {
            let path = m.path(&format!("f{i}"));
            fs::write(&path, "x").unwrap();
            fs::remove_file(&path).unwrap();
        }
        // Without dropping caches: the kernel forgets a file when its last name and user have
        // ended.
        vfscale_harness::wait_until("the last forget", || m.mounted().stats().nodes == 0);
        let free = |s: vfscale::posix::StatFs| s.blocks_free;
        let empty = vfscale::memory().size(256 << 20).build().unwrap();
        let expected = free(empty.task().posix().statfs(At::Cwd, "/").unwrap());
        vfscale_harness::wait_until("all memory back", || {
            free(m.vfs.task().posix().statfs(At::Cwd, "/").unwrap()) == expected
        });
    }
}

#[test]
fn without_caching_changes_by_the_library_show_immediately() {
    let Some(m) = TestMount::new(common::SHARED) else { return };
    let task = m.vfs.task();
    assert!(fs::metadata(m.path("f")).is_err());
    task.write("/f", "one").unwrap();
    assert_eq!(fs::read_to_string(m.path("f")).unwrap(), "one");
    task.write("/f", "three").unwrap();
    assert_eq!(fs::read_to_string(m.path("f")).unwrap(), "three");
    task.set_permissions("/f", Mode::from(0o600)).unwrap();
    let mode = std::os::unix::fs::MetadataExt::mode(&fs::metadata(m.path("f")).unwrap());
    assert_eq!(mode & 0o777, 0o600);
    task.rename("/f", "/g").unwrap();
    assert!(fs::metadata(m.path("f")).is_err());
    // The library's task is user 0, so it created the file as user 0.
    let (uid, gid) = common::owner();
    task.posix()
        .fchownat(At::Cwd, "/g", Some(uid), Some(gid), vfscale::posix::AtFlags::empty())
        .unwrap();
    fs::write(m.path("g"), "by the mount").unwrap();
    assert_eq!(task.read_to_string("/g").unwrap(), "by the mount");
}

#[test]
fn caches_are_invalidated_when_told() {
    let hour = Duration::from_secs(3600);
    let Some(m) = TestMount::new(Sharing::Shared { cache: hour }) else { return };
    let task = m.vfs.task();
    task.write("/f", "one").unwrap();
    assert_eq!(fs::metadata(m.path("f")).unwrap().len(), 3);
    assert!(fs::metadata(m.path("g")).is_err());
    task.write("/f", "three").unwrap();
    task.write("/g", "").unwrap();
    assert_eq!(fs::metadata(m.path("f")).unwrap().len(), 3, "cached");
    assert!(fs::metadata(m.path("g")).is_err(), "cached");
    let root = task.posix().open("/", OFlags::PATH, Mode::empty()).unwrap();
    let file = task.posix().open("/f", OFlags::PATH, Mode::empty()).unwrap();
    m.mounted().invalidate(&file).unwrap();
    m.mounted().invalidate_name(&root, "g").unwrap();
    assert_eq!(fs::metadata(m.path("f")).unwrap().len(), 5);
    assert!(fs::metadata(m.path("g")).is_ok());
    m.mounted().invalidate_name(&root, "never seen").unwrap();
}

#[test]
fn trees_of_several_mounts_are_one_tree() {
    for sharing in BOTH {
        let vfs = common::memory(64 << 20);
        let task = vfs.task();
        task.create_dir("/sub").unwrap();
        let (uid, gid) = common::owner();
        let inner = vfscale::MemFs::builder().size(16 << 20).owner(uid, gid).build();
        task.posix().mount(inner, "/sub", vfscale::posix::MountFlags::empty()).unwrap();
        let Some(m) = TestMount::of(vfs, sharing, |b| b) else { return };
        for i in 0..50 {
            fs::write(m.path(&format!("f{i}")), format!("outer {i}")).unwrap();
            fs::write(m.path(&format!("sub/f{i}")), format!("inner {i}")).unwrap();
        }
        let mut numbers = std::collections::BTreeSet::new();
        for i in 0..50 {
            for (dir, text) in [("", "outer"), ("sub/", "inner")] {
                let path = m.path(&format!("{dir}f{i}"));
                assert_eq!(fs::read_to_string(&path).unwrap(), format!("{text} {i}"));
                let ino = std::os::unix::fs::MetadataExt::ino(&fs::metadata(&path).unwrap());
                assert!(numbers.insert(ino), "two files with one number");
            }
        }
        let moved = fs::rename(m.path("f0"), m.path("sub/x")).unwrap_err();
        assert_eq!(moved.kind(), std::io::ErrorKind::CrossesDevices);
        if is_root() {
            vfscale_harness::wait_until("a kernel that forgets", || {
                drop_caches();
                m.mounted().stats().nodes == 0
            });
        }
    }
}

/// Another mount, which ends with the test.
struct Tmpfs(std::path::PathBuf);

impl Tmpfs {
    fn at(dir: std::path::PathBuf) -> Tmpfs {
        fs::create_dir_all(&dir).unwrap();
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("other", &dir, "tmpfs", flags, None).unwrap();
        Tmpfs(dir)
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
    }
}

/// A user who owns a directory above the mountpoint can move it, and put a link to another mount in
/// its place.
#[test]
fn no_other_mount_is_unmounted() {
    if !is_root() {
        return;
    }
    for (in_use, by_another) in [(false, false), (true, false), (false, true)] {
        let base = tempfile::tempdir().unwrap();
        let path = |name: &str| base.path().join(name);
        fs::create_dir_all(path("p/a dir")).unwrap();
        let victim = Tmpfs::at(path("victim/a dir"));
        let vfs = common::memory(1 << 20);
        let mounted = match by_another {
            false => Builder::new(&vfs).mount(path("p/a dir")),
            true => {
                let made = vfscale_fuse::Attachment::new().mount(path("p/a dir")).unwrap();
                Builder::new(&vfs).serve(made)
            }
        };
        let mounted = mounted.unwrap();
        fs::rename(path("p"), path("q")).unwrap();
        std::os::unix::fs::symlink(path("victim"), path("p")).unwrap();
        let file = in_use.then(|| fs::File::create(path("q/a dir/f")).unwrap());
        // A second mount of the file system is another one, too.
        fs::create_dir(path("bind")).unwrap();
        let bind = Tmpfs(path("bind"));
        rustix::mount::mount_bind(path("q/a dir"), &bind.0).unwrap();
        let patience = Duration::from_millis(50);
        assert_eq!(mounted.unmounter().unmount_within(patience).unwrap(), in_use);
        let mounts = fs::read_to_string("/proc/mounts").unwrap();
        let is_there = |place: &str| mounts.contains(&format!("{}/{place}", base.path().display()));
        assert!(is_there("victim/a\\040dir tmpfs"), "{mounts}");
        assert!(!is_there("q/") && is_there("bind fuse.vfscale"), "{mounts}");
        drop((file, bind, victim));
        mounted.wait();
    }
}
