//! Unmounting, and what can be done with the image right after it. One test: between fork and exec
//! the children of another would hold open files of the mount, and keep it busy.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use common::{can_mount, vfscale};

fn said(mut command: Command) -> (Option<i32>, String) {
    let Output { status, stdout, stderr } = command.stdin(Stdio::null()).output().unwrap();
    (status.code(), String::from_utf8([stdout, stderr].concat()).unwrap())
}

fn succeeds(command: Command) -> String {
    let (status, text) = said(command);
    assert_eq!(status, Some(0), "{text}");
    text
}

fn command(words: &[&str], paths: &[&Path]) -> Command {
    let mut command = vfscale();
    command.args(words).args(paths);
    command
}

/// An image, a directory to mount at, and the command under the name that umount(8) calls.
struct Place {
    image: PathBuf,
    dir: PathBuf,
    helper: PathBuf,
    _temp: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        let temp = tempfile::tempdir().unwrap();
        let [image, dir, helper] =
            ["disk.vfs", "mnt", "umount.fuse.vfscale"].map(|name| temp.path().join(name));
        fs::create_dir(&dir).unwrap();
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_vfscale"), &helper).unwrap();
        succeeds(command(&["mkfs", "-q", "--size=64M"], &[&image]));
        Place { image, dir, helper, _temp: temp }
    }

    /// Mounts, and makes changes that the server has to write when it closes the volume.
    fn fill(&self, name: &str) {
        let options = ["mount", "--background", "--sync-interval=3600"];
        succeeds(command(&options, &[&self.image, &self.dir]));
        let below = self.dir.join(name);
        fs::create_dir(&below).unwrap();
        for file in 0..100 {
            fs::write(below.join(file.to_string()), vec![b'x'; 5000]).unwrap();
        }
    }

    fn helper(&self, options: &[&str]) -> Command {
        let mut command = Command::new(&self.helper);
        command.arg(&self.dir).args(options);
        command
    }

    /// Checks that a copy of the image, made now, is that of a closed volume.
    fn copy_is_whole(&self) {
        let copy = self.image.with_extension("copy");
        fs::copy(&self.image, &copy).unwrap();
        let text = succeeds(command(&["fsck"], &[&copy]));
        assert!(text.contains(": clean") && !text.contains("was not closed"), "{text}");
    }
}

#[test]
fn an_unmounted_volume_is_closed() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    // umount(2) returns before the server has closed the volume, and the tools wait.
    for round in 0..20 {
        place.fill(&format!("a{round}"));
        let mut umount = Command::new("umount");
        umount.arg("-i").arg(&place.dir);
        succeeds(umount);
        let text = succeeds(command(&["fsck"], &[&place.image]));
        assert!(!text.contains("was not closed"), "{text}");
    }
    place.fill("b");
    // A mount that exists is not waited for.
    let (status, text) = said(command(&["fsck"], &[&place.image]));
    assert_eq!(status, Some(8), "{text}");
    assert!(text.contains("only branches are checked while they are in use"), "{text}");
    succeeds(command(&["umount"], &[&place.dir]));
    place.copy_is_whole();
    place.fill("c");
    succeeds(place.helper(&["-n", "-v", "-t", "fuse.vfscale"]));
    place.copy_is_whole();
    fails_well(&place);
}

fn fails_well(place: &Place) {
    let (status, text) = said(command(&["umount"], &[&place.dir]));
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains("no file system of vfscale is mounted there"), "{text}");
    assert_eq!(said(place.helper(&[])).0, Some(32));
    assert_eq!(said(place.helper(&["-z"])).0, Some(1));
    place.fill("d");
    let file = fs::File::open(place.dir.join("d/1")).unwrap();
    let (status, text) = said(place.helper(&[]));
    assert_eq!(status, Some(32), "{text}");
    assert!(text.contains("busy"), "{text}");
    if rustix::process::geteuid().is_root() {
        succeeds(place.helper(&["-r"]));
        assert!(fs::write(place.dir.join("d/1"), "").is_err(), "not read-only");
    }
    // Detached, it is served until its last user has gone.
    succeeds(command(&["umount", "--lazy"], &[&place.dir]));
    drop(file);
    succeeds(command(&["fsck"], &[&place.image]));
}
