//! Exclusive access across processes. The second process is another run of this test program. A
//! test process of its own, because children that other tests start would hold copies of the
//! owners' files until they execute.

#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use vfscale_block::{Device, Error, FileDevice, FileOptions, Holder};

/// Environment variable that names the image for the second process.
const IMAGE: &str = "VFSCALE_TEST_HOLD_IMAGE";
/// Environment variable that makes the second process open the image read-only.
const READ_ONLY: &str = "VFSCALE_TEST_HOLD_READ_ONLY";

/// Runs as the second process, until it is killed; not a test of its own.
#[test]
fn hold() {
    let Some(image) = std::env::var_os(IMAGE) else { return };
    let read_only = std::env::var_os(READ_ONLY).is_some();
    let _device = FileOptions::new().read_only(read_only).open(image).unwrap();
    println!("\nheld");
    vfscale_harness::pause(Duration::from_secs(60));
}

/// Starts a process that has the image open when this returns.
fn holder_of(image: &Path, read_only: bool) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "hold", "--nocapture"]).env(IMAGE, image).stdout(Stdio::piped());
    if read_only {
        command.env(READ_ONLY, "1");
    }
    let mut child = command.spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.map(Result::unwrap).any(|line| line == "held"), "it could not open the image");
    child
}

fn named(error: Error) -> Holder {
    let Error::Locked { holder: Some(holder), .. } = error else { panic!("{error}") };
    *holder
}

#[test]
fn the_second_opener_is_told_who_the_first_is() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    let before = SystemTime::now() - Duration::from_secs(1);
    drop(FileDevice::create(&image, 1 << 20).unwrap());
    let mut child = holder_of(&image, false);
    let error = FileDevice::open(&image).unwrap_err();
    let text = error.to_string();
    let holder = named(error);
    assert_eq!(holder.pid, child.id());
    assert!(holder.since >= before && holder.since <= SystemTime::now());
    let own = std::env::current_exe().unwrap();
    let own = own.file_name().unwrap().to_string_lossy();
    assert_eq!(holder.program, own[..own.len().min(64)]);
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert_eq!(holder.host, host.trim());
    let image_name = image.to_str().unwrap();
    assert!(text.starts_with(&format!("{image_name}: in use by process {}", child.id())), "{text}");
    assert_eq!(named(FileOptions::new().read_only(true).open(&image).unwrap_err()).pid, child.id());
    child.kill().unwrap();
    child.wait().unwrap();
    // A crash leaves neither a lock nor the name of another process.
    let device = FileDevice::open(&image).unwrap();
    assert_eq!(named(FileDevice::open(&image).unwrap_err()).pid, std::process::id());
    drop(device);
}

#[test]
fn an_owner_whose_mount_is_gone_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    drop(FileDevice::create(&image, 1 << 20).unwrap());
    FileOptions::check_free(&image).unwrap();
    let device = FileDevice::open(&image).unwrap();
    assert_eq!(named(FileOptions::check_free(&image).unwrap_err()).pid, std::process::id());
    // A number that no mount has.
    device.publish_mount((0xfff, 0xf_ffff)).unwrap();
    std::thread::scope(|scope| {
        let opener = scope.spawn(|| FileDevice::open(&image).map(drop));
        // Long enough for an opener that does not wait to fail.
        vfscale_harness::pause(Duration::from_millis(300));
        drop(device);
        opener.join().unwrap().unwrap();
    });
    FileOptions::check_free(&image).unwrap();
}

#[test]
fn readers_share_and_keep_writers_out() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    drop(FileDevice::create(&image, 1 << 20).unwrap());
    let mut child = holder_of(&image, true);
    let reader = FileOptions::new().read_only(true).open(&image).unwrap();
    let holder = named(FileDevice::open(&image).unwrap_err());
    assert!([child.id(), std::process::id()].contains(&holder.pid));
    drop(reader);
    assert_eq!(named(FileDevice::open(&image).unwrap_err()).pid, child.id());
    child.kill().unwrap();
    child.wait().unwrap();
    FileDevice::open(&image).unwrap();
}

/// Even if the file stays open for a moment longer: in a child that is just being started, or in
/// the kernel, which frees the ring asynchronously.
///
/// Race: Opening a device while its owner starts or ends.
#[test]
fn an_owner_that_closes_is_gone_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    drop(FileDevice::create(&image, 1 << 20).unwrap());
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                Command::new("true").status().unwrap();
            }
        });
        let opened: Result<(), Error> = (0..200).try_for_each(|_| {
            let device = FileDevice::open(&image)?;
            let writes: Vec<_> = (0..100).map(|i| (i * 4096, [1; 4096].as_slice())).collect();
            device.write_many(&writes)
        });
        is_done.store(true, Ordering::Relaxed);
        opened.unwrap();
    });
}

#[test]
fn a_device_that_was_released_is_free_and_is_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    let first = FileDevice::create(&image, 1 << 20).unwrap();
    first.write_at(0, &[1; 4096]).unwrap();
    first.release();
    let second = FileDevice::open(&image).unwrap();
    let block = [2; 4096];
    assert!(matches!(first.write_at(0, &block), Err(Error::ReadOnly { .. })));
    assert!(matches!(
        first.write_many(&[(0, &block), (4096, &block)]),
        Err(Error::ReadOnly { .. })
    ));
    assert!(matches!(first.discard(0, 4096), Err(Error::ReadOnly { .. })));
    assert!(matches!(first.set_size(2 << 20), Err(Error::ReadOnly { .. })));
    // Writes before the release may be lost: a flush that reported success would be a lie.
    assert!(matches!(first.flush(), Err(Error::ReadOnly { .. })));
    let mut read = [0; 4096];
    first.read_at(0, &mut read).unwrap_err();
    // Nor does it release the lock of the next owner.
    first.release();
    drop(first);
    assert_eq!(named(FileDevice::open(&image).unwrap_err()).pid, std::process::id());
    second.read_at(0, &mut read).unwrap();
    assert_eq!(read, [1; 4096]);
}

#[test]
fn a_second_name_is_the_same_image() {
    let folder = tempfile::tempdir().unwrap();
    let (image, other) = (folder.path().join("image"), folder.path().join("other"));
    let device = FileDevice::create(&image, 1 << 20).unwrap();
    std::fs::hard_link(&image, &other).unwrap();
    assert_eq!(named(FileDevice::open(&other).unwrap_err()).pid, std::process::id());
    drop(device);
    FileDevice::open(&other).unwrap();
}

/// Race: Opening a device while its owner starts or ends.
///
/// The owner takes the lock and then writes its name, and removes the name before it releases the
/// lock. A thread that finds the lock taken and the name unreadable tries both again, so it gets
/// the device or a whole name. Closing a file releases its locks only when no other process has it
/// open, and a child that another thread is starting has it open until it executes another program;
/// the owner therefore releases the locks itself.
#[test]
fn a_file_is_owned_by_one_of_many_openers() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    drop(FileDevice::create(&image, 1 << 20).unwrap());
    let barrier = std::sync::Barrier::new(4);
    for _ in 0..20 {
        let opened: Vec<_> = std::thread::scope(|scope| {
            let open = || {
                barrier.wait();
                FileDevice::open(&image)
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(open)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let (owners, others): (Vec<_>, Vec<_>) = opened.into_iter().partition(Result::is_ok);
        assert_eq!(owners.len(), 1);
        for other in others {
            assert_eq!(named(other.unwrap_err()).pid, std::process::id());
        }
    }
}
