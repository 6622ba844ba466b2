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

/// Bytes of the header in front of each request.
pub(crate) const IN_HEADER: usize = 40;

/// Bytes of the header in front of each reply.
pub(crate) const OUT_HEADER: usize = 16;

/// Operation numbers, and their names.
pub(crate) mod opcode {
    /// Defines the constants, and the functions from numbers to names and back.
    macro_rules! opcodes {
        ($($name:ident = $number:literal,)*) => {
            $(pub(crate) const $name: u32 = $number;)*

            /// Returns the name of an operation.
            pub(crate) fn name(number: u32) -> Option<&'static str> {
                match number {
                    $($number => Some(stringify!($name)),)*
                    _ => None,
                }
            }

            /// Returns the number of the operation with this name.
            pub(crate) fn number(name: &str) -> Option<u32> {
                $(if name == stringify!($name) {
                    return Some($number);
                })*
                None
            }
        };
    }

    opcodes! {
        LOOKUP = 1,
        FORGET = 2,
        GETATTR = 3,
        SETATTR = 4,
        READLINK = 5,
        SYMLINK = 6,
        MKNOD = 8,
        MKDIR = 9,
        UNLINK = 10,
        RMDIR = 11,
        RENAME = 12,
        LINK = 13,
        OPEN = 14,
        READ = 15,
        WRITE = 16,
        STATFS = 17,
        RELEASE = 18,
        FSYNC = 20,
        SETXATTR = 21,
        GETXATTR = 22,
        LISTXATTR = 23,
        REMOVEXATTR = 24,
        FLUSH = 25,
        INIT = 26,
        OPENDIR = 27,
        READDIR = 28,
        RELEASEDIR = 29,
        FSYNCDIR = 30,
        GETLK = 31,
        SETLK = 32,
        SETLKW = 33,
        ACCESS = 34,
        CREATE = 35,
        INTERRUPT = 36,
        DESTROY = 38,
        IOCTL = 39,
        NOTIFY_REPLY = 41,
        BATCH_FORGET = 42,
        FALLOCATE = 43,
        READDIRPLUS = 44,
        RENAME2 = 45,
        LSEEK = 46,
        COPY_FILE_RANGE = 47,
        SYNCFS = 50,
        TMPFILE = 51,
        STATX = 52,
        COPY_FILE_RANGE_64 = 53,
    }
}

/// Messages that the server sends on its own initiative.
pub(crate) mod notify {
    pub(crate) const INVAL_INODE: i32 = 2;
    pub(crate) const INVAL_ENTRY: i32 = 3;
    pub(crate) const RETRIEVE: i32 = 5;
    pub(crate) const INC_EPOCH: i32 = 8;
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
        const ALLOW_IDMAP = 1 << 40;
        const OVER_IO_URING = 1 << 41;
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
