//! The attributes that `stat(2)` and `statx(2)` show, gathered from a mount, a dentry and an inode.

use crate::base::types::{FileType, Stat, StatMask};
use crate::objects::dcache::dentry::Dentry;
use crate::objects::inode::Inode;
use crate::objects::vfsmount::Mount;

/// The size of a directory, independent of its contents. No thread counts entries: every thread
/// that makes or removes a name would write one shared count, and adding up sharded counts would
/// make `stat`, which a mount calls after every change, as slow as the directory is large.
const DIRECTORY_BYTES: u64 = 4096;

/// Preferred unit of I/O.
const BLOCK_BYTES: u32 = 4096;

/// Returns the attributes of a path. Reads no field of the dentry.
#[inline]
pub(crate) fn fill(mount: &Mount, dentry: &Dentry, inode: &Inode) -> Stat {
    fill_some(mount, dentry, inode, StatMask::all())
}

/// Returns the attributes of a path that `mask` requests, and those that never change: file system,
/// inode number, type, mount. The others are 0, and are not read.
#[inline]
pub(crate) fn fill_some(mount: &Mount, dentry: &Dentry, inode: &Inode, mask: StatMask) -> Stat {
    let mut stat = Stat {
        dev: inode.sb().dev(),
        ino: inode.ino(),
        mode: inode.file_type().as_raw_mode(),
        blksize: BLOCK_BYTES,
        mnt_id: mount.id(),
        mount_root: std::ptr::eq(dentry, mount.root()),
        flags: inode.flags(),
        ..Stat::default()
    };
    let wants = |some| mask.intersects(some);
    if wants(StatMask::MODE) {
        stat.mode = inode.mode();
    }
    if wants(StatMask::MTIME | StatMask::CTIME) {
        (stat.mtime, stat.ctime) = inode.shown_times();
    }
    if wants(StatMask::ATIME) {
        stat.atime = inode.atime();
    }
    if wants(StatMask::BTIME) {
        stat.btime = inode.btime();
    }
    if wants(StatMask::NLINK) {
        stat.nlink = inode.nlink();
    }
    if wants(StatMask::UID | StatMask::GID) {
        (stat.uid, stat.gid) = (inode.uid(), inode.gid());
    }
    if wants(StatMask::SIZE) {
        stat.size = if inode.is_dir() { DIRECTORY_BYTES } else { inode.size() };
    }
    if wants(StatMask::BLOCKS) {
        stat.blocks = inode.blocks();
    }
    if wants(StatMask::GENERATION) {
        stat.generation = inode.generation();
    }
    if matches!(stat.file_type(), FileType::CharacterDevice | FileType::BlockDevice) {
        stat.rdev = inode.rdev();
    }
    stat
}
