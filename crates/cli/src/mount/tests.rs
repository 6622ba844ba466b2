//! Tests of remounting's flags.

#![allow(clippy::unnecessary_cast, reason = "the constants are narrower on 32-bit machines")]

use super::*;

#[test]
fn flags_of_a_mount_are_kept_by_value() {
    let flags = flags_of_statvfs(
        (libc::ST_RDONLY | libc::ST_NOSUID | libc::ST_NODEV | libc::ST_NOEXEC) as u64,
    );
    let all = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    assert_eq!(flags, all);
    assert_eq!(flags_of_statvfs(libc::ST_NOATIME as u64), MountFlags::NOATIME);
}
