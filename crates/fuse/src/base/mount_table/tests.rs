//! Tests of reading the mount table.

use std::ffi::OsStr;
use std::path::Path;

use super::*;

#[test]
fn a_line_describes_its_file_system() {
    let table = b"36 35 98:0 / /mnt rw,noatime shared:1 - fuse.vfscale /disk.vfs rw,user_id=0\n\
        37 35 0:55 / /a\\040b rw,relatime - fuse.vfscale x ro,user_id=7\n\n";
    let lines: Vec<_> = lines(table).collect();
    let [one, other] = &lines[..] else { panic!("{}", lines.len()) };
    assert_eq!((one.device(), one.dir().as_path()), (&b"98:0"[..], Path::new("/mnt")));
    assert_eq!((other.device(), other.dir().as_path()), (&b"0:55"[..], Path::new("/a b")));
    assert_eq!([one, other].map(MountLine::is_read_only), [false, true]);
    assert_eq!([one, other].map(MountLine::user), [Some(0), Some(7)]);
    assert!(other.is(37, (0, 55)) && !other.is(36, (0, 55)) && !other.is(37, (0, 5)));
}

#[test]
fn lines_have_the_options_of_their_superblocks() {
    let table = b"30 22 0:40 / /mnt/a\\040b rw,dirsync - fuse.vfscale /data/my\\040disk.vfs rw,sync
31 22 0:41 /sub /mnt/other rw shared:7 master:1 - fuse.sshfs me@there:/ rw,dirsync,user_id=x

half a line
";
    let lines: Vec<_> = lines(table).collect();
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[0].dir(), Path::new("/mnt/a b"));
    assert_eq!(lines[0].source(), Path::new("/data/my disk.vfs"));
    assert!(lines[0].is_ours() && lines[0].has("sync") && !lines[0].has("dirsync"));
    assert!(!lines[1].is_ours() && lines[1].has("dirsync") && !lines[1].has("sync"));
    assert!(lines[0].is_whole() && !lines[1].is_whole() && lines[1].user().is_none());
}

#[test]
fn mount_tables_keep_backslashes_that_escape_nothing() {
    for (text, meant) in [
        ("/a\\134b", "/a\\b"),
        ("\\011\\012", "\t\n"),
        ("a\\9", "a\\9"),
        ("\\", "\\"),
        ("\\04", "\\04"),
        ("", ""),
    ] {
        assert_eq!(unescaped(text.as_bytes()), OsStr::new(meant), "{text}");
    }
}
