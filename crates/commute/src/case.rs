//! Two calls and the state they start from, all by value.
//!
//! A case is deterministic: the same calls, made in the same order, lead to the same state but for inode
//! numbers and times. Descriptors have no numbers here. A *slot* of a process names one, and stands for any
//! descriptor that is free, since the lowest one that is free would make every two `open`s of a process
//! depend on each other.

use std::fmt;

use vfscale::{FileType, Mode, OFlags, RenameFlags, StatMask, Whence, XattrFlags};

/// A small starting state and two calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// What tells it from other cases, to be read by people.
    pub name: String,
    /// The kinds of the two calls, the lesser one first.
    pub pair: (CallKind, CallKind),
    /// The calls that lead to the starting state. Nothing of them is recorded.
    pub setup: Vec<Call>,
    /// One of the two calls.
    pub first: Call,
    /// The other one.
    pub second: Call,
}

/// A call, and who makes it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Call {
    /// Process 0 or 1: each is a task with a working directory and slots of its own. Two calls of the same
    /// process are made by two threads of it.
    pub process: u8,
    /// What it does.
    pub op: Op,
}

/// What a call does. Paths are relative to the working directory, or begin with `/`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the fields are the arguments of the calls, by their names")]
pub enum Op {
    /// `open`, with `O_TMPFILE` as well; the descriptor goes to `slot`.
    Open { path: String, flags: OFlags, mode: Mode, slot: u8 },
    /// Another descriptor for the open file of `slot`.
    Dup { slot: u8, to: u8 },
    /// Gives the open file of `slot` to the other process, at the same slot. For starting states.
    Pass { slot: u8 },
    /// `close`.
    Close { slot: u8 },
    /// `stat`; without `follow` `lstat`.
    Stat { path: String, follow: bool },
    /// `statx` of what `mask` asks for, and of what never changes.
    Statx { path: String, mask: StatMask },
    /// Asks which mount a path leads to (`statx`'s device and `STATX_ATTR_MOUNT_ROOT`).
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
    /// `write` of `len` bytes that are all `byte`.
    Write { slot: u8, len: usize, byte: u8 },
    /// `pread`.
    Pread { slot: u8, len: usize, offset: u64 },
    /// `pwrite`.
    Pwrite { slot: u8, len: usize, byte: u8, offset: u64 },
    /// `lseek`.
    Lseek { slot: u8, to: Whence },
    /// `pipe2` with `O_NONBLOCK`.
    Pipe { reader: u8, writer: u8 },
    /// All entries of a directory, from its beginning.
    Readdir { slot: u8 },
    /// `setxattr`; the value is `len` bytes that are all `byte`.
    Setxattr { path: String, name: String, len: usize, byte: u8, how: XattrFlags },
    /// `getxattr`.
    Getxattr { path: String, name: String },
    /// `chmod`.
    Chmod { path: String, mode: Mode },
    /// `getcwd`.
    Getcwd,
    /// The path of an open file, as `/proc/self/fd` shows it.
    DPath { slot: u8 },
    /// `chdir`.
    Chdir { path: String },
    /// `fsync`.
    Fsync { slot: u8 },
    /// Sets the time of the last change of the data, in seconds (`futimens`). For workloads, as the two that
    /// follow: the model does not know them.
    Futimens { slot: u8, mtime: i64 },
    /// Maps the first page of a file, for reading, at this page of the task's addresses.
    Mmap { slot: u8, page: u64 },
    /// The paths of all files that the task has mapped, as in `/proc/self/maps`.
    Maps,
    /// Mounts a new memory file system. For starting states.
    Mount { path: String },
}

/// The kind of a call: the rows and columns of the report.
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
    Mmap,
    Maps,
    Mount,
}

/// What a call came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was done, and there is nothing to say about it.
    Done,
    /// A number of bytes, or a position.
    Number(u64),
    /// What was read, or the value of an attribute.
    Bytes(Vec<u8>),
    /// A path or the target of a link. Numbers that the path of a file without a name has are left out.
    Text(String),
    /// What is in a directory, in alphabetical order, without `.` and `..`.
    Entries(Vec<Entry>),
    /// Attributes.
    Attributes(Attributes),
    /// What a path leads to.
    Mount {
        /// The file system, to compare with others in the same world. No two runs need agree on it.
        device: u64,
        /// Whether it is the root of a mount.
        is_root: bool,
    },
    /// It failed.
    Error(vfscale::Errno),
}

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name.
    pub name: String,
    /// The type of the file.
    pub file_type: FileType,
    /// The inode, as in [`Attributes`].
    pub ino: u64,
}

/// What `stat` shows, or what `statx` was asked for; the rest is 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// The type of the file.
    pub file_type: FileType,
    /// The permission bits.
    pub mode: u32,
    /// The number of names.
    pub nlink: u32,
    /// The length in bytes; 0 for a directory, of which POSIX says nothing.
    pub size: u64,
    /// What it occupies, in units of 512 bytes; 0 for what is no regular file.
    pub blocks: u64,
    /// Whether the time of the last change of the data is another than it was when the two calls began.
    pub mtime_changed: bool,
    /// The same for the time of the last change of the inode.
    pub ctime_changed: bool,
    /// The file system, to compare with others in the same world. No two runs need agree on it.
    pub device: u64,
    /// The inode in it, likewise.
    pub ino: u64,
}

/// References to the paths that an [`Op`] names, in the order of its arguments: as the one to it
/// is, shared or not.
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
    /// The kind of this call.
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
            Op::Mmap { .. } => CallKind::Mmap,
            Op::Maps => CallKind::Maps,
            Op::Mount { .. } => CallKind::Mount,
        }
    }

    /// The slot whose open file it uses, if it uses one.
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
            | Op::Futimens { slot, .. }
            | Op::Mmap { slot, .. } => Some(slot),
            _ => None,
        }
    }

    /// The paths it names, in the order of its arguments.
    #[must_use]
    pub fn paths(&self) -> Vec<&str> {
        paths_of!(self).into_iter().map(String::as_str).collect()
    }

    /// The same call with other paths, as many as [`paths`](Self::paths) has; what is missing stays.
    #[must_use]
    pub fn with_paths(mut self, paths: &[String]) -> Op {
        for (path, new) in paths_of!(&mut self).into_iter().zip(paths) {
            path.clone_from(new);
        }
        self
    }

    /// The same call on another slot, if it uses one; what it opens goes to `new` and the slot behind it.
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
            | Op::Futimens { slot, .. }
            | Op::Mmap { slot, .. } => *slot = uses,
            _ => {}
        }
        self
    }
}

impl CallKind {
    /// The name, as in tables.
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

/// The arguments of a call, as in a listing of the system calls of a program. Slots are `#0`, `#1`, ...
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
    /// The arguments that are neither paths nor slots.
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

/// The flags of an `open`, joined.
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
    /// What `mask` asks for, and what is always there.
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
    /// A case; the kinds of its calls are put into order.
    #[must_use]
    pub fn new(name: String, setup: Vec<Call>, first: Call, second: Call) -> Case {
        let (a, b) = (first.op.kind(), second.op.kind());
        Case { name, pair: (a.min(b), a.max(b)), setup, first, second }
    }
}
