#![allow(clippy::unwrap_used, reason = "a test")]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::escaped_path;
use crate::base::types::{MountFlags, UmountFlags};
use crate::names_only_tests::{NamesOnly, names_only};
use crate::task::task_struct::Task;
use vfscale_sync::scaling::Scaling;

fn task() -> Task {
    names_only(Scaling::with_slots(2)).task()
}

fn mount(task: &Task, path: &str, flags: MountFlags) {
    task.posix().mount(std::sync::Arc::new(NamesOnly::default()), path, flags).unwrap();
}

/// Returns the lines without the numbers of mounts and devices, which other tests change.
fn lines(task: &Task) -> Vec<String> {
    let line = |text: String| text.splitn(4, ' ').nth(3).unwrap().to_owned();
    task.posix().mounts().iter().map(|mount| line(mount.mountinfo().to_string())).collect()
}

#[test]
fn lines_as_in_mountinfo() {
    let task = task();
    task.create_dir("/a b").unwrap();
    task.create_dir("/m").unwrap();
    mount(&task, "/m", MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NOATIME);
    task.posix().bind("/a b", "/a b", false).unwrap();
    task.posix().remount_bind("/a b", MountFlags::RDONLY | MountFlags::NODIRATIME).unwrap();
    let expected = [
        "/ / rw,relatime - names names rw",
        "/ /m ro,nosuid,noatime - names names ro",
        "/a\\040b /a\\040b ro,nodiratime,relatime - names names rw",
    ];
    assert_eq!(lines(&task), expected);
    let mounts = task.posix().mounts();
    assert_eq!(mounts[1].mounts().to_string(), "names /m names ro,nosuid,noatime 0 0");
    let (root, on) = (&mounts[0], &mounts[1]);
    assert_eq!((root.parent, on.parent), (root.id, root.id));
    let stat = task.metadata("/m").unwrap();
    assert_eq!((on.id, on.dev), (stat.mnt_id, stat.dev));
    let begin = format!(
        "{} {} {}:{} / /m ",
        on.id,
        root.id,
        rustix::fs::major(on.dev),
        rustix::fs::minor(on.dev)
    );
    assert!(on.mountinfo().to_string().starts_with(&begin));
}

#[test]
fn mountinfo_shows_no_mount_that_can_not_be_reached() {
    let task = task();
    for dir in ["/a", "/a/b", "/m", "/x"] {
        task.create_dir(dir).unwrap();
    }
    mount(&task, "/a/b", MountFlags::empty());
    mount(&task, "/m", MountFlags::empty());
    let inside = task.fork();
    inside.posix().chroot("/a").unwrap();
    assert_eq!(lines(&inside), ["/ /b rw,relatime - names names rw"]);
    // A mount over the root of a task is the only mount on that root which the root reaches.
    mount(&task, "/a/b", MountFlags::NODEV);
    let points = |task: &Task| {
        let all = task.posix().mounts().into_iter();
        all.map(|mount| mount.mount_point.to_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(points(&inside), ["/b", "/b"]);
    task.rename("/a", "/x/y").unwrap();
    assert_eq!(points(&task), ["/", "/x/y/b", "/m", "/x/y/b"]);
    task.posix().umount("/m", UmountFlags::DETACH).unwrap();
    assert_eq!(points(&task), ["/", "/x/y/b", "/x/y/b"]);
}

#[test]
fn the_root_of_a_mount_that_was_removed() {
    let task = task();
    for dir in ["/a", "/m"] {
        task.create_dir(dir).unwrap();
    }
    task.posix().bind("/a", "/m", false).unwrap();
    task.remove_dir("/a").unwrap();
    assert_eq!(lines(&task)[1], "/a//deleted /m rw,relatime - names names rw");
}

#[test]
fn bytes_that_would_split_a_line_are_escaped() {
    let shown = |bytes: &[u8]| escaped_path(Path::new(OsStr::from_bytes(bytes))).to_string();
    assert_eq!(shown(b"/a b\tc\nd\\e#"), "/a\\040b\\011c\\012d\\134e#");
    assert_eq!(shown("/\u{e9} \u{e9}".as_bytes()), "/\u{e9}\\040\u{e9}");
    assert_eq!(shown(b"/\xff\xfe x"), "/\\377\\376\\040x");
    assert_eq!(shown(b""), "");
    assert_eq!(super::escaped_source("#1 #").to_string(), "\\0431\\040\\043");
}
