//! Id-mapped mounts: users see other owners than are stored.
//!
//! Needs root, and Linux 6.12.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::fs::{CWD, XattrFlags};
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, UnmountFlags, move_mount, open_tree};
use tempfile::TempDir;
use vfscale::Volume;
use vfscale_fuse::{MountError, Sharing, control};

use crate::common::{self, TestMount, is_root, run};
use crate::permissions::{ALICE, BOB, STAFF, acl_value, errno};

/// The difference between stored ids and those in the id-mapped mount, from [`FIRST`] on.
const STORED: u32 = 3000;
const FIRST: u32 = 4000;

/// A process whose user namespace maps ids.
struct Namespace(Child);

impl Namespace {
    fn new() -> Namespace {
        let mut command = Command::new("unshare");
        command.args(["--user", "sh", "-c", "echo ready; cat"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        // User 0 is mapped to itself.
        let map = format!("0 0 1\n{} {FIRST} 1000\n", FIRST + STORED);
        for file in ["uid_map", "gid_map"] {
            fs::write(format!("/proc/{}/{file}", child.id()), &map).unwrap();
        }
        Namespace(child)
    }

    fn open(&self) -> File {
        File::open(format!("/proc/{}/ns/user", self.0.id())).unwrap()
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Makes the detached mount `tree` an id-mapped one.
fn map_ids(tree: &OwnedFd, namespace: &File) -> std::io::Result<()> {
    let attr = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_IDMAP,
        attr_clr: 0,
        propagation: 0,
        userns_fd: namespace.as_raw_fd() as u64,
    };
    // SAFETY: the call reads an empty string that ends with a zero, and a structure of the size
    // that it is told.
    let code = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_fd().as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            &raw const attr,
            size_of::<libc::mount_attr>(),
        )
    };
    if code == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// Clones the mount at `dir`, and tries to make the clone an id-mapped one.
fn clone_mapped(dir: &Path) -> std::io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let tree = open_tree(CWD, dir, flags)?;
    map_ids(&tree, &Namespace::new().open())?;
    Ok(tree)
}

/// A second mount of a mounted file system, which maps ids.
struct Mapped {
    dir: TempDir,
    plain: TestMount,
    /// The volume that is mounted, and the directory of its image.
    _volume: Option<(Volume, TempDir)>,
}

impl Mapped {
    fn of(plain: TestMount, volume: Option<(Volume, TempDir)>) -> Mapped {
        let tree = clone_mapped(plain.dir()).unwrap();
        let dir = tempfile::tempdir().unwrap();
        move_mount(&tree, "", CWD, dir.path(), MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH).unwrap();
        Mapped { dir, plain, _volume: volume }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Returns owner, group and mode as they are stored.
    fn stored(&self, name: &str) -> (u32, u32, u32) {
        let known = self.plain.vfs.task().symlink_metadata(Path::new("/").join(name)).unwrap();
        let shown = fs::symlink_metadata(self.plain.path(name)).unwrap();
        assert_eq!((known.uid, known.gid), (shown.uid(), shown.gid()), "{name}");
        (shown.uid(), shown.gid(), shown.mode() & 0o7777)
    }

    /// Runs a helper as a user, in the id-mapped mount.
    fn run(&self, uid: u32, groups: &[u32], role: &str) {
        run(common::user("idmap", uid, groups, role, self.dir.path()));
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        rustix::mount::unmount(self.dir.path(), UnmountFlags::DETACH).unwrap();
    }
}

/// Returns a mount of memory, or of a new volume, that can be id-mapped.
fn mount(on_volume: bool) -> Option<Mapped> {
    if !is_root() {
        return None;
    }
    let volume = on_volume.then(|| {
        let place = tempfile::tempdir().unwrap();
        let volume = vfscale::volume(place.path().join("disk.vfs")).create(64 << 20).open();
        (volume.unwrap(), place)
    });
    let vfs = volume.as_ref().map_or_else(|| common::memory(64 << 20), |(it, _)| it.vfs().clone());
    let plain = TestMount::of(vfs, Sharing::Exclusive, |builder| builder.idmap(true))?;
    Some(Mapped::of(plain, volume))
}

fn owner(path: &Path) -> (u32, u32) {
    let found = fs::symlink_metadata(path).unwrap();
    (found.uid(), found.gid())
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// The part of the helper processes of these tests.
#[test]
fn helper() {
    let Some((role, dir)) = common::role() else { return };
    common::become_user();
    let path = |name: &str| Path::new(&dir).join(name);
    match role.as_str() {
        "create" => {
            fs::write(path("home/file"), "x").unwrap();
            fs::create_dir(path("home/dir")).unwrap();
            std::os::unix::fs::symlink("x", path("home/link")).unwrap();
            fs::write(path("shared/file"), "x").unwrap();
            fs::create_dir(path("shared/dir")).unwrap();
            assert_eq!(owner(&path("home/file")), (ALICE, ALICE));
            assert_eq!(owner(&path("shared/file")), (ALICE, STAFF));
            fs::hard_link(path("home/file"), path("home/other")).unwrap();
            fs::rename(path("home/other"), path("home/third")).unwrap();
            fs::remove_file(path("home/third")).unwrap();
        }
        "own" => {
            chmod(&path("home/file"), 0o2755);
            chown(path("home/file"), None, Some(STAFF)).unwrap();
            assert_eq!(errno(chown(path("home/file"), Some(BOB), None)), Errno::PERM);
            chmod(&path("home/file"), 0o2640);
            assert_eq!(fs::metadata(path("home/file")).unwrap().mode() & 0o7777, 0o2640);
            assert_eq!(errno(fs::write(path("roots"), "x")), Errno::ACCESS);
            assert_eq!(errno(fs::write(path("new"), "x")), Errno::ACCESS);
        }
        "outsider" => {
            assert_eq!(errno(fs::read(path("home/file"))), Errno::ACCESS);
            assert_eq!(errno(fs::write(path("home/new"), "x")), Errno::ACCESS);
            assert_eq!(errno(fs::remove_file(path("home/file"))), Errno::ACCESS);
            assert_eq!(errno(control::connect(path(""))), Errno::PERM);
        }
        "member" => assert_eq!(fs::read(path("home/file")).unwrap(), b"x"),
        "named" => assert_eq!(fs::read(path("home/acl")).unwrap(), b"secret"),
        "write-set-id" => {
            let mut file = OpenOptions::new().append(true).open(path("set-id")).unwrap();
            file.write_all(b"x").unwrap();
        }
        other => panic!("no role {other}"),
    }
}

fn with_both(test: impl Fn(&Mapped)) {
    for on_volume in [false, true] {
        let Some(mapped) = mount(on_volume) else { return };
        test(&mapped);
    }
}

/// Makes the directories of Alice, as the owners that are stored.
fn homes(mapped: &Mapped) {
    chmod(mapped.plain.dir(), 0o755);
    for (name, mode) in [("home", 0o755), ("shared", 0o2775)] {
        fs::create_dir(mapped.plain.path(name)).unwrap();
        chown(mapped.plain.path(name), Some(ALICE + STORED), Some(STAFF + STORED)).unwrap();
        chmod(&mapped.plain.path(name), mode);
    }
    fs::write(mapped.plain.path("roots"), "root's").unwrap();
}

#[test]
fn owners_are_mapped_in_both_directions() {
    with_both(|mapped| {
        homes(mapped);
        assert_eq!(owner(&mapped.path("home")), (ALICE, STAFF));
        assert_eq!(owner(&mapped.path("roots")), (0, 0));
        mapped.run(ALICE, &[STAFF], "create");
        let (alice, staff) = (ALICE + STORED, STAFF + STORED);
        for name in ["home/file", "home/dir", "home/link"] {
            let (uid, gid, _) = mapped.stored(name);
            assert_eq!((uid, gid), (alice, alice), "{name}");
        }
        assert_eq!(mapped.stored("shared/file"), (alice, staff, 0o644));
        assert_eq!(mapped.stored("shared/dir"), (alice, staff, 0o2755));
        // By root, to a user that the mount maps, and to one that it does not map.
        chown(mapped.path("home/dir"), Some(BOB), None).unwrap();
        assert_eq!(mapped.stored("home/dir").0, BOB + STORED);
        assert_eq!(errno(chown(mapped.path("home/dir"), Some(5), None)), Errno::OVERFLOW);
        fs::write(mapped.path("home/roots"), "x").unwrap();
        assert_eq!(mapped.stored("home/roots"), (0, 0, 0o644));
        // The plain mount shows what is stored, and has the users that are stored.
        fs::write(mapped.plain.path("plain"), "x").unwrap();
        chown(mapped.plain.path("plain"), Some(ALICE), None).unwrap();
        assert_eq!(owner(&mapped.path("plain")).0, 65534, "not mapped");
        chown(mapped.plain.path("plain"), Some(0), None).unwrap();
        assert_eq!(owner(&mapped.path("plain")).0, 0);
    });
}

#[test]
fn permissions_are_those_of_the_mapped_users() {
    with_both(|mapped| {
        homes(mapped);
        mapped.run(ALICE, &[STAFF], "create");
        mapped.run(ALICE, &[STAFF], "own");
        let (alice, staff) = (ALICE + STORED, STAFF + STORED);
        assert_eq!(mapped.stored("home/file"), (alice, staff, 0o2640));
        mapped.run(BOB, &[], "outsider");
        mapped.run(BOB, &[STAFF], "member");
        // On the plain mount the same numbers are strangers.
        run(common::user("idmap", ALICE, &[STAFF], "outsider", mapped.plain.dir()));
        run(common::user("idmap", alice, &[], "member", mapped.plain.dir()));
        control::connect(mapped.path("")).unwrap().statistics().unwrap();
    });
}

#[test]
fn lists_and_set_id_bits_follow_the_mapped_ids() {
    with_both(|mapped| {
        homes(mapped);
        fs::write(mapped.path("home/acl"), "secret").unwrap();
        chmod(&mapped.path("home/acl"), 0o600);
        // The owner, a named user, the group, the mask, others.
        let acl = |uid: u32| {
            acl_value(&[
                (1, 6, u32::MAX),
                (2, 4, uid),
                (4, 0, u32::MAX),
                (16, 4, u32::MAX),
                (32, 0, u32::MAX),
            ])
        };
        let name = "system.posix_acl_access";
        let file = mapped.path("home/acl");
        rustix::fs::setxattr(&file, name, &acl(BOB), XattrFlags::empty()).unwrap();
        let stored = mapped.plain.path("home/acl");
        for (path, uid) in [(&file, BOB), (&stored, BOB + STORED)] {
            let mut value = [0; 256];
            let len = rustix::fs::getxattr(path, name, &mut value).unwrap();
            assert_eq!(value[..len], acl(uid), "{}", path.display());
        }
        mapped.run(BOB, &[], "named");

        fs::write(mapped.path("set-id"), "x").unwrap();
        chown(mapped.path("set-id"), Some(ALICE), Some(STAFF)).unwrap();
        chmod(&mapped.path("set-id"), 0o6777);
        mapped.run(BOB, &[], "write-set-id");
        assert_eq!(mapped.stored("set-id").2, 0o777);
        chmod(&mapped.path("set-id"), 0o6777);
        chown(mapped.path("set-id"), Some(BOB), None).unwrap();
        assert_eq!(mapped.stored("set-id").2, 0o777, "as for every change of the owner");
    });
}

/// Other mounts can't be id-mapped, and a shared one can't be made one that can.
#[test]
fn a_mount_is_id_mapped_on_request_only() {
    if !is_root() {
        return;
    }
    let Some(plain) = TestMount::new(Sharing::Exclusive) else { return };
    assert_eq!(errno(clone_mapped(plain.dir())), Errno::INVAL);
    let dir = tempfile::tempdir().unwrap();
    let builder = vfscale_fuse::Builder::new(&plain.vfs).sharing(common::SHARED).idmap(true);
    let refused = builder.mount(dir.path());
    assert!(matches!(refused.err(), Some(MountError::IdMap(why)) if why.contains("exclusive")));
}
