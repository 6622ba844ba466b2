//! Branches of an image: `branch`, `diff`, `adopt`, `run --branch`, `run --discard`, mounts.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::common::{can_mount, server_of, vfscale};

/// A directory with an image.
pub(crate) struct Image(pub(crate) tempfile::TempDir);

impl Image {
    /// Makes an image with a file `f`, and perhaps a branch `trial`.
    pub(crate) fn new(with_branch: bool) -> Self {
        let this = Self(tempfile::tempdir().unwrap());
        let image = this.path();
        let volume = vfscale::volume(&image).create(64 << 20).open().unwrap();
        volume.task().write("/f", "base\n").unwrap();
        volume.close().unwrap();
        if with_branch {
            this.good(&["branch", "create"], &["trial"]);
        }
        this
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.0.path().join("disk.vfs")
    }

    /// Runs the command with the image between the arguments.
    pub(crate) fn call(&self, before: &[&str], behind: &[&str]) -> Output {
        vfscale().args(before).arg(self.path()).args(behind).output().unwrap()
    }

    /// Runs the command, which must succeed, and returns its output.
    pub(crate) fn good(&self, before: &[&str], behind: &[&str]) -> String {
        let output = self.call(before, behind);
        let [text, errors] =
            [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        assert!(output.status.success(), "{before:?} {behind:?}: {errors}{text}");
        text
    }

    /// Runs the command, which must fail with an exit status, and returns what it says.
    pub(crate) fn bad(&self, status: i32, before: &[&str], behind: &[&str]) -> String {
        let output = self.call(before, behind);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(status), "{before:?} {behind:?}: {errors}");
        errors
    }

    /// Returns the names of the branches.
    pub(crate) fn names(&self) -> Vec<String> {
        let text = self.good(&["branch", "list", "--json"], &[]);
        let list: serde_json::Value = serde_json::from_str(&text).unwrap();
        let name = |info: &serde_json::Value| info["name"].as_str().unwrap().to_owned();
        list.as_array().unwrap().iter().map(name).collect()
    }

    /// Writes a file in a branch.
    pub(crate) fn write(&self, branch: &str, path: impl AsRef<Path>, text: impl AsRef<[u8]>) {
        let pool = vfscale::pool(self.path()).open().unwrap();
        let volume = pool.open(branch).unwrap();
        volume.task().write(path, text).unwrap();
        volume.close().unwrap();
        pool.close().unwrap();
    }

    /// Reads a file in the volume that the image is opened as.
    pub(crate) fn read(&self, path: &str) -> String {
        let volume = vfscale::volume(self.path()).open().unwrap();
        let text = volume.task().read_to_string(path).unwrap();
        volume.close().unwrap();
        text
    }
}

#[test]
fn branches_are_made_listed_renamed_and_deleted() {
    let image = Image::new(false);
    assert_eq!(image.names(), [""; 0]);
    image.good(&["branch", "create"], &["a"]);
    image.good(&["branch", "create", "--from", "a", "--read-only"], &["kept"]);
    assert_eq!(image.names(), ["a", "kept", "main"]);
    // A fork of a branch that has changed nothing is one of its parent.
    let words = image.good(&["branch", "list"], &[]);
    assert!(words.contains("kept: 0 KiB of its own, from main, read-only, made 2"), "{words}");
    image.good(&["branch", "rename"], &["a", "b"]);
    image.write("b", "/f", "changed");
    let says = image.good(&["branch", "rollback"], &["b"]);
    assert!(says.contains("\"b@1\":\n  changed /f (content, attributes)\n"), "{says}");
    assert_eq!(image.call(&["diff"], &["main", "b"]).status.code(), Some(0));
    assert_eq!(image.good(&["branch", "rollback"], &["b"]), "");
    image.good(&["branch", "delete"], &["b"]);
    image.good(&["branch", "delete"], &["b@1"]);
    assert_eq!(image.names(), ["kept", "main"]);
    for (why, arguments) in [
        ("no branch", &["branch", "delete"][..]),
        ("no branch", &["branch", "rollback"]),
        ("no branch", &["branch", "create", "--from", "none"]),
    ] {
        let says = image.bad(1, arguments, &["x"]);
        assert!(says.contains(why), "{says}");
    }
    assert!(image.bad(1, &["branch", "create"], &["kept"]).contains("exists"));
    assert!(image.bad(1, &["branch", "create"], &["x/y"]).contains("can't be the name"));
    assert!(image.bad(1, &["branch", "delete"], &["main"]).contains("the volume itself"));
    image.bad(2, &["branch"], &[]);
    image.good(&["tune", "--label", "x"], &[]);
    let superblock = image.good(&["dump"], &["--branch", "main", "superblock"]);
    assert!(superblock.contains("label: x"), "{superblock}");
    assert!(image.bad(1, &["tune", "--label", "x", "--branch", "none"], &[]).contains("no branch"));
}

#[test]
fn differences_are_shown_and_a_branch_adopted() {
    let image = Image::new(true);
    image.write("trial", "/f", "new");
    image.write("trial", "/g\nh", "new");
    let output = image.call(&["diff"], &["main", "trial"]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text, "changed /f (content, attributes)\nadded /g\\nh\n");
    let output = image.call(&["diff", "--json"], &["trial", "main"]);
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found[0]["path"], "/f");
    assert_eq!(found[0]["parts"], serde_json::json!(["content", "attributes"]));
    assert_eq!(found[1]["kind"], "removed");
    let file = ["type", "mode", "size"].map(|key| found[0][key].clone());
    assert_eq!(file, ["file".into(), "100644".into(), serde_json::json!(5)]);
    for (options, paths, status, expected) in [
        (&["diff", "--name-only"][..], &["main", "trial"][..], 1, "/f\n/g\\nh\n"),
        (&["diff", "--stat"], &["main", "trial"], 1, "1 added, 1 changed\n"),
        (&["diff"], &["trial", "main", "/g\nh", "/d"], 1, "removed /g\\nh\n"),
        (&["diff", "--stat"], &["main", "trial", "g"], 0, ""),
    ] {
        let output = image.call(options, paths);
        assert_eq!(String::from_utf8(output.stdout).unwrap(), expected, "{options:?} {paths:?}");
        assert_eq!(output.status.code(), Some(status), "{options:?} {paths:?}");
    }
    image.bad(2, &["diff"], &["main", "none"]);
    let patch = "diff --git a/f b/f\n--- a/f\n+++ b/f\n@@ -1 +1 @@\n-base\n+new\n\\ No newline";
    for paths in [&["main", "trial"][..], &["main", "trial", "f"], &["main", "trial", "none"]] {
        let output = image.call(&["diff", "--patch"], paths);
        let is_some = paths.last() != Some(&"none");
        assert_eq!(output.status.code(), Some(i32::from(is_some)));
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(text.starts_with(patch), is_some, "{text}");
        assert_eq!(text.contains("+++ \"b/g\\012h\"\n"), paths.len() == 2, "{text}");
    }

    image.write("main", "/other", "x");
    let both = image.call(&["diff", "--stat"], &["main", "trial"]);
    assert_eq!(String::from_utf8(both.stdout).unwrap(), "1 added, 1 removed, 1 changed\n");
    let own = image.call(&["diff", "--stat", "--base"], &["main", "trial"]);
    assert_eq!(String::from_utf8(own.stdout).unwrap(), "1 added, 1 changed\n");
    let says = image.bad(1, &["adopt"], &["trial"]);
    assert!(says.contains("/other"), "{says}");
    image.good(&["branch", "rollback"], &["main"]);
    image.good(&["adopt"], &["trial"]);
    assert_eq!(image.names(), ["main", "main@1"]);
    assert_eq!(image.read("/f"), "new");
    assert!(
        image.bad(1, &["adopt", "--parent", "main@1"], &["main"]).contains("the volume itself")
    );
    image.good(&["branch", "delete"], &["main@1"]);

    // A rollback says what goes, shortened, and can be undone as it says.
    for n in 0..15 {
        image.write("main", format!("/n{n:02}"), "junk");
    }
    let says = image.good(&["branch", "rollback"], &["main"]);
    assert!(says.contains("  added /n09\n  and 5 more: `vfscale diff"), "{says}");
    assert!(says.contains("vfscale adopt") && says.contains("vfscale branch delete"), "{says}");
    assert_eq!(image.read("/f"), "new");
    image.good(&["adopt"], &["main@1"]);
    assert_eq!((image.names(), image.read("/n14")), (vec!["main".into()], "junk".into()));
}

/// A command that is killed leaves no branch, once the image was opened.
#[test]
fn a_killed_trial_leaves_nothing() {
    if !can_mount() {
        return;
    }
    let image = Image::new(true);
    let mut run = vfscale();
    run.arg("run").arg(image.path()).args(["--discard", "--", "sh", "-c"]);
    run.arg("echo changed > f; sync f; echo $PWD; echo $$; exec sleep 1000");
    let mut run = run.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(run.stdout.take().unwrap()).lines();
    let mut line = || lines.next().unwrap().unwrap();
    let (dir, command) = (line(), Pid::from_raw(line().parse().unwrap()).unwrap());
    for pid in [server_of(&run), Pid::from_child(&run), command] {
        kill_process(pid, Signal::KILL).unwrap();
    }
    run.wait().unwrap();
    assert!(Command::new("umount").arg("-l").arg(&dir).status().unwrap().success());
    fs::remove_dir(&dir).unwrap();
    fs::remove_dir(std::path::Path::new(&dir).parent().unwrap()).unwrap();
    assert_eq!(image.names(), ["main", "trial"]);
    assert_eq!(image.read("/f"), "base\n");
    image.good(&["fsck"], &[]);
}

#[test]
fn all_branches_are_checked_and_one_is_shown() {
    let image = Image::new(true);
    image.write("trial", "/only", "x");
    let text = image.good(&["fsck"], &[]);
    assert!(text.contains(":main: clean\n") && text.contains(":trial: clean\n"), "{text}");
    let text = image.good(&["fsck", "--branch", "trial"], &[]);
    assert!(!text.contains(":main:"), "{text}");
    let text = image.good(&["fsck", "--json"], &[]);
    let found: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(found["pool"], serde_json::json!([]));
    assert_eq!(found["branches"]["trial"]["left"], 0);
    image.bad(8, &["fsck", "--branch", "none"], &[]);
    assert_eq!(image.call(&["fsck", "--repair"], &[]).status.code(), Some(0));
    image.good(&["dump", "--branch", "trial"], &["inode", "/only"]);
    image.bad(1, &["dump"], &["inode", "/only"]);
    image.good(&["stat", "--branch", "trial"], &[]);
    // Damage of the branch alone.
    {
        let pool = vfscale::pool(image.path()).open().unwrap();
        let device = pool.device("trial").unwrap();
        device.write_at(8 * 4096, &[1; 4096]).unwrap();
        device.flush().unwrap();
        drop(device);
        pool.close().unwrap();
    }
    let output = image.call(&["fsck"], &[]);
    assert_eq!(output.status.code(), Some(4));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains(":main: clean\n") && !text.contains(":trial: clean"), "{text}");
}

/// Marks places in all bitmaps of the pool of an image as used that are free.
fn lose_places(image: &Path) {
    let mut bytes = fs::read(image).unwrap();
    let mut found = 0;
    for block in bytes.chunks_exact_mut(4096).filter(|block| block.starts_with(b"pooB")) {
        for byte in block[64..4032].iter_mut().filter(|byte| **byte == 0).take(3) {
            *byte = 0xff;
            found += 1;
        }
        block[4..8].fill(0);
        let sum = crc32c::crc32c(block);
        block[4..8].copy_from_slice(&sum.to_le_bytes());
    }
    assert!(found > 0);
    fs::write(image, bytes).unwrap();
}

/// Space that no branch has is found, and given back.
#[test]
fn a_pool_is_repaired() {
    let image = Image::new(true);
    image.write("trial", "/only", "x");
    lose_places(&image.path());
    let checked = image.call(&["fsck"], &[]);
    let found = String::from_utf8(checked.stdout).unwrap();
    assert!(found.contains("pool: place") && found.contains("lost"), "{found}");
    assert_eq!(checked.status.code(), Some(4));
    let repaired = image.call(&["fsck", "--repair"], &[]);
    let told = String::from_utf8(repaired.stdout).unwrap();
    assert_eq!(repaired.status.code(), Some(1), "{told}");
    assert!(told.contains("repaired: ") && told.contains("places that no branch has"), "{told}");
    image.good(&["fsck", "--repair"], &[]);
    image.good(&["fsck"], &[]);
    assert_eq!(image.read("/f"), "base\n");
}

/// A volume leaves room behind it, which a device of a fixed size needs for its first branch.
#[test]
fn a_volume_leaves_space_for_branches() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("disk.vfs");
    fs::File::create(&image).unwrap().set_len(128 << 20).unwrap();
    for (space, size) in [("25%", 96), ("48M", 80)] {
        let mut mkfs = vfscale();
        mkfs.args(["mkfs", "--force", "--branch-space", space]).arg(&image);
        let output = mkfs.output().unwrap();
        let told = String::from_utf8(output.stdout).unwrap();
        assert!(told.contains(&format!("{size} MiB in ")), "{told}");
    }
    let all = vfscale().args(["mkfs", "--force", "--branch-space", "100%"]).arg(&image).output();
    assert!(!all.unwrap().status.success());
}

#[test]
fn commands_run_in_branches() {
    if !can_mount() {
        return;
    }
    let image = Image::new(true);
    let says =
        image.good(&["run"], &["--branch", "trial", "--", "sh", "-c", "echo new > f; cat f"]);
    assert_eq!(says, "new\n");
    assert_eq!(image.read("/f"), "base\n");
    let says = image.good(&["run"], &["-o", "branch=trial", "--", "cat", "f"]);
    assert_eq!(says, "new\n");
    let discard = ["--discard", "--branch", "trial", "--", "sh", "-c", "cat f; rm f"];
    assert_eq!(image.good(&["run"], &discard), "new\n");
    assert_eq!(image.good(&["run"], &["--branch", "trial", "--", "cat", "f"]), "new\n");
    assert_eq!(image.names(), ["main", "trial"]);
    image.bad(3, &["run"], &["--discard", "--", "sh", "-c", "exit 3"]);
    assert_eq!(image.names(), ["main", "trial"]);
    image.bad(1, &["run"], &["--branch", "none", "--", "true"]);
    image.good(&["branch", "create", "--read-only"], &["kept"]);
    assert!(image.bad(2, &["run"], &["--branch", "kept", "--", "true"]).contains("-o ro"));
    assert_eq!(image.good(&["run"], &["--branch", "kept", "-o", "ro", "--", "cat", "f"]), "base\n");
    // An image without branches stays as it is, every byte of it.
    let plain = Image::new(false);
    let before = fs::read(plain.path()).unwrap();
    let script = "echo new > g; sync; mv f h; cat g h";
    let says = plain.good(&["run"], &["--discard", "--", "sh", "-c", script]);
    assert_eq!(says, "new\nbase\n");
    assert!(fs::read(plain.path()).unwrap() == before);
    plain.bad(1, &["run"], &["--discard", "--branch", "none", "--", "true"]);
    assert!(fs::read(plain.path()).unwrap() == before);
    assert_eq!(plain.names(), [""; 0]);
}

/// The mount makes the changes, with what was not synced.
#[test]
fn branches_of_a_mounted_image() {
    if !can_mount() {
        return;
    }
    let image = Image::new(true);
    let dir = image.0.path().join("dir");
    fs::create_dir(&dir).unwrap();
    image.good(&["mount", "--background", "-o", "branch=trial"], &[dir.to_str().unwrap()]);
    fs::write(dir.join("g"), "unsynced").unwrap();
    image.good(&["branch", "create", "--from", "trial"], &["copy"]);
    fs::write(dir.join("g"), "later").unwrap();
    image.good(&["branch", "create", "--from", "main", "--read-only"], &["kept"]);
    assert_eq!(image.names(), ["copy", "kept", "main", "trial"]);
    assert!(image.bad(1, &["branch", "delete"], &["trial"]).contains("in use"));
    assert!(image.bad(1, &["branch", "rollback"], &["kept"]).contains("can only be read"));
    image.good(&["branch", "create", "--from", "trial"], &["rolled"]);
    image.good(&["run"], &["--branch", "rolled", "--", "sh", "-c", "echo x > x"]);
    let says = image.good(&["branch", "rollback"], &["rolled"]);
    assert!(says.contains("\"rolled@1\":\n  added /x\n"), "{says}");
    image.good(&["branch", "delete"], &["rolled"]);
    image.good(&["branch", "delete"], &["rolled@1"]);
    assert!(image.bad(1, &["branch", "create"], &["copy"]).contains("exists"));
    image.good(&["branch", "delete"], &["kept"]);
    image.good(&["branch", "rename"], &["copy", "other"]);
    // At the directory as well.
    let list = vfscale().args(["branch", "list"]).arg(&dir).output().unwrap();
    assert_eq!(String::from_utf8(list.stdout).unwrap().lines().count(), 3);
    let output = image.call(&["diff"], &["main", "trial"]);
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "added /g\n");
    for (path, status, parts) in [("/g", 1, 2), ("/none", 0, 1)] {
        let output = image.call(&["diff", "--base", "--patch"], &["main", "trial", path]);
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(status), "{text}");
        assert_eq!(text.split("\n+++ b/g\n@@ -0,0 +1 @@\n+later\n").count(), parts, "{text}");
    }
    let unmounted = vfscale().arg("umount").arg(&dir).status().unwrap();
    assert!(unmounted.success());
    let pool = vfscale::pool(image.path()).open().unwrap();
    for (branch, expected) in [("other", "unsynced"), ("trial", "later")] {
        let volume = pool.open(branch).unwrap();
        assert_eq!(volume.task().read_to_string("/g").unwrap(), expected);
        volume.close().unwrap();
    }
    assert_eq!(pool.check().unwrap(), Vec::<String>::new());
    pool.close().unwrap();
}

/// A check goes on with the other branches if one of them can't be read.
#[test]
fn fsck_checks_the_branches_beside_a_damaged_one() {
    let image = Image::new(true);
    for branch in ["main", "trial"] {
        let write = "for i in 1 2 3; do head -c 20000 /dev/zero > $i; done";
        image.good(&["run"], &["--branch", branch, "--", "sh", "-c", write]);
    }
    let bytes = fs::read(image.path()).unwrap();
    let nodes = bytes.chunks(4096).enumerate().filter(|(_, block)| block.starts_with(b"pooN"));
    let mut only_one = 0;
    for (number, _) in nodes {
        let mut damaged = bytes.clone();
        damaged[number * 4096 + 2000] ^= 1;
        fs::write(image.path(), damaged).unwrap();
        let output = image.call(&["fsck", "--json"], &[]);
        let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let found = &value["branches"];
        let is_bad = ["main", "trial"].map(|branch| found[branch].get("error").is_some());
        let counts = ["main", "trial"].map(|branch| found[branch]["found"].as_u64());
        assert_eq!(counts.map(|count| count.is_none()), is_bad, "block {number}: {value}");
        assert_eq!(output.status.code().unwrap() & 8 != 0, is_bad[0] || is_bad[1], "{number}");
        only_one += u32::from(is_bad[0] != is_bad[1]);
    }
    assert!(only_one > 0, "no block is one branch's alone");
}

#[test]
fn a_run_in_a_limited_branch_gets_edquot() {
    if !can_mount() {
        return;
    }
    let image = Image::new(false);
    let fill = "for n in 1 2 3 4; do head -c 5M /dev/zero > f$n || exit 3; done";
    let mut run = vfscale();
    run.args(["run", "--new", "small", "--limit", "16M"]).arg(image.path());
    let output = run.args(["--", "sh", "-c", fill]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("Disk quota exceeded"), "{said}");
    let limit_of = |name: &str| {
        let list = image.good(&["branch", "list", "--json"], &[]);
        let list: serde_json::Value = serde_json::from_str(&list).unwrap();
        let branch = list.as_array().unwrap().iter().find(|it| it["name"] == name).unwrap();
        branch["limit"].as_u64()
    };
    assert_eq!((limit_of("small"), limit_of("main")), (Some(16 << 20), None));
    assert!(image.good(&["branch", "list"], &[]).contains("limited to 16384 KiB"));
    // In the mount of its image the branch has more room at once.
    let raise = r#""$0" branch limit "$1" small 40M && head -c 15M /dev/zero > g"#;
    let program = env!("CARGO_BIN_EXE_vfscale");
    let mut run = vfscale();
    run.args(["run", "--branch", "small"]).arg(image.path());
    let output = run.args(["--", "sh", "-c", raise, program]).arg(image.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    image.good(&["branch", "limit"], &["small", "none"]);
    assert_eq!(limit_of("small"), None);
    image.good(&["branch", "create", "--limit", "1G"], &["large"]);
    assert_eq!(limit_of("large"), Some(1 << 30));
    let said = image.bad(2, &["branch", "limit"], &["large", "15M"]);
    assert!(said.contains("16M"), "{said}");
}
