//! A mount as the upper and work directory of overlayfs, compared with tmpfs, and as the lower one.
//!
//! Needs root, to mount.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{self, TestMount, is_root, run, skipped};
use crate::permissions;
use vfscale_fuse::Sharing;

/// A mount that ends with the test.
struct Mounted(PathBuf);

impl Mounted {
    /// Runs `mount` with these arguments and `dir`; reports what failed.
    fn new(args: &[&str], dir: PathBuf) -> Result<Mounted, String> {
        let output = Command::new("mount").args(args).arg(&dir).output().unwrap();
        if output.status.success() {
            return Ok(Mounted(dir));
        }
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// Describes a tree: paths, types, permissions, devices of whiteouts, contents.
fn describe(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut dirs = vec![root.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let meta = fs::symlink_metadata(&path).unwrap();
            let what = if meta.is_dir() {
                dirs.push(path.clone());
                String::from("directory")
            } else if meta.file_type().is_char_device() {
                format!("device {:#x}", meta.rdev())
            } else {
                fs::read_to_string(&path).unwrap()
            };
            let name = path.strip_prefix(root).unwrap().display().to_string();
            found.push(format!("{name} {:o} {what}", meta.mode()));
        }
    }
    found.sort_unstable();
    found
}

/// Makes an overlay over `lower` with its upper layer in `top`, changes it, and describes the
/// overlay and the upper layer.
fn changed(lower: &Path, top: &Path, at: PathBuf) -> Result<[Vec<String>; 2], String> {
    for dir in ["upper", "work"] {
        fs::create_dir(top.join(dir)).unwrap();
    }
    fs::create_dir(&at).unwrap();
    let dir = |path: &Path| path.display().to_string();
    let (upper, work) = (top.join("upper"), top.join("work"));
    let layers = format!("lowerdir={},upperdir={},workdir={}", dir(lower), dir(&upper), dir(&work));
    let overlay = Mounted::new(&["-t", "overlay", "overlay", "-o", &layers], at)?;
    let script = "set -e; echo new > new; echo more >> kept; mv moves moved; rm gone; \
                  mkdir made; echo in > made/file; mv low high || cp -a low high; rm -r full; \
                  mkdir full; chmod 600 kept; ln new link; mv new made/new; rm made/file";
    let mut shell = Command::new("sh");
    run({
        shell.args(["-c", script]).current_dir(&overlay.0);
        shell
    });
    // overlayfs writes with the rights of its mounter, and asks for the bits to be cleared.
    for name in ["suid", "sgid", "truncated", "opened", "allocated"] {
        fs::write(overlay.0.join(name), "text").unwrap();
        fs::set_permissions(overlay.0.join(name), fs::Permissions::from_mode(0o6777)).unwrap();
    }
    run(permissions::user(permissions::BOB, &[], "write-set-id", &overlay.0));
    Ok([describe(&overlay.0), describe(&upper)])
}

#[test]
fn an_overlay_works_on_a_mount_as_on_tmpfs() {
    if !is_root() {
        return;
    }
    let base = tempfile::tempdir().unwrap();
    let volume = vfscale::volume(base.path().join("image")).create(64 << 20).open().unwrap();
    let trees = [common::memory(64 << 20), volume.vfs().clone()];
    let mount = |tree| TestMount::of(tree, Sharing::Exclusive, |builder| builder);
    let [Some(memory), Some(on_disk)] = trees.map(mount) else { return };
    fs::create_dir(base.path().join("tmpfs")).unwrap();
    let tmpfs = Mounted::new(&["-t", "tmpfs", "tmpfs"], base.path().join("tmpfs")).unwrap();
    let lower = tmpfs.0.join("lower");
    for dir in ["low", "full"] {
        fs::create_dir_all(lower.join(dir)).unwrap();
        fs::write(lower.join(dir).join("file"), dir).unwrap();
    }
    for name in ["kept", "moves", "gone"] {
        fs::write(lower.join(name), name).unwrap();
    }
    let top = tmpfs.0.join("top");
    fs::create_dir(&top).unwrap();
    let expected = match changed(&lower, &top, base.path().join("on-tmpfs")) {
        Ok(expected) => expected,
        Err(why) => return skipped(&format!("no overlayfs here: {why}")),
    };
    for (m, name) in [(&memory, "on-memory"), (&on_disk, "on-volume")] {
        let found = changed(&lower, m.dir(), base.path().join(name)).unwrap();
        assert_eq!(found, expected, "{name}");
        let whiteouts = found[1].iter().filter(|entry| entry.ends_with("device 0x0"));
        assert!(whiteouts.count() >= 2, "{name}: {:?}", found[1]);
    }
    drop((memory, on_disk));
    volume.close().unwrap();
}

/// Above a mount, a file keeps its number when it is copied up only with `xino=on`; `git clone`
/// refuses a link that has another one.
#[test]
fn git_clones_in_an_overlay_above_a_mount() {
    let has_git = Command::new("git").arg("--version").output().is_ok();
    if !is_root() || !has_git {
        return skipped("git in an overlay");
    }
    let base = tempfile::tempdir().unwrap();
    let volume = vfscale::volume(base.path().join("image")).create(64 << 20).open().unwrap();
    let tree = volume.vfs().clone();
    let Some(lower) = TestMount::of(tree, Sharing::Exclusive, |builder| builder) else { return };
    let git = |dir: &Path, script: &str| {
        let script = format!(
            "export HOME=/nowhere; git() {{ command git -c safe.directory='*' -c \
                              user.name=a -c user.email=a@b \"$@\"; }}; set -e; {script}"
        );
        Command::new("sh").args(["-c", &script]).current_dir(dir).output().unwrap()
    };
    let made = git(lower.dir(), "git init -q r; cd r; echo 1 > f; git add f; git commit -qm f");
    assert!(made.status.success(), "{made:?}");
    for (xino, is_good) in [("off", false), ("on", true)] {
        let top = base.path().join(xino);
        ["", "upper", "work", "at"].iter().for_each(|dir| fs::create_dir(top.join(dir)).unwrap());
        let [upper, work] = ["upper", "work"].map(|dir| top.join(dir).display().to_string());
        let lower = lower.dir().display();
        let options = format!("lowerdir={lower},upperdir={upper},workdir={work},xino={xino}");
        let args = ["-t", "overlay", "overlay", "-o", &options];
        let overlay = match Mounted::new(&args, top.join("at")) {
            Ok(overlay) => overlay,
            Err(why) => return skipped(&format!("no overlayfs here: {why}")),
        };
        let cloned = git(&overlay.0, "git clone -q r c; cd c; git status --short; git fsck");
        assert_eq!(cloned.status.success(), is_good, "xino={xino}: {cloned:?}");
        drop(overlay);
    }
    drop(lower);
    volume.close().unwrap();
}
