//! Mounts without extended attributes.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::fchown;

use rustix::fs::XattrFlags;
use rustix::io::Errno;
use vfscale::posix::{At, AtFlags};
use vfscale_fuse::{Builder, MountError, Xattrs};

use crate::common::{self, BOTH, TestMount, owner};

const ACCESS_LIST: &str = "system.posix_acl_access";

/// Returns an access control list of the owner, a user 5 and the group, with a mask.
fn access_list() -> Vec<u8> {
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, id) in [(1, u32::MAX), (2, 5), (4, u32::MAX), (16, u32::MAX), (32, u32::MAX)] {
        list.extend([&[tag, 0, 6, 0], &id.to_le_bytes()[..]].concat());
    }
    list
}

/// Returns the error of reading an attribute where there are none: Linux reports a list that can't
/// exist as absent.
fn without(name: &str) -> Errno {
    if name == ACCESS_LIST { Errno::NODATA } else { Errno::OPNOTSUPP }
}

#[test]
fn calls_on_refused_attributes_are_not_supported() {
    for sharing in BOTH {
        let Some(m) = TestMount::with(sharing, |b| b.xattrs(Xattrs::Refused)) else { return };
        let path = m.path("f");
        File::create(&path).unwrap();
        let mut buf = [0; 64];
        for _ in 0..2 {
            for (name, value) in [("user.a", b"x".to_vec()), (ACCESS_LIST, access_list())] {
                let set = rustix::fs::setxattr(&path, name, &value, XattrFlags::empty());
                assert_eq!(set, Err(Errno::OPNOTSUPP), "{sharing:?} {name}");
                let got = rustix::fs::getxattr(&path, name, &mut buf);
                assert_eq!(got, Err(without(name)), "{sharing:?} {name}");
            }
            let removed = rustix::fs::removexattr(&path, "user.a");
            assert_eq!(removed, Err(Errno::OPNOTSUPP), "{sharing:?}");
            let listed = rustix::fs::listxattr(&path, &mut buf);
            assert!(matches!(listed, Ok(0) | Err(Errno::OPNOTSUPP)), "{sharing:?} {listed:?}");
        }
        let names = m.vfs.task().posix().listxattrat(At::Cwd, "/f", AtFlags::empty()).unwrap();
        assert!(names.is_empty(), "{sharing:?} {names:?}");
    }
}

/// The kernel asks for the capabilities of each file before its first write, and before a change of
/// its owner.
#[test]
fn a_new_file_takes_two_messages_less() {
    const FILES: u64 = 20;
    let (uid, gid) = owner();
    let count = |xattrs: Xattrs| {
        let m = TestMount::with(vfscale_fuse::Sharing::Exclusive, |b| b.xattrs(xattrs))?;
        let make = |name: String| {
            let mut file = File::create(m.path(&name)).unwrap();
            file.write_all(b"data").unwrap();
            fchown(&file, Some(uid), Some(gid)).unwrap();
        };
        make("first".into());
        let before = m.mounted().stats().requests;
        (0..FILES).for_each(|i| make(format!("f{i}")));
        Some(m.mounted().stats().requests - before)
    };
    let (Some(served), Some(refused)) = (count(Xattrs::Served), count(Xattrs::Refused)) else {
        return;
    };
    // The close of the first file may be told late, in either mount.
    assert!(refused + 2 * FILES <= served + 2, "{refused} and {served} messages");
}

#[test]
fn trees_with_attributes_are_refused_unless_those_are_to_be_ignored() {
    for (name, value) in [("user.a", b"x".to_vec()), (ACCESS_LIST, access_list())] {
        let vfs = common::memory(64 << 20);
        let task = vfs.task();
        task.create_dir_all("/d/e").unwrap();
        task.write("/d/e/f", "data").unwrap();
        let set = |name| {
            task.posix().setxattrat(
                At::Cwd,
                "/d/e/f",
                name,
                &value,
                vfscale::posix::XattrFlags::empty(),
                AtFlags::empty(),
            )
        };
        set(name).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let refused = Builder::new(&vfs).xattrs(Xattrs::Refused).mount(dir.path());
        let Err(MountError::HasXattrs { path }) = refused else { panic!("mounted with {name}") };
        assert_eq!(path.to_str(), Some("/d/e/f"));
        let ignoring = TestMount::of(vfs, common::SHARED, |b| b.xattrs(Xattrs::Ignored));
        let Some(m) = ignoring else { return };
        let got = rustix::fs::getxattr(m.path("d/e/f"), name, &mut [0; 64]);
        assert_eq!(got, Err(without(name)));
        assert_eq!(fs::read(m.path("d/e/f")).unwrap(), b"data");
        let names = task.posix().listxattrat(At::Cwd, "/d/e/f", AtFlags::empty()).unwrap();
        assert_eq!(names, [name]);
    }
}

#[test]
fn a_tree_deeper_than_a_path_is_searched() {
    let vfs = vfscale::memory().size(64 << 20).build().unwrap();
    let task = vfs.task();
    for _ in 0..3000 {
        task.create_dir("d").unwrap();
        task.set_current_dir("d").unwrap();
    }
    task.write("file", "").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let mount = || Builder::new(&vfs).xattrs(Xattrs::Refused).mount(dir.path());
    match mount() {
        Ok(mounted) => assert!(mounted.unmount().is_ok()),
        // Without the right to mount anything the search has ended well.
        Err(error) => assert!(!matches!(error, MountError::FileSystem(_)), "{error}"),
    }
    task.set_xattr("file", "user.a", "x").unwrap();
    let Err(MountError::HasXattrs { path }) = mount() else { panic!("mounted") };
    assert!(path.ends_with("d/d/file"));
}
