use super::*;

#[test]
fn a_line_describes_its_file_system() {
    let table = b"36 35 98:0 / /mnt rw,noatime shared:1 - fuse.vfscale /disk.vfs rw,user_id=0\n\
        37 35 0:55 / /a\\040b rw,relatime - fuse.vfscale x ro,user_id=0\n\n";
    let lines: Vec<_> = lines(table).collect();
    let [one, other] = &lines[..] else { panic!("{}", lines.len()) };
    assert_eq!((one.device, one.dir, one.is_read_only), (&b"98:0"[..], &b"/mnt"[..], false));
    assert_eq!(
        (other.device, other.dir, other.is_read_only),
        (&b"0:55"[..], &b"/a\\040b"[..], true)
    );
    assert!(other.is(37, (0, 55)) && !other.is(36, (0, 55)) && !other.is(37, (0, 5)));
    assert_eq!(escaped(OsStr::new("/a b")), other.dir);
    assert_eq!(escaped(OsStr::new("/a\\\t\n")), b"/a\\134\\011\\012");
    for path in ["/a b", "/a\\\t\n", "/\\1", "\\"] {
        assert_eq!(unescaped(&escaped(OsStr::new(path))), path);
    }
    assert_eq!(unescaped(b"/a\\9"), "/a\\9");
}
