//! Branches on a block device, whose size is fixed: a loop device.

use std::fs::{self, File};
use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use crate::branches::Image;
use crate::common::{can_mount, skipped, vfscale};
use crate::first_branch::{dir_of, mount};

const MIB: u64 = 1 << 20;
/// The size of the device.
const SIZE: u64 = 96 * MIB;

/// A loop device.
struct Loop {
    path: PathBuf,
    /// The kernel detaches the device when the last one who has it open closes it, even if the test
    /// is killed.
    _open: File,
}

impl Loop {
    /// Attaches a file. Returns `None`, and says so, where there are no loop devices, or none for
    /// this user.
    fn attach(file: &Path) -> Option<Self> {
        let output = match Command::new("losetup").args(["--find", "--show"]).arg(file).output() {
            Ok(output) => output,
            Err(error) => {
                skipped(&format!("no losetup: {error}"));
                return None;
            }
        };
        let told = String::from_utf8(output.stdout).unwrap();
        if !output.status.success() {
            let why =
                String::from_utf8_lossy(&output.stderr).replace(&*file.to_string_lossy(), "a file");
            skipped(&format!("no loop device: {}", why.trim()));
            return None;
        }
        let path = PathBuf::from(told.trim());
        let opened = File::open(&path);
        // While it is open, this only makes the kernel detach it at the last close.
        let detached = Command::new("losetup").arg("--detach").arg(&path).status();
        assert!(detached.unwrap().success(), "{} stays attached", path.display());
        Some(Self { path, _open: opened.unwrap() })
    }
}

/// Makes a volume on a device of a fixed size, with a file `f` in it.
fn formatted(options: &[&str]) -> Option<(Image, Loop)> {
    let image = Image(tempfile::tempdir().unwrap());
    let file = image.0.path().join("file");
    File::create(&file).unwrap().set_len(SIZE).unwrap();
    let device = Loop::attach(&file)?;
    assert!(fs::metadata(&device.path).unwrap().file_type().is_block_device());
    symlink(&device.path, image.path()).unwrap();
    image.good(&[&["mkfs", "--force"], options].concat(), &[]);
    let volume = vfscale::volume(image.path()).open().unwrap();
    volume.task().write("/f", "base\n").unwrap();
    volume.task().write("/large", vec![1; 30 << 20]).unwrap();
    volume.close().unwrap();
    Some((image, device))
}

/// The branches need more than what is behind the volume: what was free in it is theirs as well.
#[test]
fn a_volume_on_a_device_becomes_a_pool() {
    let Some((image, device)) = formatted(&["--branch-space", "20M"]) else { return };
    image.good(&["branch", "create"], &["trial"]);
    assert_eq!(image.names(), ["main", "trial"]);
    let large = vec![2; 30 << 20];
    image.write("trial", "/large", &large);
    image.write("trial", "/f", "changed\n");
    image.good(&["fsck"], &[]);
    assert_eq!(image.read("/f"), "base\n");
    let output = image.call(&["diff"], &["main", "trial"]);
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(told.contains("/f") && told.contains("/large"), "{told}");
    image.good(&["adopt"], &["trial"]);
    assert_eq!(image.read("/f"), "changed\n");
    image.good(&["fsck"], &[]);
    // As it is attached again.
    drop(device);
    let device = Loop::attach(&image.0.path().join("file")).unwrap();
    fs::remove_file(image.path()).unwrap();
    symlink(&device.path, image.path()).unwrap();
    let volume = vfscale::volume(image.path()).open().unwrap();
    assert!(volume.task().read("/large").unwrap() == large);
    volume.close().unwrap();
    assert_eq!(fs::metadata(image.0.path().join("file")).unwrap().len(), SIZE);
}

/// The refusal names the remedy, and the volume goes on as it is.
#[test]
fn a_volume_that_fills_its_device_gets_no_branch() {
    let Some((image, _device)) = formatted(&[]) else { return };
    let refused = image.bad(1, &["branch", "create"], &["trial"]);
    for part in ["fixed size", "MiB behind the volume", "`vfscale mkfs --branch-space`"] {
        assert!(refused.contains(part), "{refused}");
    }
    assert_eq!(image.names(), [""; 0]);
    image.good(&["fsck"], &[]);
    assert_eq!(image.read("/f"), "base\n");
}

/// A mount, which ends with it, also if the test fails.
struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let is_over = vfscale().arg("umount").arg(&self.0).status().unwrap().success();
        assert!(is_over || thread::panicking(), "{} stays mounted", self.0.display());
    }
}

fn mounted(image: &Image, options: &[&str]) -> Mounted {
    let dir = dir_of(image, "dir");
    mount(image, options, &dir);
    Mounted(dir)
}

/// A volume that is mounted becomes a pool or is refused as one that is closed.
#[test]
fn a_mounted_volume_on_a_device_becomes_a_pool_or_is_refused() {
    if !can_mount() {
        return;
    }
    let Some((image, _device)) = formatted(&["--branch-space", "20M"]) else { return };
    let mount = mounted(&image, &[]);
    image.good(&["branch", "create"], &["trial"]);
    fs::write(mount.0.join("f"), "in main\n").unwrap();
    drop(mount);
    let mount = mounted(&image, &["-o", "branch=trial"]);
    assert_eq!(fs::read_to_string(mount.0.join("f")).unwrap(), "base\n");
    drop(mount);
    assert_eq!(image.read("/f"), "in main\n");
    image.good(&["fsck"], &[]);
    let Some((image, _device)) = formatted(&[]) else { return };
    let mount = mounted(&image, &[]);
    let refused = image.bad(1, &["branch", "create"], &["trial"]);
    assert!(refused.contains("fixed size") && refused.contains("--branch-space"), "{refused}");
    fs::write(mount.0.join("f"), "goes on\n").unwrap();
    drop(mount);
    assert_eq!(image.read("/f"), "goes on\n");
    image.good(&["fsck"], &[]);
}

/// `df` tells of a branch what can be written there: no more than is free in it, nor in the pool.
#[test]
fn df_tells_the_smaller_of_the_free_space_of_a_branch_and_of_the_pool() {
    if !can_mount() {
        return;
    }
    let Some((image, _device)) = formatted(&["--branch-space", "20M"]) else { return };
    image.good(&["branch", "create"], &["trial"]);
    // Both keep some of it back.
    let reserve = 8 * MIB;
    let told = || {
        let pool = vfscale::pool(image.path()).open().unwrap();
        let in_pool = pool.usage().free;
        pool.close().unwrap();
        let mount = mounted(&image, &["-o", "branch=trial"]);
        let output = Command::new("df").args(["-B1", "--output=avail"]).arg(&mount.0).output();
        let text = String::from_utf8(output.unwrap().stdout).unwrap();
        let available: u64 = text.lines().nth(1).unwrap().trim().parse().unwrap();
        let all = rustix::fs::statvfs(&mount.0).unwrap();
        let (own, smaller) = (all.f_bfree * all.f_frsize, in_pool.min(all.f_bfree * all.f_frsize));
        let is_it = available <= smaller && available + reserve > smaller;
        assert!(is_it, "{available} available, {own} in the branch, {in_pool} in the pool");
        (own, in_pool)
    };
    let (own, in_pool) = told();
    assert!(own < in_pool, "{own} in the branch, {in_pool} in the pool");
    image.write("main", "/large", vec![2; 30 << 20]);
    let (own, in_pool) = told();
    assert!(own > in_pool + reserve, "{own} in the branch, {in_pool} in the pool");
}
