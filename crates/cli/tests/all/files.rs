//! The files in an image without a mount: `ls`, `cat`, `rm`, `cp`, `import`, `export`.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::branches::Image;
use crate::common::{can_mount, skipped, vfscale};
use crate::for_all::program_for_all;

/// Runs the command in a directory.
fn call(dir: &Path, args: &[&str]) -> Output {
    vfscale().args(args).current_dir(dir).output().unwrap()
}

/// Runs the command, which must succeed, and returns its output.
fn good(dir: &Path, args: &[&str]) -> String {
    let output = call(dir, args);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// Runs the command, which must fail with a status, and returns what it says.
fn bad(dir: &Path, status: i32, args: &[&str]) -> String {
    let output = call(dir, args);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(status), "{args:?}: {errors}");
    errors
}

/// Makes the directory `in` with a file of two names, a hole, a link, and a directory.
fn plant(dir: &Path) {
    let tree = dir.join("in");
    fs::create_dir_all(tree.join("sub")).unwrap();
    fs::write(tree.join("sub/file"), "contents\n").unwrap();
    fs::hard_link(tree.join("sub/file"), tree.join("again")).unwrap();
    symlink("sub/file", tree.join("link")).unwrap();
    let sparse = fs::File::create(tree.join("sparse")).unwrap();
    sparse.write_all_at(b"end", 8 << 20).unwrap();
    fs::set_permissions(tree.join("sub/file"), fs::Permissions::from_mode(0o640)).unwrap();
}

/// Asserts that `out` has the files of `in`.
fn assert_same(dir: &Path) {
    for path in ["sub", "sub/file", "again", "link", "sparse"] {
        let [a, b] =
            ["in", "out"].map(|tree| dir.join(tree).join(path).symlink_metadata().unwrap());
        assert_eq!((a.mode(), a.len(), a.nlink()), (b.mode(), b.len(), b.nlink()), "{path}");
        assert_eq!(
            (a.uid(), a.gid(), a.mtime_nsec()),
            (b.uid(), b.gid(), b.mtime_nsec()),
            "{path}"
        );
    }
    assert_eq!(fs::read(dir.join("out/again")).unwrap(), b"contents\n");
    assert_eq!(fs::read_link(dir.join("out/link")).unwrap(), Path::new("sub/file"));
    assert!(fs::metadata(dir.join("out/sparse")).unwrap().blocks() < 1 << 10, "the hole is one");
}

#[test]
fn a_tree_goes_in_is_used_and_comes_out() {
    let image = Image::new(true);
    let dir = image.0.path();
    plant(dir);
    let counts = good(dir, &["import", "in", "disk.vfs:trial:/srv", "--json"]);
    let counts: Value = serde_json::from_str(&counts).unwrap();
    assert_eq!((&counts["files"], &counts["skipped"]), (&Value::from(5), &Value::from(0)));
    assert_eq!(good(dir, &["ls", "disk.vfs:trial"]), "f\nsrv\n");
    assert_eq!(good(dir, &["ls", "disk.vfs"]), "f\n", "main has not changed");
    assert_eq!(good(dir, &["ls", "disk.vfs:trial:/srv"]), "again\nlink\nsparse\nsub\n");
    assert_eq!(good(dir, &["ls", "-R", "disk.vfs:trial:/srv/sub"]), "/srv/sub/file\n");
    let long = good(dir, &["ls", "-l", "disk.vfs:trial:/srv"]);
    let words: Vec<Vec<&str>> = long.lines().map(|line| line.split(' ').collect()).collect();
    assert_eq!((words[0][0], words[3][0]), ("-rw-r-----", "drwxr-xr-x"), "{long}");
    assert!(long.contains("link -> sub/file\n"), "{long}");
    let listed: Value =
        serde_json::from_str(&good(dir, &["ls", "--json", "disk.vfs:trial:/srv"])).unwrap();
    assert_eq!((&listed[0]["path"], &listed[0]["links"]), (&"/srv/again".into(), &2.into()));
    assert_eq!((&listed[0]["mode"], &listed[0]["type"]), (&"100640".into(), &"file".into()));
    assert_eq!(listed[1]["target"], "sub/file");

    let both = ["cat", "disk.vfs:/f", "disk.vfs:trial:/srv/link"];
    assert_eq!(good(dir, &both), "base\ncontents\n");
    good(dir, &["export", "-q", "disk.vfs:trial:/srv", "out"]);
    assert_same(dir);
    // A second time, over what is there.
    fs::write(dir.join("out/sub/file"), "changed\n").unwrap();
    good(dir, &["import", "-q", "out", "disk.vfs:trial:/srv"]);
    assert_eq!(good(dir, &["cat", "disk.vfs:trial:/srv/sub/file"]), "changed\n");
    fs::remove_file(dir.join("out/link")).unwrap();
    good(dir, &["export", "disk.vfs:trial:/srv", "out"]);
    assert_eq!(fs::read_link(dir.join("out/link")).unwrap(), Path::new("sub/file"));

    good(dir, &["rm", "-r", "disk.vfs:trial:/srv/sub", "disk.vfs:trial:/srv/link"]);
    assert_eq!(good(dir, &["ls", "disk.vfs:trial:/srv"]), "again\nsparse\n");
    good(dir, &["fsck", "disk.vfs"]);
}

#[test]
fn cp_copies_both_ways() {
    let image = Image::new(false);
    let dir = image.0.path();
    plant(dir);
    good(dir, &["cp", "-q", "in/again", "disk.vfs:/g"]);
    good(dir, &["cp", "-q", "in/again", "in/link", "disk.vfs:main:/"]);
    good(dir, &["cp", "-rq", "in/sub", "disk.vfs:/"]);
    good(dir, &["cp", "-rq", "in/sub", "disk.vfs:/new"]);
    assert_eq!(good(dir, &["ls", "disk.vfs"]), "again\nf\ng\nlink\nnew\nsub\n");
    assert_eq!(good(dir, &["cat", "disk.vfs:/link", "disk.vfs:/new/file"]), "contents\ncontents\n");
    good(dir, &["cp", "-q", "disk.vfs:/f", "over"]);
    good(dir, &["cp", "-q", "disk.vfs:/g", "over"]);
    good(dir, &["cp", "-rq", "disk.vfs:/sub", "disk.vfs:/f", "in"]);
    assert_eq!(fs::read(dir.join("over")).unwrap(), b"contents\n");
    assert_eq!(fs::read(dir.join("in/f")).unwrap(), b"base\n");

    let says = bad(dir, 2, &["cp", "in/sub", "disk.vfs:/x"]);
    assert!(says.contains("in/sub is a directory; -r"), "{says}");
    let says = bad(dir, 2, &["cp", "disk.vfs:/sub", "x"]);
    assert!(says.contains("/sub is a directory; -r"), "{says}");
    let says = bad(dir, 2, &["cp", "in/again", "in/link", "disk.vfs:/new/file"]);
    assert!(says.contains("disk.vfs:/new/file is no directory"), "{says}");
    for args in [["cp", "in/again", "x"], ["cp", "disk.vfs:/f", "disk.vfs:/x"]] {
        let says = bad(dir, 2, &args);
        assert!(says.contains("IMAGE:/PATH"), "{says}");
    }
    let says = bad(dir, 2, &["cp", "-r", "in/.", "disk.vfs:/"]);
    assert!(says.contains("vfscale import"), "{says}");
    assert_eq!(good(dir, &["ls", "disk.vfs"]), "again\nf\ng\nlink\nnew\nsub\n");
}

#[test]
fn what_cannot_be_done_is_told() {
    let image = Image::new(true);
    let dir = image.0.path();
    plant(dir);
    good(dir, &["cp", "-rq", "in", "disk.vfs:/"]);
    let fifo = Command::new("mkfifo").arg(dir.join("fifo")).status().unwrap();
    assert!(fifo.success());
    good(dir, &["cp", "-q", "fifo", "disk.vfs:/"]);
    for (status, args, says) in [
        (1, &["ls", "disk.vfs:/none"][..], "disk.vfs: "),
        (1, &["ls", "none.vfs"], "none.vfs: the image does not exist"),
        (1, &["ls", "disk.vfs:none"], "none"),
        (1, &["ls", "in/again"], "in/again"),
        (1, &["cat", "disk.vfs:/in"], "/in: Is a directory"),
        (1, &["cat", "disk.vfs:/fifo"], "/fifo: Invalid argument"),
        (1, &["rm", "disk.vfs:/in"], "/in is a directory; -r"),
        (1, &["rm", "-r", "disk.vfs"], "the root directory can't be removed"),
        (1, &["rm", "-r", "disk.vfs:/in/.."], "the root directory can't be removed"),
        (1, &["rm", "disk.vfs:/none"], "/none"),
        (2, &["import", "in/again", "disk.vfs"], "in/again is no directory"),
        (1, &["import", "none", "disk.vfs"], "none: "),
        (2, &["export", "disk.vfs:/f", "out"], "/f is no directory"),
        (1, &["cp", "none", "disk.vfs:/"], "none: "),
        (1, &["cp", "disk.vfs:/none", "x"], "/none"),
    ] {
        let told = bad(dir, status, args);
        assert!(told.contains(says), "{args:?}: {told}");
    }
    good(dir, &["rm", "-f", "disk.vfs:/none"]);
    good(dir, &["branch", "create", "--read-only", "disk.vfs", "fixed"]);
    let told = bad(dir, 1, &["rm", "disk.vfs:fixed:/f"]);
    assert!(told.contains("the branch can only be read"), "{told}");
    assert_eq!(good(dir, &["cat", "disk.vfs:fixed:/f"]), "base\n");
}

/// The files of a mounted branch are used where it is mounted, and no link leads out of it.
#[test]
fn a_mounted_image_is_used_through_its_mount() {
    if !can_mount() {
        return;
    }
    let image = Image::new(true);
    let dir = image.0.path();
    plant(dir);
    good(dir, &["import", "-q", "in", "disk.vfs:/in"]);
    let before = good(dir, &["ls", "-lR", "disk.vfs:/in"]);
    fs::create_dir(dir.join("mnt")).unwrap();
    good(dir, &["mount", "-b", "disk.vfs", "mnt"]);
    assert_eq!(good(dir, &["ls", "disk.vfs"]), "f\nin\n");
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&good(dir, &["ls", "-lR", "disk.vfs:/in"])), sorted(&before));
    assert_eq!(good(dir, &["ls", "-R", "disk.vfs:/in/link"]), "/in/link\n");
    good(dir, &["export", "-q", "disk.vfs:/in", "out"]);
    assert_same(dir);
    fs::write(dir.join("secret"), "host").unwrap();
    let host = dir.canonicalize().unwrap().join("secret");
    symlink(&host, dir.join("mnt/out")).unwrap();
    symlink("/in/sub/file", dir.join("mnt/absolute")).unwrap();
    symlink("../../../in", dir.join("mnt/up")).unwrap();
    assert_eq!(
        good(dir, &["cat", "disk.vfs:/absolute", "disk.vfs:/up/again"]),
        "contents\n".repeat(2)
    );
    let told = bad(dir, 1, &["cat", "disk.vfs:/out"]);
    assert!(told.contains("disk.vfs: open /out: No such file or directory"), "{told}");
    let told = bad(dir, 1, &["cat", "disk.vfs:/in"]);
    assert!(told.contains("Is a directory"), "{told}");
    good(dir, &["cp", "-q", "secret", "disk.vfs:/up/sub"]);
    assert_eq!(fs::read_to_string(dir.join("mnt/in/sub/secret")).unwrap(), "host");
    good(dir, &["cp", "-q", "disk.vfs:/f", "disk.vfs:/absolute", "out"]);
    assert_eq!(fs::read_to_string(dir.join("out/f")).unwrap(), "base\n");
    // The mount is in the directory, and so is the image.
    good(dir, &["import", "-q", ".", "disk.vfs:/all"]);
    assert!(dir.join("mnt/all/in/sub/file").exists() && !dir.join("mnt/all/disk.vfs").exists());
    assert!(!dir.join("mnt/all/mnt").exists());
    let told = bad(dir, 1, &["rm", "disk.vfs:/in"]);
    assert!(told.contains("/in is a directory; -r"), "{told}");
    good(dir, &["rm", "-r", "disk.vfs:/in", "disk.vfs:/out"]);
    assert!(!dir.join("mnt/in").exists() && host.exists());
    assert!(bad(dir, 1, &["rm", "-r", "disk.vfs:/"]).contains("root directory"));
    good(dir, &["rm", "-f", "disk.vfs:/none"]);
    // So are those of branches that are not mounted.
    good(dir, &["checkpoint", "disk.vfs", "trial"]);
    for branch in ["disk.vfs:trial", "disk.vfs:trial@1"] {
        assert_eq!(good(dir, &["ls", branch]), "f\n");
        assert_eq!(good(dir, &["cat", &format!("{branch}:/f")]), "base\n");
    }
    let told = bad(dir, 1, &["rm", "disk.vfs:trial@1:/f"]);
    assert!(told.contains("trial@1") && told.contains("read"), "{told}");
    let told = bad(dir, 1, &["ls", "disk.vfs:none"]);
    assert!(told.contains("none"), "{told}");
    good(dir, &["cp", "-q", "secret", "disk.vfs:trial:/new"]);
    assert_eq!(good(dir, &["cat", "disk.vfs:trial:/new"]), "host");
    good(dir, &["rm", "disk.vfs:trial:/new"]);
    let names: Vec<String> = good(dir, &["branch", "list", "--all", "disk.vfs"])
        .lines()
        .map(|line| line.split(':').next().unwrap().to_owned())
        .collect();
    assert_eq!(names, ["main", "trial", "trial@1"]);
    good(dir, &["umount", "mnt"]);
    assert_eq!(good(dir, &["ls", "disk.vfs:trial"]), "f\n");
    good(dir, &["fsck", "disk.vfs"]);
}

/// The figures of a mounted volume are those of its mount, and of its image with all branches.
#[test]
fn figures_of_a_mounted_image_are_those_of_its_mount() {
    if !can_mount() {
        return;
    }
    let image = Image::new(true);
    let dir = image.0.path();
    fs::create_dir(dir.join("mnt")).unwrap();
    assert!(!good(dir, &["stat", "disk.vfs"]).contains("requests: "));
    let alone: Value = serde_json::from_str(&good(dir, &["stat", "--json", "disk.vfs"])).unwrap();
    let told = bad(dir, 2, &["stat", "--prometheus", "disk.vfs"]);
    assert!(told.contains("volume that is mounted"), "{told}");
    good(dir, &["mount", "-b", "disk.vfs", "mnt"]);
    let figures = good(dir, &["stat", "disk.vfs"]);
    let json = good(dir, &["stat", "--json", "disk.vfs"]);
    let scraped = good(dir, &["stat", "--prometheus", "disk.vfs"]);
    let other = bad(dir, 1, &["stat", "--branch", "trial", "disk.vfs"]);
    good(dir, &["umount", "mnt"]);
    assert!(figures.contains("\nrequests: "), "{figures}");
    let mounted: Value = serde_json::from_str(&json).unwrap();
    assert!(mounted["requests"].is_u64(), "{json}");
    assert_eq!((&alone["pool"]["branches"], &mounted["pool_branches"]), (&2.into(), &2.into()));
    assert_eq!(alone["pool"]["bytes"], mounted["pool_size_bytes"]);
    let size = alone["pool"]["bytes"].as_u64().unwrap();
    for free in [&alone["pool"]["free_bytes"], &mounted["pool_free_bytes"]] {
        assert!((1..size).contains(&free.as_u64().unwrap()), "{free} of {size}");
    }
    assert!(scraped.contains("\nvfscale_pool_branches{dir="), "{scraped}");
    assert!(scraped.contains("vfscale_size_bytes{dir="), "{scraped}");
    assert!(other.contains("in use by process"), "{other}");
}

/// A machine without any device, as most containers of build services.
#[test]
fn no_device_of_fuse_is_needed() {
    let dir = tempfile::tempdir().unwrap();
    plant(dir.path());
    let script = "mount -t tmpfs none /dev && ! test -e /dev/fuse || exit 77
        $VFSCALE mkfs d.vfs --size 32M --from in -q && $VFSCALE cp -q in/again d.vfs:/more &&
        $VFSCALE cat d.vfs:/more && $VFSCALE export -q d.vfs out";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script]).current_dir(dir.path());
    let output = command.env("VFSCALE", env!("CARGO_BIN_EXE_vfscale")).output().unwrap();
    if !rustix::process::geteuid().is_root() || output.status.code() == Some(77) {
        return skipped("/dev can't be hidden here: the files of an image are used with it");
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert_eq!(output.stdout, b"contents\n");
    assert_same(dir.path());
}

#[test]
fn a_plain_user_needs_no_more_than_the_image() {
    const USER: u32 = 65534;
    if !rustix::process::geteuid().is_root() {
        return skipped("not root: no other user's image can be made");
    }
    let Some((dir, program)) = program_for_all(Path::new(env!("CARGO_BIN_EXE_vfscale"))) else {
        return;
    };
    let dir = dir.path();
    let call = |args: &[&str]| {
        let mut command = Command::new(&program);
        command.args(args).current_dir(dir).uid(USER).gid(USER).output().unwrap()
    };
    let good = |args: &[&str]| {
        let output = call(args);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    };
    plant(dir);
    // Files of root, which the user can read, keep their owner in the image.
    fs::set_permissions(dir.join("in/again"), fs::Permissions::from_mode(0o4755)).unwrap();
    good(&["mkfs", "d.vfs", "--size=32M", "--from=in", "-q"]);
    let listed: Value = serde_json::from_str(&good(&["ls", "--json", "d.vfs"])).unwrap();
    assert_eq!((&listed[0]["uid"], &listed[0]["mode"]), (&0.into(), &"104755".into()));
    good(&["cp", "-q", "--owner=7:8", "in/again", "d.vfs:/owned"]);
    let listed: Value = serde_json::from_str(&good(&["ls", "--json", "d.vfs:/owned"])).unwrap();
    assert_eq!((&listed[0]["uid"], &listed[0]["gid"]), (&7.into(), &8.into()));
    // On the host the copy is the user's, and gives nobody rights.
    good(&["export", "-q", "d.vfs", "out"]);
    let out = fs::metadata(dir.join("out/again")).unwrap();
    assert_eq!((out.uid(), out.mode() & 0o7777), (USER, 0o755));
    fs::set_permissions(dir.join("d.vfs"), fs::Permissions::from_mode(0o444)).unwrap();
    assert_eq!(good(&["cat", "d.vfs:/again"]), "contents\n");
    std::os::unix::fs::chown(dir.join("d.vfs"), Some(0), None).unwrap();
    let output = call(&["rm", "d.vfs:/again"]);
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && told.contains("Permission denied"), "{told}");
    assert_eq!(good(&["cat", "d.vfs:/again"]), "contents\n");
}

#[test]
fn an_image_is_made_of_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    plant(dir);
    fs::set_permissions(dir.join("in"), fs::Permissions::from_mode(0o710)).unwrap();
    good(dir, &["mkfs", "d.vfs", "--size=32M", "--from=in", "-q"]);
    good(dir, &["export", "-q", "d.vfs", "out"]);
    assert_same(dir);
    let volume = vfscale::volume(dir.join("d.vfs")).open().unwrap();
    assert_eq!(volume.task().metadata("/").unwrap().permissions(), 0o710.into());
    volume.close().unwrap();
    good(dir, &["fsck", "d.vfs"]);

    // The image in the directory is not copied into itself.
    good(dir, &["mkfs", "in/d.vfs", "--size=32M", "--from=in", "-q"]);
    assert_eq!(good(dir, &["ls", "in/d.vfs"]), "again\nlink\nsparse\nsub\n");
    // A new image goes again if it can't be filled, and one that was there stays.
    fs::write(dir.join("in/large"), vec![1; 40 << 20]).unwrap();
    let told = bad(dir, 1, &["mkfs", "new.vfs", "--size=32M", "--from=in"]);
    assert!(told.contains("new.vfs: ") && told.contains("No space left"), "{told}");
    assert!(!dir.join("new.vfs").exists());
    bad(dir, 1, &["mkfs", "new.vfs", "--size=32M", "--from=none"]);
    assert!(!dir.join("new.vfs").exists());
    bad(dir, 1, &["mkfs", "d.vfs", "--force", "--from=in"]);
    assert!(dir.join("d.vfs").exists());
}
