//! An image whose file system is full: a small tmpfs.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::{can_mount, vfscale};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}

/// A tmpfs with an image, and a directory beside it. Both are unmounted at the end.
struct Host {
    dir: tempfile::TempDir,
}

impl Host {
    /// Makes one; `None` if this process may not mount.
    fn new(megabytes: u32) -> Option<Host> {
        if !can_mount() {
            return None;
        }
        let host = Host { dir: tempfile::tempdir().unwrap() };
        for name in ["small", "m"] {
            fs::create_dir(host.dir.path().join(name)).unwrap();
        }
        let size = format!("size={megabytes}M");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &size, "none"]).arg(host.dir.path().join("small"));
        if !mount.output().unwrap().status.success() {
            eprintln!("\n######## SKIPPED: no tmpfs can be mounted\n");
            return None;
        }
        Some(host)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn run(&self, program: &mut Command) -> Output {
        program.current_dir(self.dir.path()).output().unwrap()
    }

    /// Runs `vfscale`. Returns its exit status, and all that it says.
    fn vfscale(&self, words: &str) -> (Option<i32>, String) {
        let output = self.run(vfscale().args(words.split(' ')));
        let said = format!("{} {}", text(&output.stdout), text(&output.stderr));
        println!("vfscale {words}: {:?} {said}", output.status.code());
        (output.status.code(), said)
    }

    fn good(&self, words: &str) {
        let (code, said) = self.vfscale(words);
        assert_eq!(code, Some(0), "{words}: {said}");
    }

    /// Runs a script in the shell. Returns whether it succeeds, and its errors.
    fn sh(&self, script: &str) -> (bool, String) {
        let output = self.run(Command::new("sh").args(["-c", script]).env("LC_ALL", "C"));
        (output.status.success(), text(&output.stderr))
    }

    /// Leaves no room in the tmpfs.
    fn fill(&self) {
        let (full, why) = self.sh("cat /dev/zero > small/ballast");
        assert!(!full && why.contains("No space left"), "{why}");
    }

    fn make_room(&self) {
        fs::remove_file(self.path("small/ballast")).unwrap();
    }

    fn has_all(&self) {
        for n in 0..300 {
            let read = fs::read_to_string(self.path(&format!("m/d/{n}")));
            assert_eq!(read.ok().as_deref(), Some(&*format!("{n}\n")), "{n}");
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        for name in ["m", "calm"] {
            let _ = self.run(Command::new("umount").args(["-l", name]));
        }
        let _ = self.run(Command::new("umount").args(["-l", "small"]));
    }
}

const FILES: &str = "mkdir m/d; for n in $(seq 0 299); do echo $n > m/d/$n; done; sync m/d/* m/d";

/// Returns a full host with a mounted volume that has synced files.
fn full() -> Option<Host> {
    let host = Host::new(40)?;
    host.good("mkfs -q small/f.vfs --size 1G");
    host.good("mount -b --log-file log small/f.vfs m");
    assert!(host.sh("head -c 8M /dev/urandom > m/f1; sync m/f1").0);
    assert!(host.sh(FILES).0);
    host.fill();
    Some(host)
}

/// Nothing is lost when the disk is full, whichever advice is followed.
#[test]
fn a_full_host_loses_nothing() {
    let Some(host) = full() else { return };
    let (synced, why) = host.sh("head -c 6M /dev/urandom > m/f2; sync m/f2");
    assert!(!synced && why.contains("No space left on device"), "{why}");
    // The volume goes on, and is read.
    host.has_all();
    assert!(host.sh("for n in $(seq 500); do mkdir m/d/more$n; done; sync m/d").0);
    let (code, said) = host.vfscale("umount m");
    assert!(code == Some(1) && said.contains("f.vfs: unmounted, but not closed"), "{said}");
    assert!(said.contains("the file system of the image is full"), "{said}");
    let log = fs::read_to_string(host.path("log")).unwrap();
    assert!(log.lines().count() < 12 && log.contains("f.vfs is full"), "{log}");
    for words in ["fsck --repair", "fsck --repair --discard-log"] {
        let (code, said) = host.vfscale(&format!("{words} small/f.vfs"));
        assert!(code == Some(8) && said.contains("f.vfs is full"), "{said}");
        assert!(said.contains("free space there") && !said.contains("discard"), "{said}");
    }
    let (code, said) = host.vfscale("mount -b small/f.vfs m");
    assert!(code != Some(0) && said.contains("f.vfs is full"), "{said}");
    assert!(said.contains("free space there") && !said.contains("discard"), "{said}");
    host.good("mount -b -o ro small/f.vfs m");
    host.has_all();
    host.good("umount m");
    host.make_room();
    host.good("mount -b small/f.vfs m");
    host.has_all();
    assert!(host.path("m/d/more500").exists());
    host.good("umount m");
    host.good("fsck small/f.vfs");
}

/// A file is removed while the host is full, which makes the room that the volume needs.
#[test]
fn removing_files_makes_room() {
    let Some(host) = full() else { return };
    assert!(!host.sh("head -c 6M /dev/urandom > m/f2; sync m/f2").0);
    let (code, said) = host.vfscale("sync m");
    assert!(code == Some(1) && said.contains("No space left"), "{said}");
    let (removed, why) = host.sh("rm m/f1 m/f2; sync m; mkdir m/e; sync m/e");
    assert!(removed, "{why}");
    host.good("trim m");
    let (written, why) = host.sh("head -c 4M /dev/urandom > m/f3; sync m/f3");
    assert!(written, "{why}");
    host.good("umount m");
    host.good("fsck small/f.vfs");
}

/// A new image has storage for its log, and is as sparse as before apart from that.
#[test]
fn an_image_has_storage_for_its_log() {
    let Some(host) = Host::new(40) else { return };
    host.good("mkfs -q small/f.vfs --size 1G");
    let used = |path: &Path| fs::metadata(path).unwrap().blocks() * 512;
    let bytes = used(&host.path("small/f.vfs"));
    assert!((16 << 20..18 << 20).contains(&bytes), "{bytes}");
    fs::remove_file(host.path("small/f.vfs")).unwrap();
    host.sh("head -c 30M /dev/zero > small/ballast");
    let (code, said) = host.vfscale("mkfs -q small/f.vfs --size 1G");
    assert!(code == Some(1) && said.contains("f.vfs is full"), "{said}");
    assert!(!host.path("small/f.vfs").exists());
}

/// An image of the default size is far larger than its host, and takes little of it, also with
/// branches. A host that becomes full stops nothing.
#[test]
fn an_image_of_the_default_size_takes_little() {
    let Some(host) = Host::new(80) else { return };
    let used = || fs::metadata(host.path("small/f.vfs")).unwrap().blocks() * 512;
    host.good("run small/f.vfs -- touch a");
    assert!(fs::metadata(host.path("small/f.vfs")).unwrap().len() >= 1 << 40);
    let bytes = used();
    assert!((16 << 20..18 << 20).contains(&bytes), "{bytes}");
    host.good("branch create small/f.vfs trial");
    host.good("run small/f.vfs -- touch b");
    let bytes = used();
    assert!(bytes < 44 << 20, "{bytes}");
    host.good("mount -b small/f.vfs m");
    assert!(host.sh("echo kept > m/kept; sync m/kept").0);
    let (written, why) = host.sh("head -c 100M /dev/urandom > m/big; sync m/big");
    assert!(!written && why.contains("No space left on device"), "{why}");
    let (removed, why) = host.sh("rm m/big && sync m && head -c 3M /dev/urandom > m/f && sync m/f");
    assert!(removed, "{why}");
    host.vfscale("umount m");
    host.good("fsck small/f.vfs");
    host.good("run small/f.vfs -- cat kept b");
}

/// The branch that fills the host gets errors, and its sibling goes on.
#[test]
fn a_full_host_stops_no_branch() {
    let Some(host) = Host::new(80) else { return };
    fs::create_dir(host.path("calm")).unwrap();
    host.good("mkfs -q small/p.vfs --size 256M");
    host.good("branch create small/p.vfs calm");
    host.good("mount -b --log-file log small/p.vfs m");
    host.good("mount -b small/p.vfs calm -o branch=calm");
    assert!(host.sh("echo first > calm/0; sync calm/0; head -c 1M /dev/urandom > m/f; sync m/f").0);
    host.good("branch create m fork");
    let (written, why) = host.sh("head -c 100M /dev/urandom > m/big; sync m/big");
    assert!(!written && why.contains("No space left on device"), "{why}");
    for n in 1..20 {
        let (synced, why) = host.sh(&format!("echo {n} > calm/{n} && sync calm/{n}"));
        assert!(synced, "{n}: {why}");
    }
    host.good("branch delete m fork");
    let (removed, why) =
        host.sh("rm m/big && sync m && head -c 3M /dev/urandom > m/f2 && sync m/f2");
    assert!(removed, "{why}");
    let log = fs::read_to_string(host.path("log")).unwrap();
    assert!(log.contains("p.vfs is full") && log.lines().count() < 40, "{log}");
    assert!(host.sh("mount -o remount,size=200M small").0);
    host.good("sync calm");
    host.good("umount calm");
    // The data that were dropped are told of once more.
    let (code, said) = host.vfscale("umount m");
    assert!(code == Some(0) || said.contains("not everything could be written"), "{said}");
    host.good("fsck small/p.vfs");
    host.good("mount -b small/p.vfs m -o branch=calm");
    assert_eq!(fs::read_to_string(host.path("m/19")).unwrap(), "19\n");
    host.good("umount m");
}
