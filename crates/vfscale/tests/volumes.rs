//! Volumes that are opened and closed.

#![allow(clippy::unwrap_used, reason = "a test")]
#![cfg(not(any(loom, shuttle)))]

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Also while somebody is in the middle of a walk: what refers to the image then is dropped later.
#[test]
fn what_is_closed_can_be_opened_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.vfs");
    vfscale::volume(&path).create(64 << 20).open().unwrap().close().unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let _walk = vfscale_sync::rcu::pin();
                thread::sleep(Duration::from_millis(2));
            }
        });
        let opened = (0..20).try_for_each(|_| {
            let volume = vfscale::volume(&path).open()?;
            volume.task().write_file("/file", "contents").unwrap();
            volume.close()
        });
        is_over.store(true, Ordering::Relaxed);
        opened.unwrap();
    });
}

/// A device of the caller's stays the caller's.
#[test]
fn the_devices_of_others_are_not_released() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.vfs");
    vfscale::volume(&path).create(64 << 20).open().unwrap().close().unwrap();
    let device = std::sync::Arc::new(vfscale_block::FileDevice::open(&path).unwrap());
    for contents in ["one", "two"] {
        let volume = vfscale::volume_on(device.clone()).open().unwrap();
        volume.task().write_file("/file", contents).unwrap();
        volume.close().unwrap();
    }
    let locked = vfscale::volume(&path).open().unwrap_err();
    assert!(matches!(locked, vfscale::VolumeError::Device(vfscale_block::Error::Locked { .. })));
}
