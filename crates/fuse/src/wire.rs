//! The FUSE protocol: numbers, flags, and the bytes of requests and replies.
//!
//! This module contains plain data only. Integers are in the byte order of the machine, and
//! structures have no padding other than what the protocol names. They are read and written field
//! by field, so no type is cast. The numbers are from `include/uapi/linux/fuse.h`, protocol 7.45.
//!
//! * [`request`] parses the bytes of one message into an [`Operation`](request::Operation);
//! * [`reply`] builds the bytes of an answer.

use bitflags::bitflags;

pub(crate) mod reply;
pub(crate) mod request;

/// The protocol's major version.
pub(crate) const MAJOR: u32 = 7;
/// The newest supported minor version.
pub(crate) const MINOR: u32 = 45;
/// The oldest accepted minor version (Linux 5.4): all structures have had their present sizes
/// since.
pub(crate) const MINOR_OLDEST: u32 = 31;

/// The node number of the root directory.
pub(crate) const ROOT: u64 = 1;

/// Bytes of the header in front of each reply.
pub(crate) const OUT_HEADER: usize = 16;

/// Operation numbers.
pub(crate) mod opcode {
    pub(crate) const LOOKUP: u32 = 1;
    pub(crate) const FORGET: u32 = 2;
    pub(crate) const GETATTR: u32 = 3;
    pub(crate) const SETATTR: u32 = 4;
    pub(crate) const READLINK: u32 = 5;
    pub(crate) const SYMLINK: u32 = 6;
    pub(crate) const MKNOD: u32 = 8;
    pub(crate) const MKDIR: u32 = 9;
    pub(crate) const UNLINK: u32 = 10;
    pub(crate) const RMDIR: u32 = 11;
    pub(crate) const RENAME: u32 = 12;
    pub(crate) const LINK: u32 = 13;
    pub(crate) const OPEN: u32 = 14;
    pub(crate) const READ: u32 = 15;
    pub(crate) const WRITE: u32 = 16;
    pub(crate) const STATFS: u32 = 17;
    pub(crate) const RELEASE: u32 = 18;
    pub(crate) const FSYNC: u32 = 20;
    pub(crate) const SETXATTR: u32 = 21;
    pub(crate) const GETXATTR: u32 = 22;
    pub(crate) const LISTXATTR: u32 = 23;
    pub(crate) const REMOVEXATTR: u32 = 24;
    pub(crate) const FLUSH: u32 = 25;
    pub(crate) const INIT: u32 = 26;
    pub(crate) const OPENDIR: u32 = 27;
    pub(crate) const READDIR: u32 = 28;
    pub(crate) const RELEASEDIR: u32 = 29;
    pub(crate) const FSYNCDIR: u32 = 30;
    pub(crate) const GETLK: u32 = 31;
    pub(crate) const SETLK: u32 = 32;
    pub(crate) const SETLKW: u32 = 33;
    pub(crate) const ACCESS: u32 = 34;
    pub(crate) const CREATE: u32 = 35;
    pub(crate) const INTERRUPT: u32 = 36;
    pub(crate) const DESTROY: u32 = 38;
    pub(crate) const IOCTL: u32 = 39;
    pub(crate) const BATCH_FORGET: u32 = 42;
    pub(crate) const FALLOCATE: u32 = 43;
    pub(crate) const READDIRPLUS: u32 = 44;
    pub(crate) const RENAME2: u32 = 45;
    pub(crate) const LSEEK: u32 = 46;
    pub(crate) const COPY_FILE_RANGE: u32 = 47;
    pub(crate) const SYNCFS: u32 = 50;
    pub(crate) const TMPFILE: u32 = 51;
    pub(crate) const STATX: u32 = 52;
    pub(crate) const COPY_FILE_RANGE_64: u32 = 53;
}

/// Messages that the server sends on its own initiative.
pub(crate) mod notify {
    pub(crate) const INVAL_INODE: i32 = 2;
    pub(crate) const INVAL_ENTRY: i32 = 3;
}

bitflags! {
    /// Features that the kernel offers at `INIT`, and those that the server accepts.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct InitFlags: u64 {
        const ASYNC_READ = 1;
        const POSIX_LOCKS = 1 << 1;
        const ATOMIC_O_TRUNC = 1 << 3;
        const BIG_WRITES = 1 << 5;
        const DONT_MASK = 1 << 6;
        const FLOCK_LOCKS = 1 << 10;
        const AUTO_INVAL_DATA = 1 << 12;
        const DO_READDIRPLUS = 1 << 13;
        const READDIRPLUS_AUTO = 1 << 14;
        const WRITEBACK_CACHE = 1 << 16;
        const NO_OPEN_SUPPORT = 1 << 17;
        const PARALLEL_DIROPS = 1 << 18;
        const POSIX_ACL = 1 << 20;
        const MAX_PAGES = 1 << 22;
        const CACHE_SYMLINKS = 1 << 23;
        const NO_OPENDIR_SUPPORT = 1 << 24;
        const EXPLICIT_INVAL_DATA = 1 << 25;
        const HANDLE_KILLPRIV_V2 = 1 << 28;
        const SETXATTR_EXT = 1 << 29;
        const INIT_EXT = 1 << 30;
        const CREATE_SUPP_GROUP = 1 << 34;
    }
}

bitflags! {
    /// The fields of a `SETATTR` that are set.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct AttrMask: u32 {
        const MODE = 1;
        const UID = 1 << 1;
        const GID = 1 << 2;
        const SIZE = 1 << 3;
        const ATIME = 1 << 4;
        const MTIME = 1 << 5;
        const FH = 1 << 6;
        const ATIME_NOW = 1 << 7;
        const MTIME_NOW = 1 << 8;
        const CTIME = 1 << 10;
        const KILL_SUIDGID = 1 << 11;
    }
}

bitflags! {
    /// Treatment of an opened file by the kernel.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct OpenReply: u32 {
        const DIRECT_IO = 1 << 0;
        const KEEP_CACHE = 1 << 1;
        const CACHE_DIR = 1 << 3;
    }
}

bitflags! {
    /// Flags of a `WRITE`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct WriteFlags: u32 {
        /// From the page cache: caller and file handle are a guess.
        const CACHE = 1;
        /// The write clears the set-id bits.
        const KILL_SUIDGID = 1 << 2;
    }
}

/// `GETATTR` and `STATX`: the file handle is given.
pub(crate) const GETATTR_FH: u32 = 1;
/// `OPEN` and `CREATE`: a truncation clears the set-id bits.
pub(crate) const OPEN_KILL_SUIDGID: u32 = 1;
/// `FSYNC`: only the data.
pub(crate) const FSYNC_DATA: u32 = 1;
/// `SETXATTR`: a change of the ACL clears the set-group-id bit.
pub(crate) const SETXATTR_ACL_KILL_SGID: u32 = 1;
/// `SETLK`: a lock of `flock(2)`.
pub(crate) const LK_FLOCK: u32 = 1;
/// The extension that carries a supplementary group.
pub(crate) const EXT_GROUPS: u32 = 32;

/// Encodes a `dev_t` of the C library as Linux's 32-bit device number.
pub(crate) fn encode_dev(dev: u64) -> u32 {
    let (major, minor) = (rustix::fs::major(dev), rustix::fs::minor(dev));
    (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12)
}

/// Decodes a 32-bit device number; the inverse of [`encode_dev`].
pub(crate) fn decode_dev(dev: u32) -> u64 {
    let (major, minor) = ((dev & 0xfff00) >> 8, (dev & 0xff) | ((dev >> 12) & 0xfff00));
    rustix::fs::makedev(major, minor)
}

#[cfg(test)]
mod tests;
