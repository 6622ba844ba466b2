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

/// Returns the type of an argument: `path` is a path, `slot` that of the open file that the call
/// uses, `new` one that it fills.
macro_rules! type_of {
    (path) => {
        String
    };
    (slot) => {
        u8
    };
    (new) => {
        u8
    };
    (($type:ty)) => {
        $type
    };
}

/// Adds an argument to a list if it has this role.
macro_rules! add {
    (path, path, $arg:ident, $all:ident) => {
        $all.push($arg)
    };
    (new, new, $arg:ident, $all:ident) => {
        $all.push($arg)
    };
    ($role:ident, $other:tt, $arg:ident, $all:ident) => {
        _ = $arg
    };
}

/// Returns the slot that a call uses, of its arguments and their roles.
macro_rules! used_slot {
    () => { None };
    ($arg:ident: slot $($rest:tt)*) => { Some($arg) };
    ($arg:ident: $other:tt $($rest:tt)*) => { used_slot!($($rest)*) };
}

/// Declares the calls, with other kinds that they may have.
macro_rules! calls {
    ($($(#[doc = $doc:literal])+ $call:ident $(or $more:ident)?
        { $($arg:ident: $role:tt),* })+) => {
        /// A call's operation. Paths are relative to the working directory, or begin with `/`.
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        #[allow(missing_docs, reason = "the fields are the arguments of the calls, by their names")]
        pub enum Op {
            $($(#[doc = $doc])+ $call { $($arg: type_of!($role)),* },)+
        }

        /// Kind of a call; the rows and columns of the report.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[allow(missing_docs, reason = "the names are those of the calls")]
        pub enum CallKind {
            $($call, $($more,)?)+
        }

        #[allow(unused_variables, reason = "most arguments have none of these roles")]
        impl Op {
            /// Returns the kind of the call.
            #[must_use]
            pub fn kind(&self) -> CallKind {
                match self {
                    Op::Open { flags, .. } if flags.contains(OFlags::TMPFILE) => CallKind::Tmpfile,
                    $(Op::$call { .. } => CallKind::$call,)+
                }
            }

            /// Returns the slot whose open file the call uses, if it uses one.
            #[must_use]
            pub fn slot(&self) -> Option<u8> {
                let slot = match self {
                    $(Op::$call { $($arg),* } => used_slot!($($arg: $role)*),)+
                };
                slot.copied()
            }

            /// Returns the paths of the call in the order of its arguments.
            #[must_use]
            pub fn paths(&self) -> Vec<&str> {
                let mut all: Vec<&String> = Vec::new();
                match self {
                    $(Op::$call { $($arg),* } => { $(add!(path, $role, $arg, all);)* })+
                }
                all.into_iter().map(String::as_str).collect()
            }

            /// Replaces the paths in the order of [`paths`](Self::paths). Surplus paths of the call
            /// stay as they are.
            #[must_use]
            pub fn with_paths(mut self, paths: &[String]) -> Op {
                let mut all: Vec<&mut String> = Vec::new();
                match &mut self {
                    $(Op::$call { $($arg),* } => { $(add!(path, $role, $arg, all);)* })+
                }
                all.into_iter().zip(paths).for_each(|(path, new)| path.clone_from(new));
                self
            }

            /// Replaces the slot that the call uses by `uses`, and the first slot that it fills by
            /// `new`. The second end of a pipe is put into the slot after `new`.
            #[must_use]
            pub fn with_slots(mut self, uses: u8, new: u8) -> Op {
                let mut filled: Vec<&mut u8> = Vec::new();
                match &mut self {
                    $(Op::$call { $($arg),* } => { $(add!(new, $role, $arg, filled);)* })+
                }
                filled.into_iter().zip(new..).for_each(|(slot, new)| *slot = new);
                let used: Option<&mut u8> = match &mut self {
                    $(Op::$call { $($arg),* } => used_slot!($($arg: $role)*),)+
                };
                used.into_iter().for_each(|slot| *slot = uses);
                self
            }
        }
    };
}

calls! {
    /// `open`, including `O_TMPFILE`; puts the descriptor into `slot`.
    Open or Tmpfile { path: path, flags: (OFlags), mode: (Mode), slot: new }
    /// `dup`: another descriptor for the open file of `slot`.
    Dup { slot: slot, to: new }
    /// Gives the open file of `slot` to the other process, in the slot of the same number. For
    /// starting states.
    Pass { slot: slot }
    /// `close`.
    Close { slot: slot }
    /// `stat`, or `lstat` if `follow` is false.
    Stat { path: path, follow: (bool) }
    /// `statx` of the attributes in `mask` and of those that never change.
    Statx { path: path, mask: (StatMask) }
    /// Reports the mount of the file at a path (`statx`'s device and `STATX_ATTR_MOUNT_ROOT`).
    Lookup { path: path }
    /// `fstat`.
    Fstat { slot: slot }
    /// `link`.
    Link { old: path, new: path }
    /// `unlink`.
    Unlink { path: path }
    /// `renameat2`.
    Rename { old: path, new: path, flags: (RenameFlags) }
    /// `mkdir`.
    Mkdir { path: path, mode: (Mode) }
    /// `rmdir`.
    Rmdir { path: path }
    /// `symlink`.
    Symlink { target: (String), path: path }
    /// `readlink`.
    Readlink { path: path }
    /// `truncate`.
    Truncate { path: path, size: (u64) }
    /// `ftruncate`.
    Ftruncate { slot: slot, size: (u64) }
    /// `read` of `len` bytes.
    Read { slot: slot, len: (usize) }
    /// `write` of `len` bytes, all equal to `byte`.
    Write { slot: slot, len: (usize), byte: (u8) }
    /// `pread`.
    Pread { slot: slot, len: (usize), offset: (u64) }
    /// `pwrite`.
    Pwrite { slot: slot, len: (usize), byte: (u8), offset: (u64) }
    /// `lseek`.
    Lseek { slot: slot, to: (Whence) }
    /// `pipe2` with `O_NONBLOCK`.
    Pipe { reader: new, writer: new }
    /// Reads all entries of a directory from its beginning.
    Readdir { slot: slot }
    /// `setxattr` of a value of `len` bytes, all equal to `byte`.
    Setxattr { path: path, name: (String), len: (usize), byte: (u8), how: (XattrFlags) }
    /// `getxattr`.
    Getxattr { path: path, name: (String) }
    /// `chmod`.
    Chmod { path: path, mode: (Mode) }
    /// `getcwd`.
    Getcwd {}
    /// Returns the path of an open file as `/proc/self/fd` shows it.
    DPath { slot: slot }
    /// `chdir`.
    Chdir { path: path }
    /// `fsync`.
    Fsync { slot: slot }
    /// Sets the modification time, in seconds (`futimens`). This operation is for workloads
    /// only; the model does not support it.
    Futimens { slot: slot, mtime: (i64) }
    /// Mounts a new memory file system. For starting states.
    Mount { path: path }
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
