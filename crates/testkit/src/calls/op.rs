//! The calls of a sequence: plain values that are short to print and independent of each other.
//!
//! Nothing in an [`Op`] depends on the state of a file system: names are from a small pool and
//! descriptors are small numbers, so any part of a sequence is a sequence again.

use crate::calls::pattern;

/// The flag of an immutable inode (`FS_IMMUTABLE_FL`).
pub const FS_IMMUTABLE: u32 = 0x10;
/// The flag of an inode that is only appended to (`FS_APPEND_FL`).
pub const FS_APPEND: u32 = 0x20;
/// The flags that keep an inode from being changed.
pub const FS_GUARDS: u32 = FS_IMMUTABLE | FS_APPEND;
/// The flag of an inode that `dump(8)` leaves out (`FS_NODUMP_FL`).
pub const FS_NODUMP: u32 = 0x40;
/// The flag of an inode whose access time reads do not update (`FS_NOATIME_FL`).
pub const FS_NOATIME: u32 = 0x80;
/// A flag that neither side has (`FS_COMPR_FL`).
pub const FS_COMPRESSED: u32 = 0x4;
/// Another flag that neither side has (`FS_PROJINHERIT_FL`).
pub const FS_INHERITS_PROJECT: u32 = 0x2000_0000;

/// The descriptor number of the working directory (`AT_FDCWD`).
pub const CWD: i32 = libc::AT_FDCWD;

/// Bytes of a path; they need not be UTF-8.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct PathArg(pub Vec<u8>);

impl From<&str> for PathArg {
    fn from(text: &str) -> PathArg {
        PathArg(text.as_bytes().to_vec())
    }
}

impl PathArg {
    /// Returns the path as text; an empty one if it is not UTF-8.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// Removes the numbers of nameless files (`#123`), which differ between implementations.
    pub fn without_numbers(self) -> PathArg {
        let Some(mark) = self.0.iter().position(|&b| b == b'#') else { return self };
        let digits = self.0[mark + 1..].iter().take_while(|b| b.is_ascii_digit()).count();
        PathArg([&self.0[..=mark], &b"N"[..], &self.0[mark + 1 + digits..]].concat())
    }
}

/// Data to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Data {
    /// Bytes of which each is 31 higher than the one before, modulo 256.
    Run {
        /// The first byte.
        seed: u8,
        /// Number of bytes.
        len: u32,
    },
    /// The [`pattern`] of a tag, which tells where bytes come from.
    Tagged {
        /// The tag.
        tag: u32,
        /// Offset in the pattern.
        at: u64,
        /// Number of bytes.
        len: u32,
    },
}

impl Data {
    /// Returns the bytes.
    pub fn bytes(self) -> Vec<u8> {
        match self {
            Data::Run { seed, len } => {
                (0..len).map(|i| seed.wrapping_add((i as u8).wrapping_mul(31))).collect()
            }
            Data::Tagged { tag, at, len } => pattern::bytes(tag, at, len as usize),
        }
    }

    /// Returns the number of bytes.
    pub fn len(self) -> u64 {
        let (Data::Run { len, .. } | Data::Tagged { len, .. }) = self;
        len.into()
    }

    /// Returns whether there are no bytes.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Returns the data behind the first `done` bytes.
    fn rest(self, done: u64) -> Data {
        match self {
            Data::Run { seed, len } => {
                let seed = seed.wrapping_add((done as u8).wrapping_mul(31));
                Data::Run { seed, len: len - done as u32 }
            }
            Data::Tagged { tag, at, len } => {
                Data::Tagged { tag, at: at + done, len: len - done as u32 }
            }
        }
    }
}

/// The change that `utimensat` makes to a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Time {
    /// `UTIME_OMIT`.
    Omit,
    /// `UTIME_NOW`.
    Now,
    /// A time in seconds and nanoseconds since 1970.
    At(i64, u32),
}

/// Base of `lseek`, with the numbers of `<unistd.h>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Seek {
    Set,
    Cur,
    End,
    Data,
    Hole,
}

/// Operation of a lock call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum LockKind {
    Read,
    Write,
    Unlock,
}

/// A byte range as `fcntl` takes it, counted from the start of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LockRange {
    /// First byte.
    pub start: i64,
    /// Number of bytes; 0 means to the end, a negative number counts backwards.
    pub len: i64,
}

/// A call. `at` and `fd` are descriptor numbers, `flags` the kernel's bits. The path `""` with
/// `AT_EMPTY_PATH` makes a call on a path one on a descriptor (`fstat`, `fchmod` ...).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Op {
    Open {
        at: i32,
        path: PathArg,
        flags: u32,
        mode: u32,
    },
    Openat2 {
        at: i32,
        path: PathArg,
        flags: u64,
        mode: u64,
        resolve: u64,
    },
    Reopen {
        fd: i32,
        flags: u32,
    },
    Close {
        fd: i32,
    },
    Dup {
        fd: i32,
    },
    Dup2 {
        fd: i32,
        to: i32,
    },
    Dup3 {
        fd: i32,
        to: i32,
        flags: u32,
    },
    DupFrom {
        fd: i32,
        min: i32,
        cloexec: bool,
    },
    GetCloexec {
        fd: i32,
    },
    SetCloexec {
        fd: i32,
        on: bool,
    },
    GetFlags {
        fd: i32,
    },
    SetFlags {
        fd: i32,
        flags: u32,
    },
    GetInodeFlags {
        fd: i32,
    },
    SetInodeFlags {
        fd: i32,
        flags: u32,
    },
    Read {
        fd: i32,
        len: u32,
    },
    Write {
        fd: i32,
        data: Data,
    },
    Pread {
        fd: i32,
        len: u32,
        off: u64,
    },
    Pwrite {
        fd: i32,
        data: Data,
        off: u64,
    },
    Readv {
        fd: i32,
        lens: Vec<u32>,
        off: Option<u64>,
    },
    Writev {
        fd: i32,
        parts: Vec<Data>,
        off: Option<u64>,
    },
    Lseek {
        fd: i32,
        whence: Seek,
        off: i64,
    },
    Ftruncate {
        fd: i32,
        len: u64,
    },
    Truncate {
        path: PathArg,
        len: u64,
    },
    Fallocate {
        fd: i32,
        mode: u32,
        off: u64,
        len: u64,
    },
    CopyRange {
        from: i32,
        off_in: Option<u64>,
        to: i32,
        off_out: Option<u64>,
        len: u64,
    },
    Fsync {
        fd: i32,
        data_only: bool,
    },
    Syncfs {
        fd: i32,
    },
    /// `FITRIM` of all free space of the root's file system.
    Trim,
    ReadDir {
        fd: i32,
    },
    Stat {
        at: i32,
        path: PathArg,
        flags: u32,
    },
    Access {
        at: i32,
        path: PathArg,
        mode: u32,
        flags: u32,
    },
    Mkdir {
        at: i32,
        path: PathArg,
        mode: u32,
    },
    Mknod {
        at: i32,
        path: PathArg,
        mode: u32,
        rdev: u64,
    },
    Unlink {
        at: i32,
        path: PathArg,
        flags: u32,
    },
    Link {
        at: i32,
        path: PathArg,
        to_at: i32,
        to: PathArg,
        flags: u32,
    },
    Symlink {
        target: PathArg,
        at: i32,
        path: PathArg,
    },
    Readlink {
        at: i32,
        path: PathArg,
    },
    Rename {
        at: i32,
        path: PathArg,
        to_at: i32,
        to: PathArg,
        flags: u32,
    },
    Chmod {
        at: i32,
        path: PathArg,
        mode: u32,
        flags: u32,
    },
    Chown {
        at: i32,
        path: PathArg,
        uid: Option<u32>,
        gid: Option<u32>,
        flags: u32,
    },
    Utimens {
        at: i32,
        path: PathArg,
        atime: Time,
        mtime: Time,
        flags: u32,
    },
    Getxattr {
        at: i32,
        path: PathArg,
        name: PathArg,
        flags: u32,
    },
    Setxattr {
        at: i32,
        path: PathArg,
        name: PathArg,
        value: Vec<u8>,
        how: u32,
        flags: u32,
    },
    Listxattr {
        at: i32,
        path: PathArg,
        flags: u32,
    },
    Removexattr {
        at: i32,
        path: PathArg,
        name: PathArg,
        flags: u32,
    },
    Chdir {
        path: PathArg,
    },
    Fchdir {
        fd: i32,
    },
    Chroot {
        path: PathArg,
    },
    Getcwd,
    PathOf {
        fd: i32,
    },
    Umask {
        mode: u32,
    },
    SetUser {
        user: usize,
    },
    Fork {
        into: usize,
    },
    Statfs {
        at: i32,
        path: PathArg,
    },
    Mount {
        path: PathArg,
        flags: u32,
    },
    Bind {
        source: PathArg,
        target: PathArg,
        recursive: bool,
    },
    MoveMount {
        source: PathArg,
        target: PathArg,
    },
    Umount {
        path: PathArg,
        flags: u32,
    },
    Remount {
        path: PathArg,
        flags: u32,
    },
    SetPropagation {
        path: PathArg,
        flags: u32,
    },
    /// `fork` followed by `unshare` of the mount namespace.
    Unshare {
        into: usize,
    },
    Mounts,
    RemountBind {
        path: PathArg,
        flags: u32,
    },
    Flock {
        fd: i32,
        kind: LockKind,
    },
    Lock {
        fd: i32,
        ofd: bool,
        kind: LockKind,
        range: LockRange,
    },
    GetLock {
        fd: i32,
        ofd: bool,
        kind: LockKind,
        range: LockRange,
    },
    SaveHandle {
        at: i32,
        path: PathArg,
        flags: u32,
        slot: usize,
    },
    OpenHandle {
        mount: i32,
        slot: usize,
        flags: u32,
    },
}

impl Op {
    /// Returns the call's name, which groups differences.
    pub fn name(&self) -> &'static str {
        match self {
            Op::Open { .. } => "openat",
            Op::Openat2 { .. } => "openat2",
            Op::Reopen { .. } => "reopen",
            Op::Close { .. } => "close",
            Op::Dup { .. } => "dup",
            Op::Dup2 { .. } => "dup2",
            Op::Dup3 { .. } => "dup3",
            Op::DupFrom { .. } => "dupfd",
            Op::GetCloexec { .. } => "getfd",
            Op::SetCloexec { .. } => "setfd",
            Op::GetFlags { .. } => "getfl",
            Op::SetFlags { .. } => "setfl",
            Op::Read { .. } => "read",
            Op::Write { .. } => "write",
            Op::Pread { .. } => "pread",
            Op::Pwrite { .. } => "pwrite",
            Op::Readv { .. } => "readv",
            Op::Writev { .. } => "writev",
            Op::Lseek { .. } => "lseek",
            Op::Ftruncate { .. } => "ftruncate",
            Op::Truncate { .. } => "truncate",
            Op::Fallocate { .. } => "fallocate",
            Op::CopyRange { .. } => "copy_file_range",
            Op::Fsync { .. } => "fsync",
            Op::Syncfs { .. } => "syncfs",
            Op::Trim => "fitrim",
            Op::ReadDir { .. } => "getdents",
            Op::Stat { .. } => "stat",
            Op::Access { .. } => "faccessat",
            Op::Mkdir { .. } => "mkdirat",
            Op::Mknod { .. } => "mknodat",
            Op::Unlink { .. } => "unlinkat",
            Op::Link { .. } => "linkat",
            Op::Symlink { .. } => "symlinkat",
            Op::Readlink { .. } => "readlinkat",
            Op::Rename { .. } => "renameat2",
            Op::Chmod { .. } => "fchmodat",
            _ => self.name_more(),
        }
    }

    fn name_more(&self) -> &'static str {
        match self {
            Op::Chown { .. } => "fchownat",
            Op::Utimens { .. } => "utimensat",
            Op::Getxattr { .. } => "getxattr",
            Op::Setxattr { .. } => "setxattr",
            Op::Listxattr { .. } => "listxattr",
            Op::Removexattr { .. } => "removexattr",
            Op::Chdir { .. } => "chdir",
            Op::Fchdir { .. } => "fchdir",
            Op::Chroot { .. } => "chroot",
            Op::Getcwd => "getcwd",
            Op::PathOf { .. } => "path_of",
            Op::Umask { .. } => "umask",
            Op::SetUser { .. } => "setuser",
            Op::Fork { .. } => "fork",
            Op::Statfs { .. } => "statfs",
            Op::Mount { .. } => "mount",
            Op::Bind { .. } => "bind",
            Op::MoveMount { .. } => "move_mount",
            Op::Umount { .. } => "umount",
            Op::Remount { .. } => "remount",
            Op::SetPropagation { .. } => "set_propagation",
            Op::Unshare { .. } => "unshare",
            Op::Mounts => "mountinfo",
            Op::RemountBind { .. } => "remount_bind",
            Op::Flock { .. } => "flock",
            Op::Lock { .. } => "setlk",
            Op::GetLock { .. } => "getlk",
            Op::SaveHandle { .. } => "name_to_handle",
            Op::OpenHandle { .. } => "open_by_handle",
            Op::GetInodeFlags { .. } => "getflags",
            Op::SetInodeFlags { .. } => "setflags",
            _ => "call",
        }
    }
}

impl Op {
    /// Returns whether the call allocates the lowest free descriptor.
    pub(crate) fn gives_lowest(&self) -> bool {
        matches!(
            self,
            Op::Open { .. }
                | Op::Openat2 { .. }
                | Op::Reopen { .. }
                | Op::Dup { .. }
                | Op::DupFrom { .. }
                | Op::OpenHandle { .. }
        )
    }

    /// Returns whether the call changes the data of a file and nothing else.
    pub(crate) fn is_of_data(&self) -> bool {
        self.to_write().is_some()
            || matches!(self, Op::Ftruncate { .. } | Op::Truncate { .. } | Op::Fallocate { .. })
    }

    /// Returns how many bytes the call is to write.
    pub(crate) fn to_write(&self) -> Option<u64> {
        match self {
            Op::Write { data, .. } | Op::Pwrite { data, .. } => Some(data.len()),
            Op::Writev { parts, .. } => Some(parts.iter().map(|data| data.len()).sum()),
            Op::CopyRange { len, .. } => Some(*len),
            _ => None,
        }
    }

    /// Returns the call that goes on after one that has written only `done` bytes.
    pub(crate) fn rest(&self, done: u64) -> Op {
        let more = |off: Option<u64>| off.map(|off| off + done);
        match self.clone() {
            Op::Write { fd, data } => Op::Write { fd, data: data.rest(done) },
            Op::Pwrite { fd, data, off } => {
                Op::Pwrite { fd, data: data.rest(done), off: off + done }
            }
            Op::Writev { fd, parts, off } => {
                let mut skip = done;
                let parts = parts.into_iter().map(|part| {
                    let from = skip.min(part.len());
                    skip -= from;
                    part.rest(from)
                });
                Op::Writev { fd, parts: parts.collect(), off: more(off) }
            }
            Op::CopyRange { from, off_in, to, off_out, len } => {
                let (off_in, off_out, len) = (more(off_in), more(off_out), len - done);
                Op::CopyRange { from, off_in, to, off_out, len }
            }
            other => other,
        }
    }

    /// Returns the paths that the call names.
    pub fn paths(&self) -> Vec<&PathArg> {
        match self {
            Op::Link { path, to, .. } | Op::Rename { path, to, .. } => vec![path, to],
            Op::Bind { source, target, .. } | Op::MoveMount { source, target } => {
                vec![source, target]
            }
            Op::Open { path, .. }
            | Op::Openat2 { path, .. }
            | Op::Truncate { path, .. }
            | Op::Stat { path, .. }
            | Op::Access { path, .. }
            | Op::Mkdir { path, .. }
            | Op::Mknod { path, .. }
            | Op::Unlink { path, .. }
            | Op::Symlink { path, .. }
            | Op::Readlink { path, .. }
            | Op::Chmod { path, .. }
            | Op::Chown { path, .. }
            | Op::Utimens { path, .. }
            | Op::Getxattr { path, .. }
            | Op::Setxattr { path, .. }
            | Op::Listxattr { path, .. }
            | Op::Removexattr { path, .. }
            | Op::Chdir { path }
            | Op::Chroot { path }
            | Op::Statfs { path, .. }
            | Op::Mount { path, .. }
            | Op::Umount { path, .. }
            | Op::Remount { path, .. }
            | Op::SetPropagation { path, .. }
            | Op::RemountBind { path, .. }
            | Op::SaveHandle { path, .. } => vec![path],
            _ => Vec::new(),
        }
    }

    /// Returns the descriptors that the call names.
    pub(crate) fn descriptors_mut(&mut self) -> Vec<&mut i32> {
        match self {
            Op::Dup2 { fd, to } | Op::Dup3 { fd, to, .. } => vec![fd, to],
            Op::CopyRange { from, to, .. } => vec![from, to],
            Op::Link { at, to_at, .. } | Op::Rename { at, to_at, .. } => vec![at, to_at],
            Op::Open { at: fd, .. }
            | Op::Openat2 { at: fd, .. }
            | Op::Stat { at: fd, .. }
            | Op::Access { at: fd, .. }
            | Op::Mkdir { at: fd, .. }
            | Op::Mknod { at: fd, .. }
            | Op::Unlink { at: fd, .. }
            | Op::Symlink { at: fd, .. }
            | Op::Readlink { at: fd, .. }
            | Op::Chmod { at: fd, .. }
            | Op::Chown { at: fd, .. }
            | Op::Utimens { at: fd, .. }
            | Op::Getxattr { at: fd, .. }
            | Op::Setxattr { at: fd, .. }
            | Op::Listxattr { at: fd, .. }
            | Op::Removexattr { at: fd, .. }
            | Op::Statfs { at: fd, .. }
            | Op::SaveHandle { at: fd, .. }
            | Op::OpenHandle { mount: fd, .. }
            | Op::Reopen { fd, .. }
            | Op::Close { fd }
            | Op::Dup { fd }
            | Op::DupFrom { fd, .. }
            | Op::GetCloexec { fd }
            | Op::SetCloexec { fd, .. }
            | Op::GetFlags { fd }
            | Op::SetFlags { fd, .. }
            | Op::GetInodeFlags { fd }
            | Op::SetInodeFlags { fd, .. }
            | Op::Read { fd, .. }
            | Op::Write { fd, .. }
            | Op::Pread { fd, .. }
            | Op::Pwrite { fd, .. }
            | Op::Readv { fd, .. }
            | Op::Writev { fd, .. }
            | Op::Lseek { fd, .. }
            | Op::Ftruncate { fd, .. }
            | Op::Fallocate { fd, .. }
            | Op::Fsync { fd, .. }
            | Op::Syncfs { fd }
            | Op::ReadDir { fd }
            | Op::Fchdir { fd }
            | Op::PathOf { fd }
            | Op::Flock { fd, .. }
            | Op::Lock { fd, .. }
            | Op::GetLock { fd, .. } => vec![fd],
            _ => Vec::new(),
        }
    }
}

/// Times that a probe gives every file before the call it watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Probe {
    /// A past access time before the modification time: an access must update it.
    Past,
    /// An access time far in the future: under `relatime` an access must not update it.
    Future,
}

/// A call by a task, optionally watched by a probe.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Step {
    /// The calling task.
    pub task: usize,
    /// The call.
    pub op: Op,
    /// The probe that observes which times of which files the call updates.
    pub probe: Option<Probe>,
}
