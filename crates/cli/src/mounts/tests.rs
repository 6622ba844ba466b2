//! Tests of reading the table of mounts.

use super::*;

#[test]
fn the_mounts_of_an_image_are_found() {
    let table = b"22 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw
30 22 0:40 / /mnt/a\\040b rw,nosuid - fuse.vfscale /data/my\\040disk.vfs rw,user_id=0
31 22 0:41 / /mnt/other rw shared:7 master:1 - fuse.vfscale /data/other.vfs rw,user_id=0
32 22 0:40 /sub /mnt/bind rw - fuse.vfscale /data/my\\040disk.vfs rw,user_id=0
33 22 0:42 / /mnt/sshfs rw - fuse.sshfs /data/sshfs.vfs rw,user_id=0
34 22 0:43 / /mnt/branch rw - fuse.vfscale /data/other.vfs rw,user_id=0
35 22 0:43 / /mnt/again rw - fuse.vfscale /data/other.vfs rw,user_id=0
";
    let found = |image: &str| of(table, Path::new(image));
    assert_eq!(found("/data/my disk.vfs"), [PathBuf::from("/mnt/a b")]);
    assert_eq!(found("/data/other.vfs"), ["/mnt/again", "/mnt/other"].map(PathBuf::from));
    assert!(found("/data/sshfs.vfs").is_empty() && found("/data/none.vfs").is_empty());
    assert!(of(b"", Path::new("/data/none.vfs")).is_empty());
}

#[test]
fn only_mounts_of_trusted_users_count() {
    let image = tempfile::NamedTempFile::new().unwrap();
    let source = image.path().canonicalize().unwrap();
    let own = rustix::process::geteuid().as_raw();
    let found = |users: &[&str], dirs: &[&str]| {
        let line = |(n, (user, dir)): (usize, (&&str, &&str))| {
            format!("4{n} 22 0:4{n} / {dir} rw - fuse.vfscale {} rw{user}\n", source.display())
        };
        let table: String = users.iter().zip(dirs).enumerate().map(line).collect();
        of(table.as_bytes(), &source)
    };
    let mine = format!(",user_id={own},group_id=0");
    let users = [",user_id=4242", ",user_id=0", &mine, "", ",user_id=x"];
    assert_eq!(found(&users, &["/a", "/b", "/c", "/d", "/e"]), ["/c", "/b"].map(PathBuf::from));
    // Another mount hides it.
    assert_eq!(found(&[&mine, ",user_id=4242"], &["/a", "/a"]), Vec::<PathBuf>::new());
    let trusted = Trusted { root: 0, own: 7, owner: Some(8) };
    assert_eq!([0, 7, 8, 9].map(|user| trusted.has(user)), [true, true, true, false]);
}
