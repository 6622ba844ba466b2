//! The calls of a sequence: plain values that are short to print and independent of each other.
//!
//! Nothing in an [`Op`] depends on the state of a file system: names are from a small pool and
//! descriptors are small numbers, so any part of a sequence is a sequence again.

use crate::calls::pattern;
use crate::calls::table::every_call;

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

/// Returns the type of a kind of argument.
macro_rules! type_of {
    (at) => { i32 };
    (fd) => { i32 };
    (int) => { i32 };
    (path) => { PathArg };
    (text) => { PathArg };
    (open64) => { u64 };
    (octal64) => { u64 };
    (hex64) => { u64 };
    (resolve) => { u64 };
    (size) => { u64 };
    (off) => { u64 };
    (position) => { Option<u64> };
    (distance) => { i64 };
    (flag) => { bool };
    (data) => { Data };
    (parts) => { Vec<Data> };
    (counts) => { Vec<u32> };
    (value) => { Vec<u8> };
    (whence) => { Seek };
    (lock) => { LockKind };
    (range) => { LockRange };
    (time) => { Time };
    (id) => { Option<u32> };
    (user) => { usize };
    (task) => { usize };
    (slot) => { usize };
    // Bits and counts.
    ($other:ident) => { u32 };
}

/// Adds a descriptor to a list, and nothing else.
macro_rules! add_descriptor {
    (at, $arg:expr, $all:expr) => {
        $all.push($arg)
    };
    (fd, $arg:expr, $all:expr) => {
        $all.push($arg)
    };
    ($other:ident, $arg:expr, $all:expr) => {
        _ = $arg
    };
}

/// Adds a path to a list, and nothing else.
macro_rules! add_path {
    (path, $arg:expr, $all:expr) => {
        $all.push($arg)
    };
    ($other:ident, $arg:expr, $all:expr) => {
        _ = $arg
    };
}

macro_rules! define {
    ($($call:ident $name:literal { $($arg:ident: $kind:ident),* })*) => {
        /// A call. `at` and `fd` are descriptor numbers, `flags` the kernel's bits. The path `""`
        /// with `AT_EMPTY_PATH` makes a call on a path one on a descriptor (`fstat`, `fchmod` ...).
        /// `Unshare` is `fork` followed by `unshare` of the mount namespace, `Trim` is `FITRIM` of
        /// all free space of the root's file system.
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        #[allow(missing_docs)]
        pub enum Op {
            $($call { $($arg: type_of!($kind)),* }),*
        }

        impl Op {
            /// Returns the call's name, which groups differences.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Op::$call { .. } => $name),*
                }
            }

            /// Returns the descriptors that the call names.
            pub(crate) fn descriptors_mut(&mut self) -> Vec<&mut i32> {
                let mut all = Vec::new();
                match self {
                    $(Op::$call { $($arg),* } => { $(add_descriptor!($kind, $arg, all);)* })*
                }
                all
            }

            /// Returns the paths of files that the call names.
            pub fn paths(&self) -> Vec<&PathArg> {
                let mut all = Vec::new();
                match self {
                    $(Op::$call { $($arg),* } => { $(add_path!($kind, $arg, all);)* })*
                }
                all
            }

            /// Returns the same paths, to change them.
            pub(crate) fn paths_mut(&mut self) -> Vec<&mut PathArg> {
                let mut all = Vec::new();
                match self {
                    $(Op::$call { $($arg),* } => { $(add_path!($kind, $arg, all);)* })*
                }
                all
            }
        }
    };
}

every_call!(define);

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
    pub fn to_write(&self) -> Option<u64> {
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
