//! The first branch of an image that is mounted.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::branches::Image;
use crate::common::{can_mount, vfscale};

pub(crate) fn dir_of(image: &Image, name: &str) -> PathBuf {
    let dir = image.0.path().join(name);
    fs::create_dir_all(&dir).unwrap();
    dir
}

pub(crate) fn mount(image: &Image, options: &[&str], dir: &Path) {
    let before = [&["mount", "--background"], options].concat();
    image.good(&before, &[dir.to_str().unwrap()]);
}

fn umount(dir: &Path) {
    assert!(vfscale().arg("umount").arg(dir).status().unwrap().success());
}

/// Writes files and syncs each, until it is told to stop or the mount is gone. `synced` counts
/// them.
fn write_synced(dir: &Path, thread: usize, synced: &AtomicU64, is_over: &AtomicBool) {
    for n in 0.. {
        let written = File::create(dir.join(format!("t{thread} {n}"))).and_then(|mut file| {
            file.write_all(format!("{thread} {n}").repeat(500).as_bytes())?;
            file.sync_all()
        });
        if written.is_err() || is_over.load(Ordering::Relaxed) {
            return;
        }
        synced.store(n + 1, Ordering::Release);
    }
}

/// Checks the files that `write_synced` has written.
fn check_synced(dir: &Path, synced: &[u64]) {
    for (thread, synced) in synced.iter().enumerate() {
        for n in 0..*synced {
            let text = fs::read_to_string(dir.join(format!("t{thread} {n}"))).unwrap();
            assert_eq!(text, format!("{thread} {n}").repeat(500));
        }
    }
}

fn counts(synced: &[AtomicU64; 4]) -> [u64; 4] {
    synced.each_ref().map(|count| count.load(Ordering::Acquire))
}

/// Four threads write while three branches are made; two of them are mounted beside.
///
/// Race: Writers of an open volume against its becoming a pool.
#[test]
fn a_mounted_volume_gets_its_first_branches() {
    if !can_mount() {
        return;
    }
    let image = Image::new(false);
    let (main, other) = (dir_of(&image, "main"), dir_of(&image, "other"));
    mount(&image, &[], &main);
    let socketless = image.bad(1, &["mount", "-o", "branch=a"], &[other.to_str().unwrap()]);
    assert!(socketless.contains("branch create"), "{socketless}");
    assert!(image.bad(1, &["branch", "delete"], &["a"]).contains("no branches yet"));
    assert!(image.bad(1, &["branch", "create", "--from", "no"], &["a"]).contains("no such branch"));
    assert_eq!(image.names(), [""; 0]);
    let (synced, is_over) = ([const { AtomicU64::new(0) }; 4], AtomicBool::new(false));
    let mut at_fork = Vec::new();
    thread::scope(|scope| {
        for (thread, synced) in synced.iter().enumerate() {
            let (dir, is_over) = (&main, &is_over);
            scope.spawn(move || write_synced(dir, thread, synced, is_over));
        }
        for name in ["a", "b", "c"] {
            // Each of the writers has synced something since the last fork, however slow the disk.
            let before = counts(&synced);
            vfscale_harness::comes(Duration::from_secs(60), || {
                counts(&synced).iter().zip(before).all(|(now, before)| *now != before)
            });
            at_fork.push(counts(&synced));
            image.good(&["branch", "create"], &[name]);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(at_fork[0].iter().all(|count| *count > 0), "{at_fork:?}");
    assert_eq!(image.names(), ["a", "b", "c", "main"]);
    // A branch beside it, by the process that has become its server.
    mount(&image, &["-o", "branch=a"], &other);
    check_synced(&other, &at_fork[0]);
    fs::write(other.join("f"), "in a").unwrap();
    assert_eq!(fs::read_to_string(main.join("f")).unwrap(), "base\n");
    // The server stays when the volume is closed that it began with.
    umount(&main);
    check_synced(&other, &at_fork[0]);
    mount(&image, &["-o", "branch=b"], &main);
    check_synced(&main, &at_fork[1]);
    umount(&main);
    umount(&other);
    image.good(&["fsck"], &[]);
    mount(&image, &[], &main);
    check_synced(&main, &counts(&synced));
    umount(&main);
    assert_eq!(image.read("/f"), "base\n");
}

/// A mount in the foreground, which can be killed.
fn server(image: &Image, dir: &Path) -> Child {
    let mut command = vfscale();
    command.arg("mount").arg(image.path()).arg(dir).stderr(Stdio::piped());
    let mut server = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(server.stderr.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("mounted at "), "{line}");
    server
}

/// The server is killed at some time while its volume becomes a pool.
#[test]
fn a_killed_server_leaves_a_volume_or_a_pool() {
    if !can_mount() {
        return;
    }
    let mut pools = 0;
    for round in 0..12 {
        let image = Image::new(false);
        let dir = dir_of(&image, "dir");
        let mut server = server(&image, &dir);
        let (synced, is_over) = ([const { AtomicU64::new(0) }; 4], AtomicBool::new(false));
        thread::scope(|scope| {
            for (thread, synced) in synced.iter().enumerate() {
                let (dir, is_over) = (&dir, &is_over);
                scope.spawn(move || write_synced(dir, thread, synced, is_over));
            }
            vfscale_harness::wait_until("each thread has synced", || !counts(&synced).contains(&0));
            let mut create = vfscale();
            create.args(["branch", "create"]).arg(image.path()).arg("a");
            let mut create = create.stderr(Stdio::null()).spawn().unwrap();
            vfscale_harness::pause(Duration::from_millis(round * 5));
            server.kill().unwrap();
            server.wait().unwrap();
            create.wait().unwrap();
            is_over.store(true, Ordering::Relaxed);
        });
        // Commands of other tests look at all mounts, and a look keeps one busy for a moment.
        let unmount = || Command::new("umount").arg(&dir).status().unwrap().success();
        vfscale_harness::wait_until("the dead mount is idle", unmount);
        pools += u32::from(!image.names().is_empty());
        mount(&image, &[], &dir);
        check_synced(&dir, &counts(&synced));
        umount(&dir);
        image.good(&["fsck"], &[]);
        image.good(&["branch", "create"], &["later"]);
    }
    eprintln!("{pools} of 12 were pools");
}

#[test]
fn a_mount_for_reading_only_gets_no_branch() {
    if !can_mount() {
        return;
    }
    let image = Image::new(false);
    let dir = dir_of(&image, "dir");
    mount(&image, &["-o", "ro"], &dir);
    assert!(image.bad(1, &["branch", "create"], &["a"]).contains("unmount"));
    // At the directory.
    let output = vfscale().args(["branch", "create"]).arg(&dir).arg("a").output().unwrap();
    let refused = String::from_utf8(output.stderr).unwrap();
    assert!(refused.contains("reading only"), "{refused}");
    umount(&dir);
    assert_eq!(image.names(), [""; 0]);
}

/// A command in a branch that is gone afterwards, beside the mount of a volume without branches.
#[test]
fn a_trial_beside_a_mounted_volume() {
    if !can_mount() {
        return;
    }
    let image = Image::new(false);
    let dir = dir_of(&image, "dir");
    mount(&image, &[], &dir);
    let says = image.call(&["run"], &["--discard", "--", "rm", "f"]);
    let says = (says.status.success(), String::from_utf8(says.stderr).unwrap());
    assert!(says.0 && says.1.contains("becomes a pool of branches now"), "{says:?}");
    assert_eq!(fs::read_to_string(dir.join("f")).unwrap(), "base\n");
    assert_eq!(image.names(), ["main"]);
    umount(&dir);
}
