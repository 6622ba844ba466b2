//! Mounts that pretend to be of an image, made by another user.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::common::{can_mount, vfscale};
use crate::for_all::program_for_all;

/// An image of root with the branches `main` and `a`, mounted at `real`; and a mount at `decoy` by
/// a plain user, whose source is the image.
struct Place {
    temp: tempfile::TempDir,
    program: PathBuf,
}

impl Place {
    fn new() -> Option<Place> {
        let (temp, program) = program_for_all(Path::new(env!("CARGO_BIN_EXE_vfscale")))?;
        let place = Place { temp, program };
        let volume = vfscale::volume(place.path("disk.vfs")).create(64 << 20).open().unwrap();
        volume.task().write("/f", "base").unwrap();
        volume.close().unwrap();
        let pool = vfscale::pool(place.path("disk.vfs")).convert(true).open().unwrap();
        pool.fork("main", "a").unwrap();
        pool.close().unwrap();
        for dir in ["real", "decoy", "second"] {
            fs::create_dir(place.path(dir)).unwrap();
        }
        std::os::unix::fs::chown(place.path("decoy"), Some(65534), Some(65534)).unwrap();
        Some(place)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.temp.path().join(name)
    }

    fn pretend(&self) {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&self.program);
        command.args(["mount", "--background", "--memory=16M", "-o"]);
        command.arg(format!("fsname={}", self.path("disk.vfs").display()));
        command.arg(self.path("decoy")).stdin(Stdio::null());
        let Output { status, stderr, .. } = command.output().unwrap();
        assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
    }

    /// Runs a command whose words that begin with `@` are names of this place.
    fn said(&self, words: &[&str]) -> (Option<i32>, String) {
        let mut command = vfscale();
        for word in words {
            match word.strip_prefix('@') {
                Some(name) => command.arg(self.path(name)),
                None => command.arg(word),
            };
        }
        let Output { status, stdout, stderr } = command.output().unwrap();
        (status.code(), String::from_utf8([stdout, stderr].concat()).unwrap())
    }

    fn good(&self, words: &[&str]) -> String {
        let (status, text) = self.said(words);
        assert_eq!(status, Some(0), "{words:?}: {text}");
        text
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for dir in ["real", "second", "decoy"].map(|name| self.path(name)) {
            let _ = Command::new("umount").args(["-q", "-l"]).arg(dir).status();
        }
    }
}

/// Returns whether this is root on a machine where other users can mount.
fn can_pretend() -> bool {
    rustix::process::geteuid().is_root()
        && Command::new("fusermount3").arg("--version").output().is_ok()
        && can_mount()
}

#[test]
fn mounts_of_other_users_are_not_believed() {
    if !can_pretend() {
        return;
    }
    let Some(place) = Place::new() else { return };
    place.good(&["mount", "--background", "@disk.vfs", "@real"]);
    place.pretend();
    assert!(place.good(&["branch", "list", "@disk.vfs"]).contains("main"));
    place.good(&["branch", "create", "@disk.vfs", "b"]);
    fs::write(place.path("real/f"), "changed").unwrap();
    let (status, text) = place.said(&["diff", "@disk.vfs", "b", "main"]);
    assert_eq!(status, Some(1), "{text}");
    assert!(text.starts_with("changed /f ("), "{text}");
    place.good(&["branch", "delete", "@disk.vfs", "b"]);
    // One branch is mounted, and not two.
    let (_, text) = place.said(&["grow", "@disk.vfs", "--size=64M"]);
    assert!(!text.contains("several"), "{text}");
    place.good(&["mount", "--background", "@disk.vfs", "@second", "-o", "branch=a"]);
    assert_eq!(fs::read_to_string(place.path("second/f")).unwrap(), "base");
    place.good(&["umount", "@second"]);
    place.good(&["umount", "@real"]);
    // A mount that pretends to be of the image is not waited for.
    let real = vfscale::pool(place.path("disk.vfs")).open().unwrap();
    place.good(&["umount", "--timeout=5", "@decoy"]);
    real.close().unwrap();
}

/// The mount of one image may have the name of another one, as root can give it.
#[test]
fn a_server_knows_its_image() {
    if !can_pretend() {
        return;
    }
    let Some(place) = Place::new() else { return };
    fs::copy(place.path("disk.vfs"), place.path("other.vfs")).unwrap();
    let fsname = format!("fsname={}", place.path("other.vfs").display());
    place.good(&["mount", "--background", "@disk.vfs", "@real", "-o", &fsname]);
    // A process that has it open, without a mount.
    let other = vfscale::pool(place.path("other.vfs")).open().unwrap();
    for words in [
        &["mount", "--background", "@other.vfs", "@second", "-o", "branch=a"][..],
        &["run", "--branch=a", "@other.vfs", "true"],
        &["adopt", "@other.vfs", "a"],
        &["diff", "@other.vfs", "main", "a"],
    ] {
        let (status, text) = place.said(words);
        assert!(status != Some(0) && text.contains("of another image"), "{words:?}: {text}");
    }
    let (status, text) = place.said(&["diff", "@real", "main", "a"]);
    assert_eq!((status, text.as_str()), (Some(0), ""));
    other.close().unwrap();
    place.good(&["umount", "@real"]);
}
