//! The outcome of a call, in a form that is comparable between two implementations.

use std::collections::BTreeSet;
use std::fmt;

use crate::calls::op::PathArg;

/// A time set explicitly, or one that the system set on an event.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum TimeClass {
    /// A time before 2017 or after 2103. Only `utimensat` sets such times, so they are compared
    /// exactly.
    Set(i64, u32),
    /// A time around the present, compared without its value.
    Now,
}

impl TimeClass {
    /// Classifies a time in seconds and nanoseconds.
    pub fn new(secs: i64, nanos: u32) -> TimeClass {
        if (1_500_000_000..4_200_000_000).contains(&secs) {
            TimeClass::Now
        } else {
            TimeClass::Set(secs, nanos)
        }
    }
}

/// Attributes of a file on which both sides must agree; `ino` is compared through a mapping.
#[derive(Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct StatView {
    pub mode: u32,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u64,
    pub size: u64,
    pub blocks: u64,
    pub blksize: u32,
    pub mount_root: bool,
    /// `STATX_ATTR_IMMUTABLE`, `STATX_ATTR_APPEND`, `STATX_ATTR_NODUMP`.
    pub flags: u32,
    pub atime: TimeClass,
    pub mtime: TimeClass,
    pub ctime: TimeClass,
    pub ino: Uncompared<u64>,
    pub dev: Uncompared<u64>,
    /// Change time in nanoseconds, for probes.
    pub ctime_exact: Uncompared<(i64, u32)>,
}

impl StatView {
    /// Returns the names of the fields that differ.
    pub fn differing(&self, other: &StatView) -> String {
        let (a, b) = (self, other);
        let fields = [
            ("mode", a.mode == b.mode),
            ("nlink", a.nlink == b.nlink),
            ("uid", a.uid == b.uid),
            ("gid", a.gid == b.gid),
            ("rdev", a.rdev == b.rdev),
            ("size", a.size == b.size),
            ("blocks", a.blocks == b.blocks),
            ("blksize", a.blksize == b.blksize),
            ("mount_root", a.mount_root == b.mount_root),
            ("flags", a.flags == b.flags),
            ("atime", a.atime == b.atime),
            ("mtime", a.mtime == b.mtime),
            ("ctime", a.ctime == b.ctime),
        ];
        let names: Vec<_> =
            fields.iter().filter(|(_, equal)| !equal).map(|(name, _)| *name).collect();
        names.join(" ")
    }
}

/// The inode flags that `statx` shows; there they have the same bits.
pub const SHOWN_FLAGS: u32 = 0x70;

/// A value that comparisons ignore.
#[derive(Clone, Copy)]
pub struct Uncompared<T>(pub T);

impl<T> PartialEq for Uncompared<T> {
    fn eq(&self, _: &Uncompared<T>) -> bool {
        true
    }
}

impl<T> Eq for Uncompared<T> {}

impl<T> fmt::Debug for Uncompared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("_")
    }
}

/// Value of a successful call.
#[derive(Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Value {
    Unit,
    Number(i64),
    /// Two descriptors: to read, and to write.
    Ends([i32; 2]),
    Bytes(Vec<u8>),
    Path(PathArg),
    Stat(Box<StatView>),
    /// Names with their `d_type`.
    Entries(BTreeSet<(PathArg, u8)>),
    Names(BTreeSet<PathArg>),
    /// Block size, longest name, flags.
    Statfs(u64, u64, u64),
    /// Mounts and their peer groups.
    Mounts(Vec<String>),
    /// A conflicting lock, if any: kind (0 read, 1 write), first byte, length (0: to the end).
    Conflict(Option<(u8, i64, i64)>),
}

/// Outcome of a call.
#[derive(Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Success.
    Ok(Value),
    /// Failure, with the error number.
    Err(i32),
    /// The call was made on neither side, because this kernel lacks it.
    Skip,
}

impl PartialOrd for PathArg {
    fn partial_cmp(&self, other: &PathArg) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for PathArg {
    fn cmp(&self, other: &PathArg) -> std::cmp::Ordering {
        self.0.cmp(&other.0)
    }
}

impl Outcome {
    /// Returns the descriptor or count of a call with a number.
    pub fn number(&self) -> Option<i64> {
        match self {
            Outcome::Ok(Value::Number(n)) => Some(*n),
            _ => None,
        }
    }

    /// Returns the attributes of a call with attributes.
    pub fn stat(&self) -> Option<&StatView> {
        match self {
            Outcome::Ok(Value::Stat(stat)) => Some(stat),
            _ => None,
        }
    }

    /// Returns the kind of outcome without details, which groups differences.
    pub fn class(&self) -> String {
        match self {
            Outcome::Ok(_) => "ok".to_owned(),
            Outcome::Err(errno) => errno_name(*errno),
            Outcome::Skip => "skip".to_owned(),
        }
    }
}

impl fmt::Debug for TimeClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TimeClass::Set(secs, nanos) => write!(f, "{secs}.{nanos:09}"),
            TimeClass::Now => f.write_str("now"),
        }
    }
}

impl fmt::Debug for StatView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let StatView { mode, nlink, uid, gid, size, blocks, .. } = self;
        write!(f, "{{{mode:#o} nlink {nlink} owner {uid}:{gid} size {size} blocks {blocks}")?;
        if self.rdev != 0 {
            write!(f, " rdev {:#x}", self.rdev)?;
        }
        if self.blksize != 4096 {
            write!(f, " blksize {}", self.blksize)?;
        }
        if self.mount_root {
            f.write_str(" mount root")?;
        }
        if self.flags != 0 {
            write!(f, " flags {:#x}", self.flags)?;
        }
        write!(f, " a {:?} m {:?} c {:?}}}", self.atime, self.mtime, self.ctime)
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Unit => f.write_str("ok"),
            Value::Number(n) => write!(f, "{n}"),
            Value::Ends(fds) => write!(f, "{fds:?}"),
            Value::Bytes(bytes) => show_bytes(bytes, f),
            Value::Path(path) => write!(f, "{path}"),
            Value::Stat(stat) => write!(f, "{stat:?}"),
            Value::Entries(entries) => f.debug_set().entries(entries).finish(),
            Value::Names(names) => f.debug_set().entries(names).finish(),
            Value::Statfs(bsize, namelen, flags) => {
                write!(f, "bsize {bsize} namelen {namelen} flags {flags:#x}")
            }
            Value::Mounts(mounts) => write!(f, "mounts:\n    {}", mounts.join("\n    ")),
            Value::Conflict(conflict) => write!(f, "{conflict:?}"),
        }
    }
}

/// Formats bytes as runs, since written data follow a pattern and holes are zeros.
fn show_bytes(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if bytes.len() <= 48 {
        return write!(f, "{} bytes \"{}\"", bytes.len(), bytes.escape_ascii());
    }
    write!(f, "{} bytes:", bytes.len())?;
    let mut at = 0;
    let mut runs = 0;
    while at < bytes.len() && runs < 12 {
        let step = bytes.get(at + 1).map_or(0, |next| next.wrapping_sub(bytes[at]));
        let step = if step == 31 { 31 } else { 0 };
        let run = bytes[at..].windows(2).take_while(|w| w[1].wrapping_sub(w[0]) == step).count();
        write!(f, " {}{}x{}", bytes[at], if step == 0 { "=" } else { "~" }, run + 1)?;
        at += run + 1;
        runs += 1;
    }
    if at < bytes.len() { f.write_str(" ...") } else { Ok(()) }
}

impl fmt::Debug for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Ok(value) => write!(f, "{value:?}"),
            Outcome::Err(errno) => f.write_str(&errno_name(*errno)),
            Outcome::Skip => f.write_str("(not made)"),
        }
    }
}

/// Returns the symbolic name of an error number that file operations use.
pub fn errno_name(errno: i32) -> String {
    macro_rules! names {
        ($($name:ident)+) => { &[$((libc::$name, stringify!($name)),)+] };
    }
    const NAMES: &[(i32, &str)] = names! {
        EPERM ENOENT EIO ENXIO E2BIG EBADF EAGAIN ENOMEM EACCES ENOTBLK EBUSY EEXIST EXDEV ENODEV
        ENOTDIR EISDIR EINVAL EMFILE ENOTTY ETXTBSY EFBIG ENOSPC ESPIPE EROFS EMLINK EPIPE ERANGE
        EDEADLK ENAMETOOLONG ENOTEMPTY ELOOP ENODATA EOVERFLOW EOPNOTSUPP ESTALE
    };
    match NAMES.iter().find(|(number, _)| *number == errno) {
        Some((_, name)) => (*name).to_owned(),
        None => format!("errno {errno}"),
    }
}
