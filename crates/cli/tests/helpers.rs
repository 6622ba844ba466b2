//! Tests of the names by which `mount(8)`, `mkfs(8)` and `fsck(8)` call the command.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::can_mount;
use vfscale::block::FileOptions;
use vfscale_diskfs::copies;

/// A directory with the helpers, an image, and a directory to mount at.
struct Place {
    dir: tempfile::TempDir,
    image: PathBuf,
}

impl Place {
    fn new() -> Place {
        let dir = tempfile::tempdir().unwrap();
        for name in ["mount.vfscale", "mkfs.vfscale", "fsck.vfscale"] {
            let program = env!("CARGO_BIN_EXE_vfscale");
            std::os::unix::fs::symlink(program, dir.path().join(name)).unwrap();
        }
        std::fs::create_dir(dir.path().join("mnt")).unwrap();
        let image = dir.path().join("disk.vfs");
        Place { dir, image }
    }

    /// Runs a helper; returns its exit status and all that it printed.
    fn run(&self, name: &str, arguments: &[&str]) -> (Option<i32>, String) {
        let mut command = Command::new(self.dir.path().join(name));
        let output = command.args(arguments).stdin(Stdio::null()).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).unwrap())
    }

    fn image(&self) -> &str {
        self.image.to_str().unwrap()
    }

    fn fsck(&self, arguments: &[&str]) -> (Option<i32>, String) {
        self.run("fsck.vfscale", &[arguments, &[self.image()]].concat())
    }

    fn formatted() -> Place {
        let place = Place::new();
        let arguments = ["-q", "-L", "music", "--size", "32M", place.image()];
        assert_eq!(place.run("mkfs.vfscale", &arguments), (Some(0), String::new()));
        place
    }
}

#[test]
fn mkfs_makes_a_volume_and_names_what_is_wrong() {
    let place = Place::formatted();
    let (status, text) = place.run("mkfs.vfscale", &[place.image()]);
    assert_eq!(status, Some(1), "{text}");
    assert!(text.starts_with("mkfs.vfscale: ") && text.contains("--force"), "{text}");
    let (status, text) = place.run("mkfs.vfscale", &["-F", place.image()]);
    assert_eq!(status, Some(0), "{text}");
    let missing = place.dir.path().join("missing");
    let (status, text) = place.run("mkfs.vfscale", &[missing.to_str().unwrap()]);
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains("--size"), "{text}");
}

#[test]
fn fsck_at_the_start_of_a_machine_checks_only_what_is_suspect() {
    let place = Place::formatted();
    for automatic in [&["-a"][..], &["-p", "-C0"]] {
        let (status, text) = place.fsck(automatic);
        assert_eq!(status, Some(0), "{text}");
        assert!(text.contains("not checked (-f"), "{text}");
    }
    for checks in [&["-a", "-f"][..], &["-n"], &["-y"], &[]] {
        let (status, text) = place.fsck(checks);
        assert_eq!(status, Some(0), "{checks:?}: {text}");
        assert!(text.contains(": clean"), "{checks:?}: {text}");
    }
    // A repair that was begun and not completed.
    let device = FileOptions::new().open(&place.image).unwrap();
    let mut superblock = copies::read(&device).unwrap().superblock;
    superblock.features = superblock.features.with_repair(true);
    copies::write(&device, &mut superblock).unwrap();
    drop(device);
    let (status, text) = place.fsck(&["-n"]);
    assert_eq!(status, Some(4), "{text}");
    let (status, text) = place.fsck(&["-a"]);
    assert_eq!(status, Some(1), "{text}");
    assert!(place.fsck(&["-a"]).1.contains("not checked"));
}

#[test]
fn fsck_tells_its_caller_what_went_wrong() {
    let place = Place::new();
    let (status, text) = place.fsck(&["-n"]);
    assert_eq!(status, Some(8), "{text}");
    assert!(text.contains(place.image()), "{text}");
    let (status, text) = place.fsck(&["-a"]);
    assert_eq!(status, Some(8), "{text}");
    let (status, text) = place.fsck(&["-r"]);
    assert_eq!(status, Some(16), "{text}");
    assert!(text.contains("-y repairs"), "{text}");
    let (status, text) = place.fsck(&["-z"]);
    assert_eq!(status, Some(16), "{text}");
    assert_eq!(place.run("fsck.vfscale", &["-V"]).0, Some(0));
}

#[test]
fn fsck_writes_its_progress_to_a_descriptor() {
    let place = Place::formatted();
    let lines = place.dir.path().join("lines");
    // A shell passes descriptors on.
    let script = "program=$1; shift; exec 7>>\"$LINES\"; exec \"$program\" \"$@\"";
    let program = place.dir.path().join("fsck.vfscale");
    let check = |option: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh"]).arg(&program).args(["-n", option]).arg(&place.image);
        command.env("LINES", &lines).output().unwrap().status.code()
    };
    assert_eq!(check("-C7"), Some(0));
    let text = std::fs::read_to_string(&lines).unwrap();
    let mut passes = Vec::new();
    for line in text.lines() {
        let mut words = line.splitn(4, ' ');
        let mut number = || words.next().unwrap().parse::<u64>().unwrap();
        let (pass, done, of) = (number(), number(), number());
        assert!(done <= of, "{line}");
        assert_eq!(words.next(), Some(place.image()));
        passes.push(pass);
    }
    assert!(passes.is_sorted(), "{text}");
    passes.dedup();
    assert!(passes.len() >= 4 && passes[0] == 1, "{text}");
    // A bar instead of lines; a descriptor that is not open; one that waits for a signal.
    assert_eq!(check("-C0"), Some(0));
    assert_eq!(check("-C9"), Some(8));
    assert_eq!(check("-C-7"), Some(16));
    assert_eq!(std::fs::read_to_string(&lines).unwrap(), text);
}

#[test]
fn mount_gets_the_exit_statuses_that_it_defines() {
    let place = Place::formatted();
    let dir = place.dir.path().join("mnt");
    let at = dir.to_str().unwrap();
    let (status, text) = place.run("mount.vfscale", &[place.image(), at, "-o", "fast"]);
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains("`fast`"), "{text}");
    assert_eq!(place.run("mount.vfscale", &[]).0, Some(1));
    let (status, text) = place.run("mount.vfscale", &["typo", at]);
    assert_eq!(status, Some(1), "{text}");
    assert!(text.starts_with("mount.vfscale: typo: no such image"), "{text}");
    assert!(!std::fs::read_to_string("/proc/mounts").unwrap().contains(at));
    // A check of the command line mounts nothing.
    let (status, text) = place.run("mount.vfscale", &[place.image(), at, "-f", "-o", "rw"]);
    assert_eq!(status, Some(0), "{text}");
    assert!(!std::fs::read_to_string("/proc/mounts").unwrap().contains(at));
    if !can_mount() {
        return;
    }
    let (status, text) = place.run("mount.vfscale", &["none", at, "-o", "commit=1"]);
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains("`commit` is for a volume"), "{text}");
    let (status, text) = place.run("mount.vfscale", &["/no/such/image", at]);
    assert_eq!(status, Some(32), "{text}");
    assert!(text.contains("/no/such/image"), "{text}");
    let (status, text) = place.run("mount.vfscale", &[place.image(), at, "-n", "-o", "rw,noatime"]);
    assert_eq!(status, Some(0), "{text}");
    if rustix::process::geteuid().is_root() {
        remounts(&place, &dir);
    }
    std::fs::write(dir.join("file"), "text").unwrap();
    assert!(Command::new("umount").arg(at).status().unwrap().success());
    assert!(!Path::new(at).join("file").exists());
}

/// Remounts with the options that /proc/mounts shows, which mount(8) repeats.
fn remounts(place: &Place, dir: &Path) {
    let at = dir.to_str().unwrap();
    let shown = "remount,rw,user_id=0,group_id=0,rootmode=40000,fd=3,allow_other,max_read=131072";
    let remount = |options: &str| place.run("mount.vfscale", &[place.image(), at, "-o", options]);
    assert_eq!(remount(&format!("{shown},ro,blksize=4096,default_permissions")).0, Some(0));
    assert!(std::fs::write(dir.join("file"), "text").is_err());
    assert_eq!(remount(shown).0, Some(0));
}
