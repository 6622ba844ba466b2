//! Structures and numbers of preview 1, as its witx files define them.

use vfscale::posix::{OFlags, SetTime, Stat};
use vfscale::{Errno, FileType, Timestamp};

use super::Done;
use crate::node::Node;

pub(super) const FDFLAGS_APPEND: u32 = 1;
pub(super) const FDFLAGS_DSYNC: u32 = 2;
pub(super) const FDFLAGS_NONBLOCK: u32 = 4;
pub(super) const FDFLAGS_RSYNC: u32 = 8;
pub(super) const FDFLAGS_SYNC: u32 = 16;

pub(super) const OFLAGS_CREAT: u32 = 1;
pub(super) const OFLAGS_DIRECTORY: u32 = 2;
pub(super) const OFLAGS_EXCL: u32 = 4;
pub(super) const OFLAGS_TRUNC: u32 = 8;

pub(super) const RIGHTS_FD_READ: u64 = 1 << 1;
pub(super) const RIGHTS_FD_WRITE: u64 = 1 << 6;

/// The rights of a file: all `fd_` functions but `fd_readdir`, and polling.
const FILE_RIGHTS: u64 = 0x1ff | 0b111 << 21 | 1 << 27;
/// The rights of a directory: all `path_` functions but that on sizes, `fd_readdir`, attributes.
const DIR_RIGHTS: u64 = 0x3ff << 9 | 0b11 << 20 | 0b1111 << 23;

/// Fails if `flags` has other bits than `known`.
pub(super) fn check_flags(flags: u32, known: u32) -> Done {
    if flags & !known == 0 { Ok(()) } else { Err(Errno::INVAL.into()) }
}

/// Returns whether a walk follows a link at the end of a path.
pub(super) fn follows(lookup: u32) -> Done<bool> {
    check_flags(lookup, 1)?;
    Ok(lookup == 1)
}

pub(super) fn filetype(file_type: FileType) -> u8 {
    match file_type {
        FileType::BlockDevice => 1,
        FileType::CharacterDevice => 2,
        FileType::Directory => 3,
        FileType::RegularFile => 4,
        FileType::Socket => 6,
        FileType::Symlink => 7,
        FileType::Fifo | FileType::Unknown => 0,
    }
}

/// Returns a `filestat`. Times before 1970 are 0.
pub(super) fn filestat(stat: &Stat) -> [u8; 64] {
    let time = |time: Timestamp| u64::try_from(time.0).unwrap_or(0);
    let words = [
        stat.dev,
        stat.ino,
        filetype(stat.file_type()).into(),
        stat.nlink.into(),
        stat.size,
        time(stat.atime),
        time(stat.mtime),
        time(stat.ctime),
    ];
    let mut bytes = [0; 64];
    for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// Returns the `fdstat` of a file or directory.
pub(super) fn fdstat(node: &Node, nonblock: bool) -> [u8; 24] {
    let (base, inheriting) = if node.is_dir() {
        (DIR_RIGHTS, DIR_RIGHTS | FILE_RIGHTS)
    } else {
        let read = if node.may_read() { 0 } else { RIGHTS_FD_READ };
        let write = if node.may_write() { 0 } else { RIGHTS_FD_WRITE };
        let rights = FILE_RIGHTS & !read & !write;
        (rights, rights)
    };
    let opened = node.file().flags();
    let mut flags = if nonblock { FDFLAGS_NONBLOCK } else { 0 };
    if opened.contains(OFlags::APPEND) {
        flags |= FDFLAGS_APPEND;
    }
    if opened.contains(OFlags::SYNC) {
        flags |= FDFLAGS_SYNC;
    } else if opened.contains(OFlags::DSYNC) {
        flags |= FDFLAGS_DSYNC;
    }
    let mut bytes = [0; 24];
    bytes[0] = filetype(node.file_type());
    bytes[2..4].copy_from_slice(&(flags as u16).to_le_bytes());
    bytes[8..16].copy_from_slice(&base.to_le_bytes());
    bytes[16..24].copy_from_slice(&inheriting.to_le_bytes());
    bytes
}

/// Returns the times that a call sets.
pub(super) fn times(accessed: u64, modified: u64, flags: u32) -> Done<[SetTime; 2]> {
    check_flags(flags, 0b1111)?;
    let time = |nanos: u64, flags: u32| match flags & 0b11 {
        0 => Ok(SetTime::Omit),
        1 => Ok(SetTime::At(Timestamp(i64::try_from(nanos).map_err(|_| Errno::OVERFLOW)?))),
        2 => Ok(SetTime::Now),
        _ => Err(Errno::INVAL),
    };
    Ok([time(accessed, flags)?, time(modified, flags >> 2)?])
}
