//! Tests of reading the table of mounts.

use std::ffi::OsStr;

use super::*;

#[test]
fn lines_have_the_options_of_their_superblocks() {
    let table = b"30 22 0:40 / /mnt/a\\040b rw,dirsync - fuse.vfscale /data/my\\040disk.vfs rw,sync
31 22 0:41 / /mnt/other rw shared:7 master:1 - fuse.sshfs me@there:/ rw,dirsync,user_id=0

half a line
";
    let lines: Vec<_> = parse(table).collect();
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[0].dir(), Path::new("/mnt/a b"));
    assert_eq!(lines[0].source(), Path::new("/data/my disk.vfs"));
    assert!(lines[0].is_ours() && lines[0].has("sync") && !lines[0].has("dirsync"));
    assert!(!lines[1].is_ours() && lines[1].has("dirsync") && !lines[1].has("sync"));
}

#[test]
fn what_is_no_escape_stays() {
    for (text, meant) in
        [("a\\134b", "a\\b"), ("a\\9", "a\\9"), ("\\", "\\"), ("\\04", "\\04"), ("", "")]
    {
        assert_eq!(unescaped(text.as_bytes()), OsStr::new(meant), "{text}");
    }
}
