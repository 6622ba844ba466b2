//! Processes with fewer or other rights than their user number tells: user 0 of a container without
//! capabilities, and user namespaces with a range of ids.
//!
//! Needs root, to run helpers as other users. A test process of its own, because a new namespace of
//! mounts has all of this process, and keeps those alive that another test has unmounted.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown, lchown};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::io::Errno;
use vfscale_fuse::control::{self, Connection, Request};
use vfscale_fuse::{Builder, Sharing};

use common::{SHARED, TestMount, is_root, run, skipped};

const ALICE: u32 = 4001;

fn errno<T: std::fmt::Debug, E: Into<std::io::Error>>(result: Result<T, E>) -> Errno {
    Errno::from_io_error(&result.map_err(E::into).unwrap_err()).unwrap()
}

mod powerless {
    use super::*;

    /// The part of the helper processes of these tests.
    #[test]
    fn helper() {
        let Some((role, dir)) = common::role() else { return };
        assert_eq!(role, "powerless");
        let dir = Path::new(&dir);
        control::sync(dir).unwrap();
        assert_eq!(errno(control::connect(dir)), Errno::PERM);
        let address = fs::read(dir.join("address")).unwrap().try_into().unwrap();
        let asked = Connection::open(&address, None).and_then(|it| it.branches());
        assert_eq!(errno(asked), Errno::PERM);
        for (name, command) in [("own", SETFLAGS), ("own", SETFLAGS_32), ("others", SETFLAGS_32)] {
            let refused = set_immutable(&dir.join(name), command).unwrap_err();
            assert!(
                matches!(refused, Errno::PERM | Errno::NOTTY),
                "{name} {command:#x}: {refused}"
            );
        }
    }
}

const SETFLAGS: libc::c_ulong = 0x4008_6602;
/// The command of 32-bit programs, which the kernel does not check if others use it.
const SETFLAGS_32: libc::c_ulong = 0x4004_6602;

fn set_immutable(path: &Path, command: libc::c_ulong) -> Result<(), Errno> {
    let flags = &mut [0x10, 0, 0, 0, 0, 0, 0];
    common::flags_ioctl(path, command, flags).map_err(|error| Errno::from_io_error(&error).unwrap())
}

/// Returns a helper that is user 0 without any capability.
fn powerless(dir: &Path) -> Command {
    let helper = common::helper("powerless", "powerless", dir);
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set=-all", "--inh-caps=-all"]);
    command.arg(helper.get_program()).args(helper.get_args());
    command.envs(helper.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.stdout(Stdio::null());
    command
}

/// The root of a container has the number of the user who mounted, and often no capability.
#[test]
fn user_0_without_capabilities_has_no_control() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let kinds = [(Sharing::Exclusive, false), (SHARED, false), (Sharing::Exclusive, true)];
    for (sharing, idmap) in kinds {
        let image = dir.path().join(format!("{sharing:?}{idmap}"));
        let volume = vfscale::volume(image).create(64 << 20).open().unwrap();
        let maker = volume.pool_maker().unwrap();
        let mount = |builder: Builder| builder.idmap(idmap).first_branch(Some(maker));
        let Some(m) = TestMount::of(volume.vfs().clone(), sharing, mount) else { return };
        for (name, owner) in [("own", 0), ("others", ALICE)] {
            fs::write(m.path(name), "").unwrap();
            fs::set_permissions(m.path(name), Permissions::from_mode(0o644)).unwrap();
            chown(m.path(name), Some(owner), Some(owner)).unwrap();
        }
        fs::write(m.path("address"), control::address(m.dir()).unwrap()).unwrap();
        run(powerless(m.dir()));
        let connect = || control::connect(m.dir()).unwrap();
        assert_eq!(errno(connect().branches()), Errno::OPNOTSUPP, "root may");
        let request = Request::Fork {
            parent: String::from("main"),
            name: String::from("child"),
            read_only: false,
            as_synced: false,
            temporary: false,
        };
        connect().tell(&request).unwrap();
        assert_eq!(connect().branches().unwrap().len(), 2);
        drop(m);
    }
}

/// Runs a shell script in `dir` as root of a user namespace of [`ALICE`] that has a range of ids.
/// Returns the errors that it printed.
fn in_namespace(dir: &Path, script: &str) -> String {
    let mut command = Command::new("setpriv");
    command.args([format!("--reuid={ALICE}"), format!("--regid={ALICE}")]);
    let wait = "echo ready; read line; exec sh -c \"$0\"";
    command.args(["--clear-groups", "unshare", "--user", "--mount", "sh", "-c", wait, script]);
    command.current_dir(dir).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    for file in ["uid_map", "gid_map"] {
        let map = format!("0 {ALICE} 1\n1 {FIRST} 1000\n");
        fs::write(format!("/proc/{}/{file}", child.id()), map).unwrap();
    }
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    let ended = child.wait_with_output().unwrap();
    String::from_utf8(ended.stderr).unwrap()
}

/// The id that is 1 in the namespaces.
const FIRST: u32 = 100_000;

/// Containers that are run without root give files to the users of the container.
#[test]
fn a_user_namespace_owns_the_files_of_its_ids() {
    if !is_root() {
        return;
    }
    let Some(m) = TestMount::new(Sharing::Exclusive) else { return };
    fs::create_dir(m.path("home")).unwrap();
    chown(m.path("home"), Some(ALICE), Some(ALICE)).unwrap();
    let script = "touch f g; mkdir d; ln -s x l; mkfifo p; chown 5:6 f; chown -h 7 d l p; \
                  chmod 2775 d; touch d/in; chmod 600 f; touch -d @5 f; rm -f d/in; ln f h; \
                  truncate -s 7 f; mv h i; \
                  ! command -v setfattr >/dev/null || setfattr -n user.x -v y f";
    assert_eq!(in_namespace(&m.path("home"), script), "");
    let meta = |name: &str| fs::symlink_metadata(m.path("home").join(name)).unwrap();
    let owner = |name: &str| (meta(name).uid(), meta(name).gid());
    assert_eq!(owner("f"), (FIRST + 4, FIRST + 5));
    assert_eq!(meta("i").ino(), meta("f").ino());
    assert_eq!((meta("f").mode() & 0o7777, meta("f").size()), (0o600, 7));
    for name in ["d", "l", "p"] {
        assert_eq!(owner(name), (FIRST + 6, ALICE), "{name}");
    }
    assert!(meta("p").file_type().is_fifo());
    assert_eq!(meta("d").mode() & 0o7777, 0o2775);
}

/// The kernel permits no more than what the ids of the namespace own.
#[test]
fn a_user_namespace_has_no_rights_on_other_files() {
    if !is_root() {
        return;
    }
    for sharing in common::BOTH {
        let Some(m) = TestMount::new(sharing) else { return };
        fs::create_dir(m.path("home")).unwrap();
        for name in ["home", "home/own"] {
            fs::write(m.path(name), "").ok();
            lchown(m.path(name), Some(ALICE), Some(ALICE)).unwrap();
        }
        fs::write(m.path("suid"), "text").unwrap();
        fs::set_permissions(m.path("suid"), Permissions::from_mode(0o4755)).unwrap();
        fs::write(m.path("home/suid"), "text").unwrap();
        fs::set_permissions(m.path("home/suid"), Permissions::from_mode(0o4755)).unwrap();
        for refused in [
            "chown 0 ../suid",
            "chown 5 ../suid",
            "chmod 777 ../suid",
            "echo > ../suid",
            "rm ../suid",
            "touch ../new",
            "ln ../suid linked",
            "touch -d @5 ../suid",
            "setfattr -n user.x -v y ../suid",
            "setfattr -n trusted.x -v y own",
            "mknod dev c 1 3",
        ] {
            assert_ne!(in_namespace(&m.path("home"), refused), "", "{sharing:?}: {refused}");
        }
        // The kernel asks about nothing there; nothing may change.
        in_namespace(&m.path("home"), "chown : ../suid suid");
        for name in ["suid", "home/suid"] {
            let meta = fs::metadata(m.path(name)).unwrap();
            assert_eq!((meta.uid(), meta.mode() & 0o7777, meta.len()), (0, 0o4755, 4), "{name}");
        }
    }
}

/// The rights of a program, and the layers of an overlay, in such a container.
#[test]
fn a_user_namespace_sets_capabilities_and_mounts_an_overlay() {
    if !is_root() {
        return;
    }
    let Some(m) = TestMount::new(Sharing::Exclusive) else { return };
    let tmpfs = tempfile::Builder::new().tempdir_in("/dev/shm").unwrap();
    let script = "touch prog; setcap cap_net_raw+ep prog && getcap prog | grep -q net_raw \
                  || echo no capabilities >&2; mkdir lower upper work at; echo low > lower/f; \
                  mkdir lower/d; mount -t overlay -o userxattr,lowerdir=lower,upperdir=upper,\
                  workdir=work overlay at || exit; echo new > at/new && echo more >> at/f \
                  && chown 5 at/f && mv at/f at/g && rm -r at/d && mkdir at/d";
    let script = script.replace(",\\ ", ",").replace(",                  ", ",");
    let [expected, found] = [tmpfs.path(), &m.path("home")].map(|dir| {
        fs::create_dir_all(dir).unwrap();
        chown(dir, Some(ALICE), Some(ALICE)).unwrap();
        fs::set_permissions(dir, Permissions::from_mode(0o755)).unwrap();
        in_namespace(dir, &script)
    });
    if !expected.is_empty() {
        return skipped(&format!("tmpfs refuses this: {expected}"));
    }
    assert_eq!(found, "");
    let meta = fs::metadata(m.path("home/upper/g")).unwrap();
    assert_eq!((meta.uid(), meta.len()), (FIRST + 4, 9));
}
