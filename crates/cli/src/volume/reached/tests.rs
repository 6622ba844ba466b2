//! Tests of finding mounts.

use super::*;

#[test]
fn the_mount_of_an_image_is_found() {
    let mounts = b"22 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw
30 22 0:40 / /mnt/a\\040b rw,nosuid - fuse.vfscale /data/my\\040disk.vfs rw,user_id=0
31 22 0:41 / /mnt/other rw shared:7 master:1 - fuse.vfscale /data/other.vfs rw
32 22 0:40 /sub /mnt/bind rw - fuse.vfscale /data/my\\040disk.vfs rw
33 22 0:42 / /mnt/sshfs rw - fuse.sshfs /data/sshfs.vfs rw
";
    let found = |image: &str| mount_of(mounts, Path::new(image));
    assert_eq!(found("/data/my disk.vfs"), Some(PathBuf::from("/mnt/a b")));
    assert_eq!(found("/data/other.vfs"), Some(PathBuf::from("/mnt/other")));
    assert_eq!(found("/data/sshfs.vfs"), None);
    assert_eq!(found("/data/none.vfs"), None);
    assert_eq!(mount_of(b"", Path::new("/data/none.vfs")), None);
}
