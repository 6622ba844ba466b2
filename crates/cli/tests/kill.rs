//! Kills a mount of a volume under load, and checks that synced data survives.
//!
//! `VFSCALE_KILLS` is the number of kills (5). The load runs in this process, which therefore
//! retains the acknowledged changes whatever happens to the server.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;
#[path = "common/load.rs"]
mod load;

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::{can_mount, vfscale};
use load::{Acknowledged, check, load};

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// A server of the volume, in the foreground.
struct Mount {
    server: Child,
    dir: PathBuf,
}

impl Mount {
    fn new(image: &Path, dir: &Path) -> Mount {
        Mount::with(&["--sync-interval=0.1"], image, dir)
    }

    fn of_branch(branch: &str, image: &Path, dir: &Path) -> Mount {
        Mount::with(&["--sync-interval=0.1", "--branch", branch], image, dir)
    }

    fn with(options: &[&str], image: &Path, dir: &Path) -> Mount {
        let mut command = vfscale();
        command.args(["mount", "--size=256M"]).args(options).arg(image).arg(dir);
        let mut server = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut stderr = BufReader::new(server.stderr.take().unwrap());
        stderr.read_line(&mut line).unwrap();
        assert!(line.starts_with("mounted at "), "{line}");
        // Later output of the server must not fill the pipe.
        std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::stderr()));
        Mount { server, dir: dir.to_owned() }
    }

    /// Kills the server, and removes the dead mount.
    fn kill(mut self) {
        self.server.kill().unwrap();
        self.server.wait().unwrap();
        let status = Command::new("umount").arg("-l").arg(&self.dir).status().unwrap();
        assert!(status.success());
    }

    /// Unmounts, and waits until the server has exited.
    fn unmount(mut self) {
        let status = Command::new("umount").arg(&self.dir).status().unwrap();
        assert!(status.success());
        vfscale_harness::wait_until("the server ends", || {
            self.server.try_wait().unwrap().is_some()
        });
        assert!(self.server.wait().unwrap().success());
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if self.server.try_wait().is_ok_and(|status| status.is_none()) {
            let _ = self.server.kill();
            let _ = self.server.wait();
            let _ = Command::new("umount").arg("-l").arg(&self.dir).status();
        }
    }
}

/// Creates files that are unlinked while they are open or being truncated, until the server is
/// killed.
fn orphans(dir: &Path) -> std::io::Result<()> {
    let home = dir.join("orphans");
    fs::create_dir_all(&home)?;
    let mut open = std::collections::VecDeque::new();
    for number in 0_u64.. {
        let path = home.join(format!("orphan{number}"));
        let file = File::create(&path)?;
        // With this many extents, freeing the file takes several transactions.
        for piece in 0..number % 60 {
            file.write_all_at(&[7; 4096], piece * 8192)?;
        }
        if number % 3 == 0 {
            file.sync_all()?;
            file.set_len(5000)?;
        }
        fs::remove_file(&path)?;
        file.write_all_at(b"it has no name", number * 1000 % 90_000)?;
        open.push_back(file);
        if open.len() > 20 {
            open.pop_front();
        }
    }
    Ok(())
}

/// Checks that fsck finds no damage in the volume as the next mount will find it.
fn fsck(image: &Path) {
    let output = vfscale().arg("fsck").arg(image).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn a_killed_mount_loses_nothing_that_was_synced() {
    if !can_mount() {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    let (image, dir) = (temp.path().join("disk.vfs"), temp.path().join("mnt"));
    fs::create_dir(&dir).unwrap();
    kill_and_check(&image, &dir, &|| Mount::new(&image, &dir));
}

/// The branch has blocks of the three that it comes from, which stay as they are.
#[test]
fn a_killed_mount_of_a_branch_loses_nothing_that_was_synced() {
    if !can_mount() {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    let [image, dir] = ["disk.vfs", "mnt"].map(|name| temp.path().join(name));
    fs::create_dir(&dir).unwrap();
    vfscale::volume(&image).create(256 << 20).open().unwrap().close().unwrap();
    let pool = vfscale::pool(&image).convert(true).open().unwrap();
    for (parent, name) in [("main", "a"), ("a", "b"), ("b", "c")] {
        let volume = pool.open(parent).unwrap();
        volume.task().write(format!("/of {parent}"), vec![7; 1 << 20]).unwrap();
        volume.close().unwrap();
        pool.fork(parent, name).unwrap();
    }
    pool.close().unwrap();
    kill_and_check(&image, &dir, &|| Mount::of_branch("c", &image, &dir));
    let pool = vfscale::pool(&image).open().unwrap();
    assert_eq!(pool.check().unwrap(), Vec::<String>::new());
    for (branch, file) in [("main", "/of main"), ("a", "/of a"), ("b", "/of main")] {
        let volume = pool.open(branch).unwrap();
        assert_eq!(volume.task().read(file).unwrap(), vec![7; 1 << 20], "{branch}");
        volume.close().unwrap();
    }
    pool.close().unwrap();
}

/// Mounts and kills again and again, and checks what was acknowledged.
fn kill_and_check(image: &Path, dir: &Path, mounted: &dyn Fn() -> Mount) {
    let acknowledged = Acknowledged::default();
    let mut promises = 0;
    for kill in 0..number("VFSCALE_KILLS", 5) {
        if kill > 0 {
            fsck(image);
        }
        let mount = mounted();
        check(dir, &acknowledged.lock().unwrap());
        // Frees space for the next round.
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => fs::remove_dir_all(path).unwrap(),
                false => fs::remove_file(path).unwrap(),
            }
        }
        acknowledged.lock().unwrap().clear();
        std::thread::scope(|scope| {
            let without_names = scope.spawn(|| orphans(dir).unwrap_err());
            let threads: Vec<_> = (0..3)
                .map(|thread| {
                    let acknowledged = &acknowledged;
                    scope.spawn(move || load(dir, thread, acknowledged).unwrap_err())
                })
                .collect();
            // Kills at another moment each time.
            vfscale_harness::pause(Duration::from_millis(300 + kill * 137 % 700));
            mount.kill();
            for thread in threads.into_iter().chain([without_names]) {
                let why = thread.join().unwrap();
                println!("ended with {why}");
            }
        });
        promises += acknowledged.lock().unwrap().len();
    }
    let mount = mounted();
    check(dir, &acknowledged.lock().unwrap());
    mount.unmount();
    fsck(image);
    assert!(promises > 20, "only {promises} were acknowledged");
    println!("{promises} acknowledged");
}

/// Changes names in all ways.
fn change_names(dir: &Path) {
    fs::create_dir(dir.join("made")).unwrap();
    File::create(dir.join("file")).unwrap();
    std::os::unix::fs::symlink("file", dir.join("symlink")).unwrap();
    fs::hard_link(dir.join("file"), dir.join("made/link")).unwrap();
    fs::rename(dir.join("old"), dir.join("made/new")).unwrap();
    fs::remove_file(dir.join("removed")).unwrap();
    fs::remove_dir(dir.join("removed dir")).unwrap();
}

/// Returns a line for each change of [`change_names`] that is missing.
fn missing_names(dir: &Path) -> Vec<&'static str> {
    let exists = |name: &str| dir.join(name).symlink_metadata().is_ok();
    let made = ["made", "file", "symlink", "made/link", "made/new"];
    let gone = ["old", "removed", "removed dir"];
    let made = made.into_iter().filter(|name| !exists(name));
    made.chain(gone.into_iter().filter(|name| exists(name))).collect()
}

/// Makes changes on a mount with options, kills it, and calls `check` on the next mount.
fn kill_after_changes(options: &[&str], check: impl Fn(&Path)) {
    let temp = tempfile::tempdir().unwrap();
    let (image, dir) = (temp.path().join("disk.vfs"), temp.path().join("mnt"));
    fs::create_dir(&dir).unwrap();
    let mount = Mount::new(&image, &dir);
    for file in ["old", "removed", "data", "mode"] {
        fs::write(dir.join(file), "old").unwrap();
    }
    fs::create_dir(dir.join("removed dir")).unwrap();
    mount.unmount();
    // Nothing becomes durable by itself.
    let mount = Mount::with(&[options, &["--sync-interval=3600"]].concat(), &image, &dir);
    fs::write(dir.join("data"), vec![b'x'; 200_000]).unwrap();
    fs::set_permissions(dir.join("mode"), std::os::unix::fs::PermissionsExt::from_mode(0o400))
        .unwrap();
    change_names(&dir);
    mount.kill();
    let mount = Mount::new(&image, &dir);
    check(&dir);
    mount.unmount();
    fsck(&image);
}

fn has_data(dir: &Path) -> bool {
    fs::read(dir.join("data")).unwrap() == vec![b'x'; 200_000]
}

#[test]
fn a_killed_mount_loses_what_nobody_has_synced() {
    if !can_mount() {
        return;
    }
    kill_after_changes(&[], |dir| {
        assert_eq!(missing_names(dir).len(), 8);
        assert!(!has_data(dir));
    });
}

#[test]
fn with_dirsync_it_loses_no_names() {
    if !can_mount() {
        return;
    }
    kill_after_changes(&["-o", "dirsync"], |dir| assert_eq!(missing_names(dir), [""; 0]));
}

/// A change of a mount, and whether it is there.
type Change = (fn(&Path), fn(&Path) -> bool);

/// Changes after each of which the mount is killed, since a later one would make it durable.
const CHANGES: [Change; 6] = [
    (|dir| fs::write(dir.join("data"), vec![b'x'; 200_000]).unwrap(), has_data),
    (
        |dir| {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o400);
            fs::set_permissions(dir.join("data"), mode).unwrap();
        },
        |dir| dir.join("data").metadata().unwrap().permissions().readonly(),
    ),
    (
        |dir| OpenOptions::new().write(true).open(dir.join("data")).unwrap().set_len(1).unwrap(),
        |dir| dir.join("data").metadata().unwrap().len() == 1,
    ),
    (
        |dir| {
            let file = OpenOptions::new().write(true).open(dir.join("data")).unwrap();
            let mode = rustix::fs::FallocateFlags::empty();
            rustix::fs::fallocate(file, mode, 0, 100_000).unwrap();
        },
        |dir| dir.join("data").metadata().unwrap().len() == 100_000,
    ),
    (
        |dir| {
            let name = dir.join("data");
            rustix::fs::setxattr(name, "user.a", b"b", rustix::fs::XattrFlags::empty()).unwrap();
        },
        |dir| rustix::fs::getxattr(dir.join("data"), "user.a", &mut [0; 8]) == Ok(1),
    ),
    (
        |dir| fs::remove_dir(dir.join("removed dir")).unwrap(),
        |dir| !dir.join("removed dir").exists(),
    ),
];

#[test]
fn with_sync_it_loses_nothing() {
    if !can_mount() {
        return;
    }
    kill_after_changes(&["-o", "sync"], |dir| {
        assert_eq!(missing_names(dir), [""; 0]);
        assert!(has_data(dir));
    });
    for (number, (change, is_there)) in CHANGES.iter().enumerate() {
        let temp = tempfile::tempdir().unwrap();
        let (image, dir) = (temp.path().join("disk.vfs"), temp.path().join("mnt"));
        fs::create_dir(&dir).unwrap();
        let mount = Mount::new(&image, &dir);
        fs::write(dir.join("data"), "old").unwrap();
        fs::create_dir(dir.join("removed dir")).unwrap();
        mount.unmount();
        let mount = Mount::with(&["--sync-interval=3600", "-o", "sync"], &image, &dir);
        assert!(!is_there(&dir), "change {number}");
        change(&dir);
        mount.kill();
        let mount = Mount::new(&image, &dir);
        assert!(is_there(&dir), "change {number} is lost");
        mount.unmount();
    }
}
