//! Mounts that another process, here the test, has made.

use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use crate::common;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use vfscale_fuse::{Attachment, Builder, MountError, Mounted, Unserved, control};

/// Opens the device, and mounts it at `dir`.
fn opened_and_mounted(dir: &Path) -> OwnedFd {
    let device = File::options().read(true).write(true).open("/dev/fuse").unwrap();
    let options = format!(
        "fd={},rootmode=40000,user_id=0,group_id=0,default_permissions",
        device.as_raw_fd()
    );
    let options = std::ffi::CString::new(options).unwrap();
    mount("test", dir, "fuse.test", MountFlags::empty(), options.as_c_str()).unwrap();
    device.into()
}

#[test]
fn a_mount_of_another_process_is_served() {
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
        common::skipped("needs root and /dev/fuse");
        return;
    }
    type Serve = fn(Builder, OwnedFd) -> Result<Mounted, MountError>;
    let ways: [Serve; 2] =
        [Builder::mount_fd, |builder, fd| builder.mount(format!("/dev/fd/{}", fd.as_raw_fd()))];
    for serve in ways {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("mnt");
        fs::create_dir(&dir).unwrap();
        let fd = opened_and_mounted(&dir);
        let vfs = common::memory(64 << 20);
        let mounted = serve(Builder::new(&vfs), fd).unwrap();
        assert!(!mounted.is_own() && mounted.dir().starts_with("/dev/fd"));
        fs::write(dir.join("f"), "text").unwrap();
        assert_eq!(vfs.task().read_to_string("/f").unwrap(), "text");
        let (mounted, refused) = mounted.unmount().unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ResourceBusy);
        assert!(mounted.is_mounted());
        unmount(&dir, UnmountFlags::empty()).unwrap();
        mounted.wait();
    }
}

#[test]
fn other_descriptors_are_refused() {
    let vfs = common::memory(1 << 20);
    let null = File::open("/dev/null").unwrap();
    let numbers = [format!("/dev/fd/{}", null.as_raw_fd()), "/dev/fd/1000000".to_owned()];
    for path in numbers {
        let refused = Builder::new(&vfs).mount(&path).err().unwrap().to_string();
        assert!(
            refused.contains(&path) && refused.contains("no descriptor of a mount"),
            "{refused}"
        );
    }
    assert!(Builder::new(&vfs).mount_fd(null.into()).is_err());
}

/// One process mounts, and another one serves and can unmount; here both are the test.
#[test]
fn a_mount_is_made_for_another_process() {
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
        common::skipped("needs root and /dev/fuse");
        return;
    }
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("mnt");
    fs::create_dir(&dir).unwrap();
    let vfs = common::memory(64 << 20);
    let unserved = Attachment::new().source("made").mount(&dir).unwrap();
    let device = unserved.device();
    // The server knows the directory by its path, and by the device number that it is the same.
    let fd = unserved.as_fd().try_clone_to_owned().unwrap();
    let passed = Unserved::new(fd, unserved.dir().to_owned(), device);
    drop(unserved);
    let mounted = Builder::new(&vfs).serve(passed).unwrap();
    assert!(mounted.is_own());
    assert_eq!(mounted.device().unwrap(), device);
    fs::write(dir.join("f"), "text").unwrap();
    assert_eq!(vfs.task().read_to_string("/f").unwrap(), "text");
    let address = control::address(&dir).unwrap();
    // Another mount at the path is not the one that is unmounted.
    let over = Builder::new(&common::memory(1 << 20)).mount(&dir).unwrap();
    assert_ne!(control::address(&dir).unwrap(), address);
    let (mounted, refused) = mounted.unmount().unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EINVAL));
    over.unmount().map_err(|(_, e)| e).unwrap();
    mounted.unmount().map_err(|(_, e)| e).unwrap();
    assert!(control::Connection::open(&address, None).is_err(), "its socket is gone");
    assert!(!dir.join("f").exists());
    // A mount that nobody serves goes.
    let unserved = Attachment::new().mount(&dir).unwrap();
    unserved.unmount().unwrap();
    assert!(fs::read_dir(&dir).unwrap().next().is_none());
}
