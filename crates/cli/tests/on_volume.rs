//! Volumes at the command line.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use common::{can_mount, vfscale};

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap().trim()
}

/// A directory for an image.
struct Images(tempfile::TempDir);

impl Images {
    fn new() -> Images {
        Images(tempfile::tempdir().unwrap())
    }

    fn image(&self) -> PathBuf {
        self.0.path().join("disk.vfs")
    }

    fn dir(&self, name: &str) -> PathBuf {
        let dir = self.0.path().join(name);
        fs::create_dir_all(&dir).unwrap();
        dir
    }

    fn run(&self, options: &[&str], script: &str) -> Output {
        let mut command = vfscale();
        command.arg("run").arg(self.image()).args(options).args(["--", "sh", "-c", script]);
        command.output().unwrap()
    }

    /// Runs a script, which has to succeed, and gives what it printed.
    fn good(&self, options: &[&str], script: &str) -> String {
        let output = self.run(options, script);
        assert!(output.status.success(), "{script}: {}", text(&output.stderr));
        assert_eq!(text(&output.stderr), "", "{script}");
        text(&output.stdout).to_owned()
    }
}

/// A mount in the foreground; killed if it is not unmounted.
struct Mount(Child, PathBuf);

impl Mount {
    fn new(image: &Path, dir: &Path, options: &[&str]) -> Mount {
        let mut command = vfscale();
        command.arg("mount").args(options).arg(image).arg(dir).stderr(Stdio::piped());
        let mut server = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(server.stderr.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("mounted at "), "{line}");
        Mount(server, dir.to_owned())
    }

    fn unmount(mut self) {
        assert!(Command::new("umount").arg(&self.1).status().unwrap().success());
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if self.0.try_wait().is_ok_and(|status| status.is_none()) {
            let _ = self.0.kill();
            let _ = self.0.wait();
            let _ = Command::new("umount").arg("-l").arg(&self.1).status();
        }
    }
}

#[test]
fn a_volume_is_made_and_kept() {
    if !can_mount() {
        return;
    }
    let images = Images::new();
    let made = "mkdir dir && echo text >dir/file && ln dir/file link && ln -s dir/file symlink && \
                stat -c '%a %u' . && grep \" $PWD \" /proc/mounts";
    let printed = images.good(&["--size=64M", "--mode=1750", "--uid=7"], made);
    assert!(printed.starts_with("1750 7"), "{printed}");
    assert!(printed.contains("disk.vfs"), "the mount does not say what is mounted: {printed}");
    // Sparse: what nobody has written takes no space.
    let size = fs::metadata(images.image()).unwrap().len();
    assert_eq!(size, 64 << 20);
    let read = "cat symlink && stat -c %h link && stat -c '%a %u' . && ls";
    let printed = images.good(&[], read);
    assert_eq!(printed, "text\n2\n1750 7\ndir\nlink\nsymlink");
}

#[test]
fn the_status_is_that_of_the_command() {
    if !can_mount() {
        return;
    }
    let images = Images::new();
    let output = images.run(&["--size=32M"], "echo kept >file; exit 9");
    assert_eq!(output.status.code(), Some(9), "{}", text(&output.stderr));
    assert_eq!(images.good(&[], "cat file"), "kept");
}

#[test]
fn one_at_a_time_and_the_second_hears_of_the_first() {
    if !can_mount() {
        return;
    }
    let images = Images::new();
    let mount = Mount::new(&images.image(), &images.dir("mnt"), &["--size=32M"]);
    fs::write(images.dir("mnt").join("file"), "one").unwrap();
    let refused = images.run(&[], "true");
    assert_eq!(refused.status.code(), Some(1));
    let why = text(&refused.stderr);
    assert!(why.contains("disk.vfs") && why.contains("in use"), "{why}");
    assert!(why.contains(&mount.0.id().to_string()), "who has it is not named: {why}");
    mount.unmount();
    assert_eq!(images.good(&[], "cat file"), "one");
}

#[test]
fn reading_only_writes_nothing() {
    if !can_mount() {
        return;
    }
    let images = Images::new();
    images.good(&["--size=32M"], "echo text >file");
    let before = fs::read(images.image()).unwrap();
    for options in [&["--read-only"][..], &["-o", "ro"]] {
        assert_eq!(images.good(options, "cat file; touch new 2>/dev/null || echo no"), "text\nno");
    }
    assert!(before == fs::read(images.image()).unwrap(), "the image has changed");
}

#[test]
fn settings_reach_the_volume() {
    if !can_mount() {
        return;
    }
    let images = Images::new();
    let options = [
        "--size=64M",
        "--log-size=2M",
        "--sync-interval=0.2",
        "--cache-size=16M",
        "--before=cil-lists",
        "--before=active-trans",
    ];
    images.good(&options, "seq 10000 >file");
    assert_eq!(images.good(&["--before=read-mostly"], "tail -1 file"), "10000");
}

#[test]
fn what_is_wrong_is_named() {
    let images = Images::new();
    let refused = |args: &[&str], code: i32, names: &[&str]| {
        let output = vfscale().args(args).output().unwrap();
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {message}");
        for name in names {
            assert!(message.contains(name), "{args:?}: {message}");
        }
    };
    let dir = images.dir("mnt");
    let dir = dir.to_str().unwrap();
    let image = images.image();
    let image = image.to_str().unwrap();
    refused(&["mount", image, dir], 1, &[image, "mkfs"]);
    refused(&["mount", dir], 2, &["IMAGE"]);
    refused(&["run", image, "--size=4K", "--", "true"], 1, &[image]);
    assert!(!images.image().exists(), "an image that can't be made stays");
    fs::write(image, vec![b'x'; 1 << 20]).unwrap();
    refused(&["run", image, "--size=64M", "--", "true"], 1, &[image, "mkfs"]);
    assert_eq!(fs::metadata(image).unwrap().len(), 1 << 20, "a foreign file was changed");
    refused(&["run", "--memory", "--before=cil-lists", "true"], 2, &["cil-lists", "volumes"]);
    refused(&["run", "/dev/null", "--", "true"], 1, &["/dev/null"]);
}
