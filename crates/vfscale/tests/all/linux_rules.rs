//! Unobvious rules of Linux: which of several errors is reported, and how flags are changed. The
//! comparison with tmpfs showed them.

use crate::common::{MODE, errno, make, task};
use vfscale::posix::{
    At, AtFlags, FallocateFlags, InodeFlags, LockKind, LockRange, MountFlags, OFlags, OpenHow,
    ResolveFlags, UmountFlags, XattrFlags,
};
use vfscale::{Capabilities, Credentials, Errno, File, MemFs, Mode};

const LARGEFILE: OFlags = OFlags::from_bits_retain(0o100_000);
/// The bit of `SYNC` that is not in `DSYNC`.
const HALF_SYNC: OFlags = OFlags::SYNC.difference(OFlags::DSYNC);

/// No lookup is made in a removed directory: every name is missing, whatever else is wrong.
#[test]
fn a_removed_directory_is_reported_before_other_errors() {
    let task = task();
    let dir = |path: &str| task.create_dir(path).unwrap();
    ["/a", "/b", "/b/gone", "/b/gone/sub"].into_iter().for_each(dir);
    make(&task, "/f");
    task.posix().bind("/b/gone", "/a", false).unwrap();
    task.remove_dir("/b/gone/sub").unwrap();
    task.remove_dir("/b/gone").unwrap();
    // The source is on another mount.
    assert_eq!(errno(task.hard_link("/f", "/a/f")), Errno::NOENT);
    // The name is too long.
    let long = format!("/a/{}", "n".repeat(256));
    assert_eq!(errno(task.metadata(&long)), Errno::NOENT);
    assert_eq!(errno(task.posix().chdir(format!("{long}/f"))), Errno::NOENT);
    assert_eq!(errno(task.create_dir(&long)), Errno::NOENT);
    assert_eq!(errno(task.remove_file(&long)), Errno::NOENT);
    assert_eq!(errno(task.remove_dir(&long)), Errno::NOENT);
    let rename = task.rename(&long, "/a/x");
    assert_eq!(errno(rename), Errno::NOENT);
    // The mount is read-only.
    task.posix().remount_bind("/a", MountFlags::RDONLY).unwrap();
    assert_eq!(errno(task.create_dir("/a/d")), Errno::NOENT);
    // In an existing directory the error differs.
    assert_eq!(errno(task.metadata(format!("/b/{}", "n".repeat(256)))), Errno::NAMETOOLONG);
}

/// A missing permission is reported before a read-only mount, and after a read-only file system.
#[test]
fn truncation_of_a_file_on_a_read_only_mount() {
    let task = task();
    task.create_dir("/d").unwrap();
    task.posix().bind("/d", "/d", false).unwrap();
    make(&task, "/d/f");
    let user = task.with_credentials(Credentials::user(1000, 1000));
    task.posix().remount_bind("/d", MountFlags::RDONLY).unwrap();
    assert_eq!(errno(user.posix().truncate("/d/f", 5)), Errno::ACCESS);
    assert_eq!(errno(task.posix().truncate("/d/f", 5)), Errno::ROFS);
    task.posix().remount_bind("/d", MountFlags::empty()).unwrap();
    task.posix().truncate("/d/f", 5).unwrap();
    task.posix().remount("/d", MountFlags::RDONLY).unwrap();
    assert_eq!(errno(user.posix().truncate("/d/f", 5)), Errno::ROFS);
}

/// `SYNC` has two bits, and the one that is not in `DSYNC` implies the other. `LARGEFILE` has no
/// meaning.
#[test]
fn flags_that_stay_with_a_file() {
    let task = task();
    make(&task, "/f");
    let flags = |flags| task.posix().openat2(At::Cwd, "/f", &OpenHow::new(flags)).unwrap().flags();
    assert_eq!(flags(OFlags::RDWR | HALF_SYNC), OFlags::RDWR | OFlags::SYNC);
    assert_eq!(flags(OFlags::RDWR | OFlags::DSYNC), OFlags::RDWR | OFlags::DSYNC);
    assert_eq!(flags(OFlags::NONBLOCK | LARGEFILE), OFlags::NONBLOCK);
}

/// File capabilities depend on a file's contents and owner; any change of either removes them.
#[test]
fn file_capabilities_end_with_a_change() {
    const NAME: &str = "security.capability";
    let value = [&[1, 0, 0, 2, 0, 0x20][..], &[0; 14]].concat();
    let task = task();
    let before = task.posix().statfs(At::Cwd, "/").unwrap();
    let left = |change: &dyn Fn() -> vfscale::Result<()>| {
        task.write("/f", "content").unwrap();
        let (how, flags) = (XattrFlags::empty(), AtFlags::empty());
        task.posix().setxattrat(At::Cwd, "/f", NAME, &value, how, flags).unwrap();
        change().unwrap();
        !task.posix().listxattrat(At::Cwd, "/f", flags).unwrap().is_empty()
    };
    let open = |flags| task.posix().open("/f", flags, Mode::empty());
    assert!(!left(&|| open(OFlags::WRONLY)?.write_all(b"x")));
    assert!(!left(&|| open(OFlags::WRONLY)?.fallocate(FallocateFlags::empty(), 0, 100)));
    assert!(!left(&|| open(OFlags::WRONLY | OFlags::TRUNC).map(drop)));
    assert!(!left(&|| task.posix().truncate("/f", 3)));
    assert!(!left(&|| task.posix().fchownat(At::Cwd, "/f", Some(5), None, AtFlags::empty())));
    assert!(!left(&|| task.posix().fchownat(At::Cwd, "/f", None, None, AtFlags::empty())));
    assert!(left(&|| open(OFlags::WRONLY).map(drop)));
    assert!(left(&|| task.set_permissions("/f", Mode::RWXU)));
    assert!(left(&|| task.hard_link("/f", "/g")));
    for name in ["/f", "/g"] {
        task.remove_file(name).unwrap();
    }
    // The end of a mount waits until removed files are freed.
    task.create_dir("/d").unwrap();
    task.posix().mount(vfscale::MemFs::builder().build(), "/d", MountFlags::empty()).unwrap();
    task.posix().umount("/d", UmountFlags::empty()).unwrap();
    task.remove_dir("/d").unwrap();
    let after = task.posix().statfs(At::Cwd, "/").unwrap();
    assert_eq!(after.blocks_free, before.blocks_free);
}

/// The form of file capabilities is checked before the flags of the file, as the right to set them
/// is.
#[test]
fn malformed_capabilities_are_so_for_an_immutable_file_too() {
    let task = task();
    make(&task, "/f");
    let file = task.posix().open("/f", OFlags::RDONLY, Mode::empty()).unwrap();
    let set = |name: &str, value: &[u8]| {
        let (how, flags) = (XattrFlags::empty(), AtFlags::empty());
        task.posix().setxattrat(At::Cwd, "/f", name, value, how, flags).map_err(Errno::from)
    };
    let whole = [&[1, 0, 0, 2, 0, 0x20][..], &[0; 14]].concat();
    for flag in [InodeFlags::IMMUTABLE, InodeFlags::APPEND] {
        task.posix().ioctl_setflags(&file, flag).unwrap();
        assert_eq!(set("security.capability", b"malformed"), Err(Errno::INVAL));
        assert_eq!(set("security.capability", &whole), Err(Errno::PERM));
        assert_eq!(set("security.other", b"malformed"), Err(Errno::PERM));
        let removed =
            task.posix().removexattrat(At::Cwd, "/f", "security.capability", AtFlags::empty());
        assert_eq!(removed.map_err(Errno::from), Err(Errno::PERM));
    }
}

/// A task that is still in a detached mount can't attach it again by a bind, nor mount anything on
/// it.
#[test]
fn a_detached_mount_is_not_bound() {
    let task = task();
    for dir in ["/a", "/a/b", "/m", "/t"] {
        task.create_dir(dir).unwrap();
    }
    task.posix().bind("/a", "/m", false).unwrap();
    let inside = task.fork();
    inside.posix().chroot("/m").unwrap();
    inside.posix().bind("/b", "t", false).unwrap();
    inside.posix().umount("t", UmountFlags::empty()).unwrap();
    task.posix().umount("/m", UmountFlags::DETACH).unwrap();
    assert_eq!(errno(inside.posix().bind("/b", "t", false)), Errno::INVAL);
    assert_eq!(errno(inside.posix().bind("t", "/b", false)), Errno::NOENT);
    let fs = MemFs::builder().size(1 << 20).build();
    assert_eq!(errno(inside.posix().mount(fs.clone(), "/b", MountFlags::empty())), Errno::NOENT);
    // The failed calls have not used the driver up.
    task.posix().mount(fs, "/t", MountFlags::empty()).unwrap();
    assert_eq!(errno(inside.posix().move_mount("t", "/b")), Errno::NOENT);
    assert_eq!(errno(inside.posix().move_mount("/b", "t")), Errno::INVAL);
}

/// `umount` of a directory that is itself covered by a mount ends that mount, while other calls see
/// the directory below it.
#[test]
fn umount_ends_the_mount_over_the_directory_itself() {
    let task = task();
    for dir in ["/d", "/d/sub", "/t"] {
        task.create_dir(dir).unwrap();
    }
    let mount = |path: &str| {
        let fs = MemFs::builder().size(1 << 20).build();
        task.posix().mount(fs, path, MountFlags::empty()).unwrap();
    };
    let umount = |path: &str| task.posix().umount(path, UmountFlags::empty());
    let top = |path: &str| task.metadata(path).unwrap().mnt_id;
    let root = top("/");
    task.posix().chdir("/d").unwrap();
    // Twice, since the second mount covers the first.
    for _ in 0..2 {
        mount("/d");
        mount(".");
        assert_eq!(top("."), root);
        assert_ne!(top("/d"), root);
        umount(".").unwrap();
        umount("./").unwrap();
    }
    assert_eq!(errno(umount(".")), Errno::INVAL);
    task.posix().chdir("/d/sub").unwrap();
    mount("/d");
    umount("..").unwrap();
    assert_eq!(errno(umount("..")), Errno::INVAL);
    mount("/");
    // A walk that starts in the root is below the mount.
    assert_eq!((top("/"), top("/d")), (root, root));
    assert_ne!(top("/.."), root);
    umount("/").unwrap();
    assert_eq!(errno(umount("/")), Errno::BUSY);
    // Moves, remounts and binds act on the path's last directory, below the mount.
    task.posix().chdir("/d").unwrap();
    mount("/d");
    assert_eq!(errno(task.posix().move_mount(".", "/t")), Errno::INVAL);
    assert_eq!(errno(task.posix().remount(".", MountFlags::RDONLY)), Errno::INVAL);
    task.posix().bind(".", "/t", false).unwrap();
    task.metadata("/t/sub").unwrap();
}

/// A file that was a mountpoint and is then removed is not a mountpoint any more.
#[test]
fn nothing_is_mounted_on_a_removed_file() {
    let task = task();
    task.create_dir("/d").unwrap();
    for path in ["/f", "/g"] {
        drop(make(&task, path));
    }
    task.posix().bind("/g", "/f", false).unwrap();
    task.remove_file("/g").unwrap();
    assert_eq!(errno(task.posix().bind("/d", "/f", false)), Errno::NOENT);
    assert_eq!(errno(task.posix().bind("/f", "/f", false)), Errno::NOENT);
}

/// When a change of owner also changes the mode, the set-group-id bit depends on the new group.
#[test]
fn set_group_id_after_a_change_of_owner() {
    let task = task();
    task.set_permissions("/", Mode::from(0o777)).unwrap();
    let mut bob = Credentials::user(1000, 1000);
    bob.caps = Capabilities::CHOWN;
    let bob = task.with_credentials(bob);
    let made = |mode: u32, gid: u32| {
        let file = make(&bob, "/f");
        bob.set_permissions("/f", Mode::from_bits_retain(mode)).unwrap();
        bob.posix().fchownat(At::Cwd, "/f", Some(1000), Some(gid), AtFlags::empty()).unwrap();
        bob.remove_file("/f").unwrap();
        file.stat().unwrap().mode & 0o7777
    };
    assert_eq!(made(0o6602, 0), 0o0602);
    assert_eq!(made(0o6602, 1000), 0o2602);
    assert_eq!(made(0o2602, 0), 0o2602);
}

/// An open file without a name prevents its file system from becoming read-only.
#[test]
fn an_open_file_without_a_name_keeps_a_file_system_writable() {
    let task = task();
    drop(make(&task, "/f"));
    let file = task.posix().open("/f", OFlags::RDONLY, MODE).unwrap();
    task.remove_file("/f").unwrap();
    assert_eq!(errno(task.posix().remount("/", MountFlags::RDONLY)), Errno::BUSY);
    drop(file);
    task.posix().remount("/", MountFlags::RDONLY).unwrap();
}

/// A truncation to the same size is a change of the data if space has to be freed.
#[test]
fn truncation_to_the_same_size() {
    let task = task();
    let changes = |prepare: &dyn Fn(&File)| {
        let file = make(&task, "/f");
        prepare(&file);
        let before = file.stat().unwrap().mtime;
        task.posix().truncate("/f", file.stat().unwrap().size).unwrap();
        let changed = file.stat().unwrap().mtime != before;
        task.remove_file("/f").unwrap();
        changed
    };
    assert!(!changes(&|_| {}));
    assert!(!changes(&|file| file.truncate(5000).unwrap()));
    assert!(changes(&|file| assert_eq!(file.write(b"data").unwrap(), 4)));
    assert!(changes(&|file| file.fallocate(FallocateFlags::KEEP_SIZE, 0, 1).unwrap()));
}

/// A file with a record lock is not in use after the task has closed it.
#[test]
fn a_closed_file_with_a_record_lock_is_not_in_use() {
    let task = task();
    task.create_dir("/m").unwrap();
    task.posix().mount(MemFs::builder().size(1 << 20).build(), "/m", MountFlags::empty()).unwrap();
    let how = OpenHow::new(OFlags::CREATE | OFlags::RDWR);
    let locked = || {
        let fd = task.posix().open_fd(At::Cwd, "/m/f", &how).unwrap();
        let range = LockRange::new(0, 5).unwrap();
        let file = task.posix().file(fd).unwrap();
        task.posix().posix_lock(&file, Some(LockKind::Shared), range, None).unwrap();
        fd
    };
    let fd = locked();
    assert_eq!(errno(task.posix().umount("/m", UmountFlags::empty())), Errno::BUSY);
    task.posix().close(fd).unwrap();
    let (fd, other) =
        (locked(), task.posix().open_fd(At::Cwd, "/", &OpenHow::new(OFlags::RDONLY)).unwrap());
    task.posix().dup2(other, fd).unwrap();
    task.posix().umount("/m", UmountFlags::empty()).unwrap();
}

/// A directory that was moved out of the part of a tree that a mount shows has no path in that
/// mount.
#[test]
fn the_path_of_a_directory_moved_out_of_a_bind() {
    let task = task();
    for dir in ["/a", "/a/sub", "/m"] {
        task.create_dir(dir).unwrap();
    }
    task.posix().bind("/a", "/m", false).unwrap();
    let (here, bound) = (make(&task, "/a/f"), make(&task, "/m/f"));
    let rename = |from, to| task.rename(from, to).unwrap();
    rename("/a/f", "/t");
    assert_eq!(task.posix().path_of(&here).unwrap().to_str(), Some("/t"));
    assert_eq!(task.posix().path_of(&bound).unwrap().to_str(), Some("/"));
    task.posix().chdir("/m/sub").unwrap();
    rename("/a/sub", "/sub");
    assert_eq!(task.posix().getcwd().unwrap().to_str(), Some("(unreachable)/"));
    rename("/sub", "/a/sub");
    assert_eq!(task.posix().getcwd().unwrap().to_str(), Some("/m/sub"));
}

/// A descriptor opened with `O_PATH` has no effect on record locks.
#[test]
fn record_locks_outlive_a_closed_place() {
    let task = task();
    let how = OpenHow::new(OFlags::CREATE | OFlags::RDWR);
    let fd = task.posix().open_fd(At::Cwd, "/f", &how).unwrap();
    let place = task.posix().open_fd(At::Cwd, "/f", &OpenHow::new(OFlags::PATH)).unwrap();
    let range = LockRange::new(0, 5).unwrap();
    let file = task.posix().file(fd).unwrap();
    task.posix().posix_lock(&file, Some(LockKind::Exclusive), range, None).unwrap();
    let other = task.fork();
    task.posix().close(place).unwrap();
    assert!(other.posix().posix_lock_test(&file, LockKind::Shared, range).unwrap().is_some());
    task.posix().close(fd).unwrap();
    assert!(other.posix().posix_lock_test(&file, LockKind::Shared, range).unwrap().is_none());
}

/// The bits of a mode that are not permissions are effective from when they are set until they are
/// cleared.
#[test]
fn bits_beyond_permissions_follow_the_mode() {
    let task = task();
    let mode = Mode::from_bits_retain;
    task.create_dir("/d").unwrap();
    task.posix().fchownat(At::Cwd, "/d", None, Some(7), AtFlags::empty()).unwrap();
    let [ann, bob] = [1000, 1001].map(|id| task.with_credentials(Credentials::user(id, id)));
    for (bits, group, removed) in
        [(0, 1000, None), (0o3000, 7, Some(Errno::PERM)), (0o1000, 1000, Some(Errno::PERM))]
            .into_iter()
            .chain([(0o2000, 7, None), (0, 1000, None)])
    {
        task.set_permissions("/d", mode(0o777 | bits)).unwrap();
        let file = make(&ann, "/d/f");
        assert_eq!(file.stat().unwrap().gid, group, "{bits:o}");
        let by_bob = bob.remove_file("/d/f").map_err(|e| e.errno());
        assert_eq!(by_bob.err(), removed, "{bits:o}");
        let _ = task.remove_file("/d/f");
    }
    // A write by an unprivileged user clears set-id bits, and no others.
    let file = make(&ann, "/d/f");
    for (bits, left) in [(0o6755, 0o755), (0o1644, 0o1644), (0o4600, 0o600)] {
        ann.set_permissions("/d/f", mode(bits)).unwrap();
        assert_eq!(file.stat().unwrap().mode & 0o7777, bits);
        file.pwrite(b"x", 0).unwrap();
        assert_eq!(file.stat().unwrap().mode & 0o7777, left);
    }
}

/// A record lock on a handle without a descriptor holds the file until the lock is released or
/// refused. Then nothing holds the file, and its mount can be ended.
#[test]
fn a_released_lock_holds_no_mount() {
    let task = task();
    task.create_dir("/m").unwrap();
    let mounted = |call: &dyn Fn(&File)| {
        task.posix()
            .mount(MemFs::builder().size(1 << 20).build(), "/m", MountFlags::empty())
            .unwrap();
        call(&make(&task, "/m/f"));
        task.posix().umount("/m", UmountFlags::empty())
    };
    let lock = |file: &File, kind, range| task.posix().posix_lock(file, kind, range, None);
    let half = LockRange::new(0, 99).unwrap();
    mounted(&|file| {
        lock(file, Some(LockKind::Exclusive), LockRange::WHOLE).unwrap();
        lock(file, None, half).unwrap();
        lock(file, None, LockRange::WHOLE).unwrap();
    })
    .unwrap();
    mounted(&|file| {
        let other = task.fork();
        other.posix().posix_lock(file, Some(LockKind::Shared), half, None).unwrap();
        let refused = lock(file, Some(LockKind::Exclusive), LockRange::WHOLE);
        assert_eq!(errno(refused), Errno::AGAIN);
    })
    .unwrap();
    // A lock that is held holds the file until the task ends.
    let result = mounted(&|file| {
        lock(file, Some(LockKind::Exclusive), LockRange::WHOLE).unwrap();
        lock(file, None, half).unwrap();
    });
    assert_eq!(errno(result), Errno::BUSY);
}

/// `..` of a directory that was moved out of what a bind mount shows does not exist, whichever call
/// looks it up (CVE-2015-2925). Neither does `..` of its subdirectories, as long as it is outside.
///
/// Race: A walk up against a move out of a bind mount.
#[test]
fn parents_outside_of_what_a_mount_shows() {
    let task = task();
    let dirs =
        ["/data", "/data/sub", "/data/sub/a", "/data/sub/a/b", "/data/out", "/jail", "/jail/m"];
    dirs.iter().for_each(|dir| task.create_dir(dir).unwrap());
    make(&task, "/data/secret");
    task.posix().bind("/data/sub", "/jail/m", false).unwrap();
    let jailed = task.fork();
    jailed.posix().chroot("/jail").unwrap();
    jailed.posix().chdir("/m/a/b").unwrap();
    let rename = |from, to| task.rename(from, to).unwrap();
    rename("/data/sub/a", "/data/out/a");
    for path in ["..", "../..", "../../../secret", "../b", "./.."] {
        assert_eq!(errno(jailed.metadata(path)), Errno::NOENT, "{path}");
        assert_eq!(errno(jailed.posix().open(path, OFlags::RDONLY, MODE)), Errno::NOENT, "{path}");
    }
    assert_eq!(
        errno(jailed.posix().open("../../x", OFlags::CREATE | OFlags::RDWR, MODE)),
        Errno::NOENT
    );
    let create_up = jailed.posix().open("..", OFlags::CREATE | OFlags::RDWR, MODE);
    assert_eq!(errno(create_up), Errno::NOENT);
    for resolve in [ResolveFlags::IN_ROOT, ResolveFlags::BENEATH, ResolveFlags::NO_XDEV] {
        let how = OpenHow { resolve, ..OpenHow::new(OFlags::PATH) };
        let deep = jailed.posix().open(".", OFlags::PATH, MODE).unwrap();
        // The start is the root of a scoped walk, so its `..` is the start itself or is refused.
        let expected = match resolve {
            ResolveFlags::IN_ROOT => None,
            ResolveFlags::BENEATH => Some(Errno::XDEV),
            _ => Some(Errno::NOENT),
        };
        let result = jailed.posix().openat2(At::File(&deep), "..", &how);
        assert_eq!(result.err().map(|error| error.errno()), expected, "{resolve:?}");
    }
    assert_eq!(jailed.posix().getcwd().unwrap().to_str(), Some("(unreachable)/"));
    assert_eq!(errno(jailed.posix().chdir("..")), Errno::NOENT);
    assert!(jailed.metadata(".").unwrap().is_dir());
    assert_eq!(errno(jailed.rename("../b", "c")), Errno::NOENT);
    // A directory that is moved back can be walked again.
    rename("/data/out/a", "/data/sub/a");
    assert_eq!(jailed.posix().getcwd().unwrap().to_str(), Some("/m/a/b"));
    jailed.posix().chdir("../..").unwrap();
    assert_eq!(jailed.posix().getcwd().unwrap().to_str(), Some("/m"));
    assert_eq!(errno(jailed.metadata("../secret")), Errno::NOENT);
}
