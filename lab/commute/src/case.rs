//! Two calls and the state they start from, all by value.
//!
//! A case is deterministic: the same calls in the same order lead to the same state, apart from
//! inode numbers and times. A case names no descriptor numbers. A *slot* of a process holds one
//! open file and represents any free descriptor: POSIX's lowest free number would make every two
//! `open`s of a process depend on each other.

use std::fmt;

use vfscale::posix::{OFlags, RenameFlags, StatMask, Whence, XattrFlags};
use vfscale::{FileType, Mode};

/// Number of slots of a process.
pub const SLOTS: usize = 16;

/// Number of processes of a case.
pub const PROCESSES: usize = 2;

/// A small starting state and two calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// Readable name that distinguishes the case from all others.
    pub name: String,
    /// The kinds of the two calls, the lesser one first.
    pub pair: (CallKind, CallKind),
    /// Calls that lead to the starting state. They are not recorded.
    pub setup: Vec<Call>,
    /// One of the two calls.
    pub first: Call,
    /// The other one.
    pub second: Call,
}

/// A call and the process that makes it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Call {
    /// Process 0 or 1. Each is a task with its own working directory and slots. Two calls of one
    /// process are made by two threads of it.
    pub process: u8,
    /// The operation.
    pub op: Op,
}

/// A call's operation. Paths are relative to the working directory, or begin with `/`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the fields are the arguments of the calls, by their names")]
pub enum Op {
    /// `open`, including `O_TMPFILE`; puts the descriptor into `slot`.
    Open { path: String, flags: OFlags, mode: Mode, slot: u8 },
    /// `dup`: another descriptor for the open file of `slot`.
    Dup { slot: u8, to: u8 },
    /// Gives the open file of `slot` to the other process, in the slot of the same number. For
    /// starting states.
    Pass { slot: u8 },
    /// `close`.
    Close { slot: u8 },
    /// `stat`, or `lstat` if `follow` is false.
    Stat { path: String, follow: bool },
    /// `statx` of the attributes in `mask` and of those that never change.
    Statx { path: String, mask: StatMask },
    /// Reports the mount of the file at a path (`statx`'s device and `STATX_ATTR_MOUNT_ROOT`).
    Lookup { path: String },
    /// `fstat`.
    Fstat { slot: u8 },
    /// `link`.
    Link { old: String, new: String },
    /// `unlink`.
    Unlink { path: String },
    /// `renameat2`.
    Rename { old: String, new: String, flags: RenameFlags },
    /// `mkdir`.
    Mkdir { path: String, mode: Mode },
    /// `rmdir`.
    Rmdir { path: String },
    /// `symlink`.
    Symlink { target: String, path: String },
    /// `readlink`.
    Readlink { path: String },
    /// `truncate`.
    Truncate { path: String, size: u64 },
    /// `ftruncate`.
    Ftruncate { slot: u8, size: u64 },
    /// `read` of `len` bytes.
    Read { slot: u8, len: usize },
    /// `write` of `len` bytes, all equal to `byte`.
    Write { slot: u8, len: usize, byte: u8 },
    /// `pread`.
    Pread { slot: u8, len: usize, offset: u64 },
    /// `pwrite`.
    Pwrite { slot: u8, len: usize, byte: u8, offset: u64 },
    /// `lseek`.
    Lseek { slot: u8, to: Whence },
    /// `pipe2` with `O_NONBLOCK`.
    Pipe { reader: u8, writer: u8 },
    /// Reads all entries of a directory from its beginning.
    Readdir { slot: u8 },
    /// `setxattr` of a value of `len` bytes, all equal to `byte`.
    Setxattr { path: String, name: String, len: usize, byte: u8, how: XattrFlags },
    /// `getxattr`.
    Getxattr { path: String, name: String },
    /// `chmod`.
    Chmod { path: String, mode: Mode },
    /// `getcwd`.
    Getcwd,
    /// Returns the path of an open file as `/proc/self/fd` shows it.
    DPath { slot: u8 },
    /// `chdir`.
    Chdir { path: String },
    /// `fsync`.
    Fsync { slot: u8 },
    /// Sets the modification time, in seconds (`futimens`). This operation is for workloads
    /// only; the model does not support it.
    Futimens { slot: u8, mtime: i64 },
    /// Mounts a new memory file system. For starting states.
    Mount { path: String },
}

/// Kind of a call; the rows and columns of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the names are those of the calls")]
pub enum CallKind {
    Open,
    Tmpfile,
    Dup,
    Pass,
    Close,
    Stat,
    Statx,
    Lookup,
    Fstat,
    Link,
    Unlink,
    Rename,
    Mkdir,
    Rmdir,
    Symlink,
    Readlink,
    Truncate,
    Ftruncate,
    Read,
    Write,
    Pread,
    Pwrite,
    Lseek,
    Pipe,
    Readdir,
    Setxattr,
    Getxattr,
    Chmod,
    Getcwd,
    DPath,
    Chdir,
    Fsync,
    Futimens,
    Mount,
}

/// Outcome of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Success without a value.
    Done,
    /// A number of bytes or a file position.
    Number(u64),
    /// Data read, or the value of an extended attribute.
    Bytes(Vec<u8>),
    /// A path or the target of a symbolic link. In the path of a nameless file, numbers are left
    /// out.
    Text(String),
    /// Entries of a directory in alphabetical order, without `.` and `..`.
    Entries(Vec<Entry>),
    /// Attributes.
    Attributes(Attributes),
    /// The mount that a path leads to.
    Mount {
        /// Device number, comparable within one world only: it may differ between runs.
        device: u64,
        /// Whether the path leads to the root of a mount.
        is_root: bool,
    },
    /// Failure.
    Error(vfscale::Errno),
}

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name.
    pub name: String,
    /// Type of the file.
    pub file_type: FileType,
    /// Inode number, as in [`Attributes`].
    pub ino: u64,
}

/// Result of `stat`, or of `statx`, which leaves attributes outside its mask at 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Type of the file.
    pub file_type: FileType,
    /// The permission bits.
    pub mode: u32,
    /// Number of links.
    pub nlink: u32,
    /// Length in bytes; 0 for a directory, whose size POSIX leaves open.
    pub size: u64,
    /// Allocated units of 512 bytes; 0 unless the file is regular.
    pub blocks: u64,
    /// Whether the modification time has changed since the two calls began.
    pub mtime_changed: bool,
    /// Whether the change time has changed since the two calls began.
    pub ctime_changed: bool,
    /// Device number, comparable within one world only: it may differ between runs.
    pub device: u64,
    /// Inode number, comparable within one world only.
    pub ino: u64,
}

/// Yields references to the paths of an [`Op`] in the order of its arguments. They are shared or
/// mutable as `$op` is.
macro_rules! paths_of {
    ($op:expr) => {
        match $op {
            Op::Open { path, .. }
            | Op::Stat { path, .. }
            | Op::Statx { path, .. }
            | Op::Lookup { path }
            | Op::Unlink { path }
            | Op::Mkdir { path, .. }
            | Op::Rmdir { path }
            | Op::Symlink { path, .. }
            | Op::Readlink { path }
            | Op::Truncate { path, .. }
            | Op::Setxattr { path, .. }
            | Op::Getxattr { path, .. }
            | Op::Chmod { path, .. }
            | Op::Chdir { path }
            | Op::Mount { path } => vec![path],
            Op::Link { old, new } | Op::Rename { old, new, .. } => vec![old, new],
            _ => Vec::new(),
        }
    };
}

impl Op {
    /// Returns the kind of the call.
    #[must_use]
    pub fn kind(&self) -> CallKind {
        match self {
            Op::Open { flags, .. } if flags.contains(OFlags::TMPFILE) => CallKind::Tmpfile,
            Op::Open { .. } => CallKind::Open,
            Op::Dup { .. } => CallKind::Dup,
            Op::Pass { .. } => CallKind::Pass,
            Op::Close { .. } => CallKind::Close,
            Op::Stat { .. } => CallKind::Stat,
            Op::Statx { .. } => CallKind::Statx,
            Op::Lookup { .. } => CallKind::Lookup,
            Op::Fstat { .. } => CallKind::Fstat,
            Op::Link { .. } => CallKind::Link,
            Op::Unlink { .. } => CallKind::Unlink,
            Op::Rename { .. } => CallKind::Rename,
            Op::Mkdir { .. } => CallKind::Mkdir,
            Op::Rmdir { .. } => CallKind::Rmdir,
            Op::Symlink { .. } => CallKind::Symlink,
            Op::Readlink { .. } => CallKind::Readlink,
            Op::Truncate { .. } => CallKind::Truncate,
            Op::Ftruncate { .. } => CallKind::Ftruncate,
            Op::Read { .. } => CallKind::Read,
            Op::Write { .. } => CallKind::Write,
            Op::Pread { .. } => CallKind::Pread,
            Op::Pwrite { .. } => CallKind::Pwrite,
            Op::Lseek { .. } => CallKind::Lseek,
            Op::Pipe { .. } => CallKind::Pipe,
            Op::Readdir { .. } => CallKind::Readdir,
            Op::Setxattr { .. } => CallKind::Setxattr,
            Op::Getxattr { .. } => CallKind::Getxattr,
            Op::Chmod { .. } => CallKind::Chmod,
            Op::Getcwd => CallKind::Getcwd,
            Op::DPath { .. } => CallKind::DPath,
            Op::Chdir { .. } => CallKind::Chdir,
            Op::Fsync { .. } => CallKind::Fsync,
            Op::Futimens { .. } => CallKind::Futimens,
            Op::Mount { .. } => CallKind::Mount,
        }
    }

    /// Returns the slot whose open file the call uses, if it uses one.
    #[must_use]
    pub fn slot(&self) -> Option<u8> {
        match *self {
            Op::Dup { slot, .. }
            | Op::Pass { slot }
            | Op::Close { slot }
            | Op::Fstat { slot }
            | Op::Ftruncate { slot, .. }
            | Op::Read { slot, .. }
            | Op::Write { slot, .. }
            | Op::Pread { slot, .. }
            | Op::Pwrite { slot, .. }
            | Op::Lseek { slot, .. }
            | Op::Readdir { slot }
            | Op::DPath { slot }
            | Op::Fsync { slot }
            | Op::Futimens { slot, .. } => Some(slot),
            _ => None,
        }
    }

    /// Returns the paths of the call in the order of its arguments.
    #[must_use]
    pub fn paths(&self) -> Vec<&str> {
        paths_of!(self).into_iter().map(String::as_str).collect()
    }

    /// Replaces the paths in the order of [`paths`](Self::paths). Surplus paths of the call stay as
    /// they are.
    #[must_use]
    pub fn with_paths(mut self, paths: &[String]) -> Op {
        for (path, new) in paths_of!(&mut self).into_iter().zip(paths) {
            path.clone_from(new);
        }
        self
    }

    /// Replaces the slot that the call uses by `uses`, and the first slot that it fills by `new`.
    /// The second end of a pipe is put into the slot after `new`.
    #[must_use]
    pub fn with_slots(mut self, uses: u8, new: u8) -> Op {
        match &mut self {
            Op::Open { slot, .. } => *slot = new,
            Op::Pipe { reader, writer } => (*reader, *writer) = (new, new + 1),
            Op::Dup { slot, to } => (*slot, *to) = (uses, new),
            Op::Pass { slot }
            | Op::Close { slot }
            | Op::Fstat { slot }
            | Op::Ftruncate { slot, .. }
            | Op::Read { slot, .. }
            | Op::Write { slot, .. }
            | Op::Pread { slot, .. }
            | Op::Pwrite { slot, .. }
            | Op::Lseek { slot, .. }
            | Op::Readdir { slot }
            | Op::DPath { slot }
            | Op::Fsync { slot }
            | Op::Futimens { slot, .. } => *slot = uses,
            _ => {}
        }
        self
    }
}

impl CallKind {
    /// Returns the name that tables show.
    #[must_use]
    pub fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }
}

impl fmt::Display for CallKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.name())
    }
}

/// Formats the call like a system call in a trace listing, with slots as `#0`, `#1`, ...
impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}(", self.kind())?;
        match self {
            Op::Open { path, flags, slot, .. } => {
                write!(f, "{path}, {}) = #{slot}", Flags(*flags))?
            }
            Op::Pipe { reader, writer } => write!(f, ") = #{reader}, #{writer}")?,
            Op::Dup { slot, to } => write!(f, "#{slot}) = #{to}")?,
            _ => {
                let slot = self.slot().map(|slot| format!("#{slot}"));
                let paths = self.paths().into_iter().map(String::from);
                let args: Vec<_> = slot.into_iter().chain(paths).chain(self.values()).collect();
                write!(f, "{})", args.join(", "))?;
            }
        }
        Ok(())
    }
}

impl Op {
    /// Returns the arguments that are neither paths nor slots.
    fn values(&self) -> Vec<String> {
        match self {
            Op::Stat { follow: false, .. } => vec!["NOFOLLOW".into()],
            Op::Statx { mask, .. } => vec![names(mask.iter_names()).join("|")],
            Op::Rename { flags, .. } => names(flags.iter_names()),
            Op::Mkdir { mode, .. } | Op::Chmod { mode, .. } => vec![format!("{:o}", mode.bits())],
            Op::Symlink { target, .. } => vec![format!("to {target}")],
            Op::Truncate { size, .. } | Op::Ftruncate { size, .. } => vec![size.to_string()],
            Op::Read { len, .. } => vec![len.to_string()],
            Op::Write { len, byte, .. } => vec![format!("{len} x {byte}")],
            Op::Pread { len, offset, .. } => vec![format!("{len} at {offset}")],
            Op::Pwrite { len, byte, offset, .. } => vec![format!("{len} x {byte} at {offset}")],
            Op::Lseek { to, .. } => vec![format!("{to:?}")],
            Op::Setxattr { name, byte, how, .. } => {
                let first = [name.clone(), byte.to_string()];
                first.into_iter().chain(names(how.iter_names())).collect()
            }
            Op::Getxattr { name, .. } => vec![name.clone()],
            _ => Vec::new(),
        }
    }
}

fn names<T>(flags: impl Iterator<Item = (&'static str, T)>) -> Vec<String> {
    flags.map(|(name, _)| name.into()).collect()
}

/// Flags of an `open`, displayed as names joined by `|`.
struct Flags(OFlags);

impl fmt::Display for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let access = match self.0 & OFlags::ACCMODE {
            OFlags::WRONLY => "WRONLY",
            OFlags::RDWR => "RDWR",
            _ => "RDONLY",
        };
        f.write_str(access)?;
        let known = [
            (OFlags::TMPFILE, "TMPFILE"),
            (OFlags::CREATE, "CREAT"),
            (OFlags::EXCL, "EXCL"),
            (OFlags::TRUNC, "TRUNC"),
            (OFlags::APPEND, "APPEND"),
            (OFlags::DIRECTORY, "DIRECTORY"),
            (OFlags::NOFOLLOW, "NOFOLLOW"),
        ];
        let mut rest = self.0;
        for (flag, name) in known {
            if rest.contains(flag) {
                write!(f, "|{name}")?;
                rest.remove(flag);
            }
        }
        Ok(())
    }
}

impl Attributes {
    /// Clears the attributes that `mask` does not contain and that may change.
    #[must_use]
    pub fn masked(self, mask: StatMask) -> Attributes {
        let has = |bits: StatMask| mask.contains(bits);
        let number = |bits: StatMask, value: u64| if has(bits) { value } else { 0 };
        Attributes {
            nlink: if has(StatMask::NLINK) { self.nlink } else { 0 },
            size: number(StatMask::SIZE, self.size),
            blocks: number(StatMask::BLOCKS, self.blocks),
            mtime_changed: has(StatMask::MTIME) && self.mtime_changed,
            ctime_changed: has(StatMask::CTIME) && self.ctime_changed,
            ..self
        }
    }
}

impl Case {
    /// Creates a case and sorts the kinds of its calls.
    #[must_use]
    pub fn new(name: String, setup: Vec<Call>, first: Call, second: Call) -> Case {
        let (a, b) = (first.op.kind(), second.op.kind());
        Case { name, pair: (a.min(b), a.max(b)), setup, first, second }
    }
}
