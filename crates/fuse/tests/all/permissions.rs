//! Permissions through a mount: other users, their groups, set-id bits, umask, ACLs.
//!
//! Needs root, to run helpers as other users.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::common::{self, BOTH, TestMount, is_root, run};
use rustix::fs::{Mode, OFlags, XattrFlags};
use rustix::io::Errno;
use vfscale_fuse::control::{self, Connection, Growth};

pub(crate) const ALICE: u32 = 4001;
pub(crate) const BOB: u32 = 4002;
pub(crate) const STAFF: u32 = 4100;

/// Returns a helper that runs in `dir` as another user, with these groups.
pub(crate) fn user(uid: u32, groups: &[u32], role: &str, dir: &Path) -> Command {
    common::user("permissions", uid, groups, role, dir)
}

/// Returns a helper that is user 0 without a capability.
fn root_without(cap: libc::c_ulong, role: &str, argument: &Path) -> Command {
    let mut command = common::helper("permissions", role, argument);
    // SAFETY: `prctl` is a system call, which is allowed between `fork` and `exec`. `exec` does not
    // grant capabilities that are missing from the bounding set.
    unsafe {
        command.pre_exec(move || match libc::prctl(libc::PR_CAPBSET_DROP, cap, 0, 0, 0) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
    command
}

/// Returns the names of extended attributes.
fn names(path: &Path) -> Vec<String> {
    let mut list = [0; 256];
    let len = rustix::fs::listxattr(path, &mut list).unwrap();
    let names = list[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    names.map(|name| String::from_utf8(name.to_vec()).unwrap()).collect()
}

pub(crate) fn errno<T: std::fmt::Debug, E: Into<std::io::Error>>(result: Result<T, E>) -> Errno {
    Errno::from_io_error(&result.map_err(E::into).unwrap_err()).unwrap()
}

fn mode(path: impl AsRef<Path>) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

fn chmod(path: impl AsRef<Path>, mode: u32) -> std::io::Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

/// The part of the helper processes of these tests.
#[test]
fn helper() {
    let Some((role, dir)) = common::role() else { return };
    common::become_user();
    let path = |name: &str| Path::new(&dir).join(name);
    match role.as_str() {
        "own" => {
            fs::write(path("file"), "x").unwrap();
            fs::create_dir(path("dir")).unwrap();
            std::os::unix::fs::symlink("x", path("link")).unwrap();
            rustix::fs::mkfifoat(rustix::fs::CWD, path("fifo"), Mode::from_raw_mode(0o600))
                .unwrap();
        }
        "stranger" => assert_eq!(errno(fs::metadata(path(""))), Errno::ACCESS),
        "outsider" => outsider(&path),
        "curious" => curious(&path),
        "namespace" => in_own_namespace(&path),
        "member" => {
            assert_eq!(fs::read_to_string(path("group-only")).unwrap(), "for staff");
            fs::write(path("group-dir/new"), "").unwrap();
            fs::write(path("acl"), "named").unwrap();
            // The user is in the group, so the set-group-id bit is retained.
            chmod(path("mine"), 0o2755).unwrap();
            assert_eq!(mode(path("mine")), 0o2755);
            rustix::fs::removexattr(path("mine"), "system.posix_acl_access").unwrap();
            assert_eq!(mode(path("mine")), 0o2755);
            chown(path("mine"), None, Some(STAFF)).unwrap();
        }
        "write-set-id" => {
            for name in ["suid", "sgid"] {
                OpenOptions::new().append(true).open(path(name)).unwrap().write_all(b"x").unwrap();
            }
            common::truncate(&path("truncated"), 0).unwrap();
            drop(OpenOptions::new().write(true).truncate(true).open(path("opened")).unwrap());
            let allocated = OpenOptions::new().write(true).open(path("allocated")).unwrap();
            rustix::fs::fallocate(&allocated, rustix::fs::FallocateFlags::empty(), 0, 100).unwrap();
        }
        "chown-nothing" => chown_nothing(&path),
        "write-capable" => {
            let refused = rustix::fs::removexattr(path("kept"), "security.capability");
            assert_eq!(refused, Err(Errno::PERM));
            OpenOptions::new().write(true).open(path("cut")).unwrap().set_len(1).unwrap();
            OpenOptions::new().append(true).open(path("written")).unwrap().write_all(b"x").unwrap();
        }
        "noatime" => {
            for name in ["file", "dir"] {
                File::open(path(name)).unwrap();
                let flags = OFlags::RDONLY | OFlags::NOATIME;
                let opened = rustix::fs::open(path(name), flags, Mode::empty());
                assert_eq!(opened.unwrap_err(), Errno::PERM, "{name}");
            }
            rustix::fs::open(path("mine"), OFlags::NOATIME, Mode::empty()).unwrap();
        }
        "sticky" => {
            assert_eq!(errno(fs::remove_file(path("tmp/alice"))), Errno::PERM);
            assert_eq!(errno(fs::rename(path("tmp/alice"), path("tmp/x"))), Errno::PERM);
            fs::write(path("tmp/bob"), "").unwrap();
            fs::remove_file(path("tmp/bob")).unwrap();
        }
        "list" => assert_eq!(names(&path("file")), ["user.x"]),
        "set-lists" => {
            let list = [(USER_OBJ, 7, NONE), (GROUP_OBJ, 5, NONE), (OTHER, 5, NONE)];
            set_acl(&path("d"), "default", &list);
            assert_eq!(mode(path("d")), 0o2755, "a default list is not part of the mode");
            set_acl(&path("d"), "access", &list);
            assert_eq!(mode(path("d")), 0o755);
        }
        "exec-only" => {
            assert!(Command::new(path("true")).status().unwrap().success());
            assert_eq!(errno(File::open(path("true"))), Errno::ACCESS);
        }
        other => panic!("{other}"),
    }
}

fn outsider(path: &dyn Fn(&str) -> std::path::PathBuf) {
    assert_eq!(errno(fs::read(path("private"))), Errno::ACCESS);
    assert_eq!(errno(fs::write(path("readable"), "")), Errno::ACCESS);
    assert_eq!(fs::read_to_string(path("readable")).unwrap(), "read me");
    assert_eq!(errno(fs::read(path("group-only"))), Errno::ACCESS);
    assert_eq!(errno(fs::metadata(path("closed/inside"))), Errno::ACCESS);
    assert_eq!(errno(fs::read_dir(path("closed"))), Errno::ACCESS);
    assert_eq!(errno(fs::write(path("new"), "")), Errno::ACCESS);
    assert_eq!(errno(fs::remove_file(path("readable"))), Errno::ACCESS);
    assert_eq!(errno(chmod(path("readable"), 0o777)), Errno::PERM);
    assert_eq!(errno(chown(path("readable"), Some(BOB), None)), Errno::PERM);
    assert_eq!(errno(fs::write(path("acl"), "")), Errno::ACCESS);
    let times = fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH);
    let refused = File::open(path("readable")).unwrap().set_times(times);
    assert_eq!(errno(refused), Errno::PERM);
    let name = "user.x";
    let set = rustix::fs::setxattr(path("readable"), name, b"", XattrFlags::empty());
    assert_eq!(set, Err(Errno::ACCESS));
    let trusted = rustix::fs::setxattr(path("readable"), "trusted.x", b"", XattrFlags::empty());
    assert_eq!(trusted, Err(Errno::PERM));
    assert_eq!(errno(control::connect(path(""))), Errno::PERM);
    assert_eq!(fstrim(&path("")), Err(Errno::PERM));
}

/// Discards all free blocks, as fstrim(8) does.
fn fstrim(dir: &Path) -> Result<u64, Errno> {
    const FITRIM: libc::c_ulong = 0xc018_5879;
    let mut range = [0, u64::MAX, 0];
    let dir = File::open(dir).unwrap();
    // SAFETY: the call reads and writes the three fields of a `struct fstrim_range`.
    match unsafe { libc::ioctl(dir.as_raw_fd(), FITRIM as _, range.as_mut_ptr()) } {
        0 => Ok(range[1]),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap()),
    }
}

/// A user who may make no requests, and has got the address of the mount from one who may.
fn curious(path: &dyn Fn(&str) -> std::path::PathBuf) {
    assert_eq!(errno(control::connect(path(""))), Errno::PERM);
    let address = fs::read(path("address")).unwrap().try_into().unwrap();
    let asked = Connection::open(&address, None).and_then(|it| it.statistics());
    assert_eq!(errno(asked), Errno::PERM);
}

#[test]
fn only_the_owner_reads_without_a_time_of_access() {
    for m in TestMount::both_as_root() {
        chmod(m.dir(), 0o755).unwrap();
        fs::write(m.path("file"), "x").unwrap();
        fs::create_dir(m.path("dir")).unwrap();
        fs::write(m.path("mine"), "x").unwrap();
        chown(m.path("mine"), Some(ALICE), None).unwrap();
        run(user(ALICE, &[], "noatime", m.dir()));
    }
}

#[test]
fn files_belong_to_their_creator() {
    for m in TestMount::both_as_root() {
        chmod(m.dir(), 0o777).unwrap();
        run(user(ALICE, &[], "own", m.dir()));
        for name in ["file", "dir", "link", "fifo"] {
            let meta = fs::symlink_metadata(m.path(name)).unwrap();
            assert_eq!((meta.uid(), meta.gid()), (ALICE, ALICE), "{name}");
        }
        fs::create_dir(m.path("staff")).unwrap();
        chown(m.path("staff"), None, Some(STAFF)).unwrap();
        chmod(m.path("staff"), 0o2777).unwrap();
        run(user(BOB, &[], "own", &m.path("staff")));
        for name in ["file", "dir", "link", "fifo"] {
            let meta = fs::symlink_metadata(m.path("staff").join(name)).unwrap();
            assert_eq!((meta.uid(), meta.gid()), (BOB, STAFF), "{name}");
        }
        assert_eq!(mode(m.path("staff/dir")) & 0o7000, 0o2000);
    }
}

#[test]
fn permissions_bind_others() {
    for m in TestMount::both_as_root() {
        prepare(&m);
        run(user(BOB, &[], "outsider", m.dir()));
        let connect = |dir: &Path| control::connect(dir).unwrap();
        let all = vfscale::posix::FstrimRange { start: 0, len: u64::MAX, minlen: 0 };
        for dir in [m.dir(), &m.path("group-dir")] {
            assert_eq!(
                errno(connect(dir).grow(None, Growth::To(1 << 30))),
                Errno::OPNOTSUPP,
                "memory"
            );
            assert_eq!(errno(connect(dir).trim(all)), Errno::OPNOTSUPP, "memory");
            assert_eq!(fstrim(dir), Err(Errno::OPNOTSUPP), "memory");
        }
        run(user(BOB, &[STAFF], "member", m.dir()));
        assert_eq!(fs::metadata(m.path("group-dir/new")).unwrap().uid(), BOB);
        assert_eq!(fs::metadata(m.path("mine")).unwrap().gid(), STAFF);
    }
}

/// Attributes of the administrator are hidden from other users, and from user 0 without the
/// capability.
#[test]
fn trusted_names_are_for_the_administrator() {
    const SYS_ADMIN: libc::c_ulong = 21;
    for m in TestMount::both_as_root() {
        chmod(m.dir(), 0o755).unwrap();
        fs::write(m.path("file"), "").unwrap();
        for name in ["trusted.x", "user.x"] {
            rustix::fs::setxattr(m.path("file"), name, b"", XattrFlags::empty()).unwrap();
        }
        assert_eq!(names(&m.path("file")), ["trusted.x", "user.x"]);
        run(root_without(SYS_ADMIN, "list", m.dir()));
        run(user(BOB, &[], "list", m.dir()));
    }
}

fn prepare(m: &TestMount) {
    let make = |name: &str, text: &str, mode: u32| {
        fs::write(m.path(name), text).unwrap();
        chmod(m.path(name), mode).unwrap();
    };
    chmod(m.dir(), 0o755).unwrap();
    make("private", "", 0o600);
    make("readable", "read me", 0o644);
    make("group-only", "for staff", 0o640);
    chown(m.path("group-only"), None, Some(STAFF)).unwrap();
    fs::create_dir(m.path("closed")).unwrap();
    make("closed/inside", "", 0o666);
    chmod(m.path("closed"), 0o700).unwrap();
    fs::create_dir(m.path("group-dir")).unwrap();
    chown(m.path("group-dir"), None, Some(STAFF)).unwrap();
    chmod(m.path("group-dir"), 0o770).unwrap();
    make("mine", "", 0o644);
    chown(m.path("mine"), Some(BOB), Some(STAFF)).unwrap();
    make("acl", "", 0o640);
    set_acl(
        &m.path("acl"),
        "access",
        &[
            (USER_OBJ, 6, NONE),
            (GROUP_OBJ, 4, NONE),
            (GROUP, 6, STAFF),
            (MASK, 6, NONE),
            (OTHER, 0, NONE),
        ],
    );
    assert_eq!(mode(m.path("acl")), 0o660, "the mask shows as the group's bits");
}

const USER_OBJ: u16 = 1;
const USER: u16 = 2;
const GROUP_OBJ: u16 = 4;
const GROUP: u16 = 8;
const MASK: u16 = 16;
const OTHER: u16 = 32;
const NONE: u32 = u32::MAX;

/// Returns the value of Linux's attribute for an ACL of tags, permissions and ids.
pub(crate) fn acl_value(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut value = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        value.extend(tag.to_le_bytes());
        value.extend(permissions.to_le_bytes());
        value.extend(id.to_le_bytes());
    }
    value
}

fn set_acl(path: &Path, kind: &str, entries: &[(u16, u16, u32)]) {
    let name = format!("system.posix_acl_{kind}");
    rustix::fs::setxattr(path, name, &acl_value(entries), XattrFlags::empty()).unwrap();
}

fn acl(path: &Path, kind: &str) -> Result<Vec<u8>, Errno> {
    let mut value = vec![0; 1000];
    let n = rustix::fs::getxattr(path, format!("system.posix_acl_{kind}"), &mut value[..])?;
    value.truncate(n);
    Ok(value)
}

#[test]
fn access_lists_are_stored_and_inherited() {
    for m in TestMount::both() {
        fs::create_dir(m.path("d")).unwrap();
        let list = [
            (USER_OBJ, 7, NONE),
            (USER, 6, ALICE),
            (GROUP_OBJ, 5, NONE),
            (MASK, 6, NONE),
            (OTHER, 0, NONE),
        ];
        set_acl(&m.path("d"), "default", &list);
        let mut make = Command::new("sh");
        make.args(["-c", "umask 077; : >d/f; mkdir d/sub"]).current_dir(m.dir());
        run(make);
        // The default list replaces the umask.
        assert_eq!(mode(m.path("d/f")), 0o660);
        let inherited = acl(&m.path("d/f"), "access").unwrap();
        assert_eq!(inherited.len(), 4 + 5 * 8);
        assert_eq!(
            acl(&m.path("d/sub"), "default").unwrap(),
            acl(&m.path("d"), "default").unwrap()
        );
        assert_eq!(acl(&m.path("d/f"), "default"), Err(Errno::NODATA));
        chmod(m.path("d/f"), 0o600).unwrap();
        let masked = acl(&m.path("d/f"), "access").unwrap();
        assert_ne!(masked, inherited, "chmod changes the mask");
        rustix::fs::removexattr(m.path("d/f"), "system.posix_acl_access").unwrap();
        assert_eq!(acl(&m.path("d/f"), "access"), Err(Errno::NODATA));
    }
}

#[test]
fn an_access_list_set_from_outside_the_group_clears_the_set_group_id_bit() {
    for m in TestMount::both_as_root() {
        fs::create_dir(m.path("d")).unwrap();
        chown(m.path("d"), Some(BOB), Some(STAFF)).unwrap();
        chmod(m.path("d"), 0o2755).unwrap();
        run(user(BOB, &[], "set-lists", m.dir()));
    }
}

#[test]
fn the_umask_takes_bits_away() {
    for m in TestMount::both() {
        let script = "umask 027; : >f; mkdir d; mkfifo p; umask 0; : >g; mkdir e";
        let status = Command::new("sh").arg("-c").arg(script).current_dir(m.dir()).status();
        assert!(status.unwrap().success());
        let modes = ["f", "d", "p", "g", "e"].map(|name| mode(m.path(name)));
        assert_eq!(modes, [0o640, 0o750, 0o640, 0o666, 0o777]);
    }
}

#[test]
fn a_write_by_another_user_clears_set_id_bits() {
    for m in TestMount::both_as_root() {
        let sharing = m.sharing;
        for (name, bits) in [
            ("suid", 0o4777),
            ("sgid", 0o2777),
            ("truncated", 0o6777),
            ("opened", 0o6777),
            ("allocated", 0o6777),
            ("root", 0o6777),
            ("chowned", 0o6777),
        ] {
            fs::write(m.path(name), "text").unwrap();
            chmod(m.path(name), bits).unwrap();
            assert_eq!(mode(m.path(name)), bits);
        }
        run(user(BOB, &[], "write-set-id", m.dir()));
        for name in ["suid", "sgid", "truncated", "opened", "allocated"] {
            assert_eq!(mode(m.path(name)), 0o777, "{name} {sharing:?}");
        }
        // Root retains them when it writes, but not when it changes the owner.
        OpenOptions::new().append(true).open(m.path("root")).unwrap().write_all(b"x").unwrap();
        assert_eq!(mode(m.path("root")), 0o6777);
        chown(m.path("chowned"), Some(ALICE), None).unwrap();
        assert_eq!(mode(m.path("chowned")), 0o777);
    }
}

/// Calls `chown` without an owner or a group, as a user who neither owns the files nor may write
/// them. tmpfs refuses this for those with set-id bits.
fn chown_nothing(path: &dyn Fn(&str) -> std::path::PathBuf) {
    for name in ["both", "no-execute", "plain", "dir"] {
        chown(path(name), None, None).unwrap();
    }
}

/// Returns the file's mode and the time of its last change.
fn change(path: &Path) -> (u32, (i64, i64)) {
    let stat = fs::metadata(path).unwrap();
    (stat.mode() & 0o7777, (stat.ctime(), stat.ctime_nsec()))
}

#[test]
fn a_chown_of_nothing_clears_set_id_bits_and_sets_the_change_time() {
    for m in TestMount::both_as_root() {
        let sharing = m.sharing;
        let files = [("both", 0o6755), ("no-execute", 0o2745), ("plain", 0o644), ("dir", 0o2755)];
        for (name, bits) in files {
            match name {
                "dir" => fs::create_dir(m.path(name)).unwrap(),
                _ => fs::write(m.path(name), "text").unwrap(),
            }
            chmod(m.path(name), bits).unwrap();
        }
        run(user(BOB, &[], "chown-nothing", m.dir()));
        for (name, bits) in files {
            let before = change(&m.path(name));
            assert_eq!(before.0, bits, "{name} {sharing:?}");
            vfscale_harness::pause(std::time::Duration::from_millis(20));
            chown(m.path(name), None, None).unwrap();
            let (mode, after) = change(&m.path(name));
            let cleared = if name == "both" { 0o755 } else { bits };
            assert_eq!(mode, cleared, "{name} {sharing:?}");
            assert!(after > before.1, "{name} {sharing:?}: {after:?}");
        }
    }
}

#[test]
fn a_write_by_another_user_removes_file_capabilities() {
    // Version 2, effective, `CAP_CHOWN`.
    let value = [1, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let name = "security.capability";
    for m in TestMount::both_as_root() {
        let sharing = m.sharing;
        for file in ["kept", "cut", "written"] {
            fs::write(m.path(file), "text").unwrap();
            chmod(m.path(file), 0o666).unwrap();
            rustix::fs::setxattr(m.path(file), name, &value, XattrFlags::empty()).unwrap();
        }
        run(user(BOB, &[], "write-capable", m.dir()));
        let mut buffer = [0; 64];
        let mut size = |file| rustix::fs::getxattr(m.path(file), name, &mut buffer[..]);
        assert_eq!(size("kept"), Ok(value.len()));
        assert_eq!(size("cut"), Err(Errno::NODATA), "{sharing:?}");
        assert_eq!(size("written"), Err(Errno::NODATA), "{sharing:?}");
        assert_eq!(fs::read(m.path("cut")).unwrap(), b"t");
    }
}

#[test]
fn a_cut_that_changes_nothing_leaves_the_times() {
    for sharing in BOTH {
        let Some(m) = TestMount::new(sharing) else { return };
        let (cut, opened, open) = (m.path("cut"), m.path("opened"), m.path("open"));
        let old = fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH);
        for path in [&cut, &opened, &open] {
            File::create(path).unwrap().set_times(old).unwrap();
        }
        common::truncate(&cut, 0).unwrap();
        drop(OpenOptions::new().write(true).truncate(true).open(&opened).unwrap());
        OpenOptions::new().write(true).open(&open).unwrap().set_len(0).unwrap();
        let is_old = |path| fs::metadata(path).unwrap().mtime() == 0;
        assert!(!is_old(opened) && !is_old(open), "{sharing:?}");
        // In exclusive use the kernel sends the same request as for `O_TRUNC`.
        assert_eq!(is_old(cut), sharing == common::SHARED);
    }
}

#[test]
fn sticky_directories_protect() {
    for m in TestMount::both_as_root() {
        fs::create_dir(m.path("tmp")).unwrap();
        chmod(m.path("tmp"), 0o1777).unwrap();
        fs::write(m.path("tmp/alice"), "").unwrap();
        chown(m.path("tmp/alice"), Some(ALICE), None).unwrap();
        run(user(BOB, &[], "sticky", m.dir()));
        assert!(m.path("tmp/alice").exists());
    }
}

#[test]
fn files_with_only_execute_permission_run() {
    for m in TestMount::both_as_root() {
        fs::copy("/bin/true", m.path("true")).unwrap();
        chmod(m.path("true"), 0o711).unwrap();
        run(user(BOB, &[], "exec-only", m.dir()));
    }
}

#[test]
fn a_mount_without_allow_other_is_for_its_owner() {
    let Some(m) = TestMount::with(vfscale_fuse::Sharing::Exclusive, |b| b.allow_other(false))
    else {
        return;
    };
    if !is_root() {
        return;
    }
    chmod(m.dir(), 0o777).unwrap();
    run(user(ALICE, &[], "stranger", m.dir()));
}

/// Makes a process with a user namespace of its own, in which it has all capabilities, and shows
/// that they have no effect on a mount that was made outside.
fn in_own_namespace(path: &dyn Fn(&str) -> std::path::PathBuf) {
    // SAFETY: glibc makes its allocator usable in a child, and nothing else here has a lock. The
    // child ends by `_exit`, so it does not return to the tests.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| as_its_root(path)));
            libc::_exit(i32::from(done.is_err()));
        }
        let mut status = 0;
        assert_eq!((libc::waitpid(child, &mut status, 0), status), (child, 0));
    }
}

/// The part of that process.
fn as_its_root(path: &dyn Fn(&str) -> std::path::PathBuf) {
    // SAFETY: the call takes no pointer.
    if unsafe { libc::unshare(libc::CLONE_NEWUSER) } != 0 {
        return common::skipped("user namespaces are not permitted");
    }
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
    assert_ne!(effective.trim().trim_start_matches('0'), "", "it has capabilities there");
    assert_eq!(errno(control::connect(path(""))), Errno::PERM);
    let file = File::open(path("mine")).unwrap();
    let immutable = rustix::fs::ioctl_setflags(&file, rustix::fs::IFlags::IMMUTABLE);
    assert_eq!(immutable, Err(Errno::PERM));
    // Its owner is in no group of the file, so the set-group-id bit is cleared.
    chmod(path("mine"), 0o2755).unwrap();
    assert_eq!(mode(path("mine")), 0o755);
    assert!(names(&path("mine")).is_empty());
}

#[test]
fn capabilities_of_another_user_namespace_do_not_count() {
    for m in TestMount::both_as_root() {
        chmod(m.dir(), 0o755).unwrap();
        fs::write(m.path("mine"), "").unwrap();
        rustix::fs::setxattr(m.path("mine"), "trusted.x", b"x", XattrFlags::empty()).unwrap();
        chown(m.path("mine"), Some(BOB), Some(STAFF)).unwrap();
        run(user(BOB, &[], "namespace", m.dir()));
    }
}

#[test]
fn only_the_owner_and_root_read_statistics() {
    if !is_root() {
        return;
    }
    let Some(m) = TestMount::new(common::SHARED) else { return };
    fs::create_dir(m.path("open")).unwrap();
    chmod(m.dir(), 0o755).unwrap();
    let address = control::address(m.dir()).unwrap();
    for dir in [m.dir(), &m.path("open")] {
        fs::write(dir.join("address"), address).unwrap();
        run(user(BOB, &[], "curious", dir));
    }
    let statistics = control::connect(m.path("open")).unwrap().statistics().unwrap();
    assert!(statistics.count("IOCTL") >= 2, "the refused requests are counted: {statistics:?}");
    // A name alone, which every user can find in /proc/net/unix, is not enough.
    let mut unknown = address;
    unknown[32..].fill(b'0');
    let asked = Connection::open(&unknown, None).and_then(|it| it.statistics());
    assert_eq!(errno(asked), Errno::PROTO);
}
