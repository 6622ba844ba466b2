//! Compounds: a few calls that are whole in themselves, as those of NFS are.
//!
//! The task of a compound has no descriptors before and leaves none, and paths are absolute. So a
//! list of compounds without one of them is such a list again, and so are the lists of several
//! tasks in any order.
//!
//! # Invariants
//!
//! * A compound changes the data of at most one file that exists, once.

use std::fmt;

use crate::calls::op::{CWD, Data, Op, PathArg, Time};

/// Calls that one task makes in turn, up to the first that fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compound(pub Vec<Op>);

/// The first descriptor of a compound.
const FILE: i32 = 0;

const NOFOLLOW: u32 = libc::AT_SYMLINK_NOFOLLOW as u32;

/// Operation of `fallocate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// Allocate space and extend the file.
    Take,
    /// Allocate space and leave the size (`FALLOC_FL_KEEP_SIZE`).
    Keep,
    /// Punch a hole.
    Punch,
    /// Zero a range.
    Zero,
    /// Zero a range and leave the size.
    ZeroKeep,
}

impl Space {
    const ALL: [Space; 5] = [Space::Take, Space::Keep, Space::Punch, Space::Zero, Space::ZeroKeep];

    fn mode(self) -> u32 {
        let mode = match self {
            Space::Take => 0,
            Space::Keep => libc::FALLOC_FL_KEEP_SIZE,
            Space::Punch => libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
            Space::Zero => libc::FALLOC_FL_ZERO_RANGE,
            Space::ZeroKeep => libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE,
        };
        mode as u32
    }
}

/// Each makes the call of its name.
#[allow(missing_docs, reason = "each makes the call of its name")]
impl Compound {
    fn one(op: Op) -> Self {
        Compound(vec![op])
    }

    /// Opens a file and makes a call on it. Opening a FIFO does not wait for its other end.
    fn on(path: impl AsRef<str>, flags: i32, call: Option<Op>) -> Self {
        let flags = (flags | libc::O_NONBLOCK) as u32;
        let open = Op::Open { at: CWD, path: arg(path), flags, mode: 0o644 };
        Compound(std::iter::once(open).chain(call).collect())
    }

    pub fn create(path: impl AsRef<str>) -> Self {
        Self::on(path, libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL, None)
    }

    /// Opens a file with `O_TRUNC`.
    pub fn empty(path: impl AsRef<str>) -> Self {
        Self::on(path, libc::O_WRONLY | libc::O_TRUNC, None)
    }

    pub fn mkdir(path: impl AsRef<str>) -> Self {
        Self::one(Op::Mkdir { at: CWD, path: arg(path), mode: 0o777 })
    }

    /// Makes a node; `mode` has its type.
    pub fn mknod(path: impl AsRef<str>, mode: u32, rdev: u64) -> Self {
        Self::one(Op::Mknod { at: CWD, path: arg(path), mode, rdev })
    }

    pub fn link(old: impl AsRef<str>, new: impl AsRef<str>) -> Self {
        let (path, to) = (arg(old), arg(new));
        Self::one(Op::Link { at: CWD, path, to_at: CWD, to, flags: 0 })
    }

    pub fn symlink(target: impl AsRef<str>, path: impl AsRef<str>) -> Self {
        Self::one(Op::Symlink { target: arg(target), at: CWD, path: arg(path) })
    }

    /// Renames with the flags of `renameat2`.
    pub fn rename(old: impl AsRef<str>, new: impl AsRef<str>, flags: u32) -> Self {
        let (path, to) = (arg(old), arg(new));
        Self::one(Op::Rename { at: CWD, path, to_at: CWD, to, flags })
    }

    pub fn unlink(path: impl AsRef<str>) -> Self {
        Self::one(Op::Unlink { at: CWD, path: arg(path), flags: 0 })
    }

    pub fn rmdir(path: impl AsRef<str>) -> Self {
        Self::one(Op::Unlink { at: CWD, path: arg(path), flags: libc::AT_REMOVEDIR as u32 })
    }

    /// Writes the pattern of a tag, which depends on the offset in the file.
    pub fn write(path: impl AsRef<str>, off: u64, len: usize, tag: u32) -> Self {
        let data = Data::Tagged { tag, at: off, len: len as u32 };
        Self::on(path, libc::O_WRONLY, Some(Op::Pwrite { fd: FILE, data, off }))
    }

    /// Appends the pattern of a tag, which begins at its start.
    pub fn append(path: impl AsRef<str>, len: usize, tag: u32) -> Self {
        let data = Data::Tagged { tag, at: 0, len: len as u32 };
        let flags = libc::O_WRONLY | libc::O_APPEND;
        Self::on(path, flags, Some(Op::Write { fd: FILE, data }))
    }

    /// Makes a file without a name in the directory of `path`, writes and syncs it, writes the
    /// pattern of a tag over that and syncs it again, and gives it the name.
    pub fn publish(path: impl AsRef<str>, len: usize, tag: u32) -> Self {
        let parent = path.as_ref().rsplit_once('/').map_or("", |(parent, _)| parent);
        let parent = if parent.is_empty() { "/" } else { parent };
        let len = len as u32;
        let write = |data| Op::Pwrite { fd: FILE, data, off: 0 };
        let sync = |data_only| Op::Fsync { fd: FILE, data_only };
        let mut made = Self::on(parent, libc::O_TMPFILE | libc::O_WRONLY, None);
        made.0.extend([
            write(Data::Run { seed: b'#', len }),
            sync(false),
            write(Data::Tagged { tag, at: 0, len }),
            sync(true),
            Op::Link {
                at: FILE,
                path: PathArg::default(),
                to_at: CWD,
                to: arg(path),
                flags: libc::AT_EMPTY_PATH as u32,
            },
        ]);
        made
    }

    /// Writes the pattern of a tag in several parts.
    pub fn pwritev(path: impl AsRef<str>, lens: &[u32], off: u64, tag: u32) -> Self {
        let mut at = off;
        let parts = lens.iter().map(|len| {
            let part = Data::Tagged { tag, at, len: *len };
            at += u64::from(*len);
            part
        });
        let parts = parts.collect();
        Self::on(path, libc::O_WRONLY, Some(Op::Writev { fd: FILE, parts, off: Some(off) }))
    }

    /// Copies a range of a file to another place in it.
    pub fn copy_range(path: impl AsRef<str>, from: u64, to: u64, len: u64) -> Self {
        let (off_in, off_out) = (Some(from), Some(to));
        let call = Op::CopyRange { from: FILE, off_in, to: FILE, off_out, len };
        Self::on(path, libc::O_RDWR, Some(call))
    }

    pub fn truncate(path: impl AsRef<str>, len: u64) -> Self {
        Self::one(Op::Truncate { path: arg(path), len })
    }

    pub fn fallocate(path: impl AsRef<str>, space: Space, off: u64, len: u64) -> Self {
        let call = Op::Fallocate { fd: FILE, mode: space.mode(), off, len };
        Self::on(path, libc::O_WRONLY, Some(call))
    }

    pub fn setxattr(path: impl AsRef<str>, name: &str, value: Vec<u8>) -> Self {
        let (path, name) = (arg(path), name.into());
        Self::one(Op::Setxattr { at: CWD, path, name, value, how: 0, flags: NOFOLLOW })
    }

    pub fn removexattr(path: impl AsRef<str>, name: &str) -> Self {
        let (path, name) = (arg(path), name.into());
        Self::one(Op::Removexattr { at: CWD, path, name, flags: NOFOLLOW })
    }

    pub fn chmod(path: impl AsRef<str>, mode: u32) -> Self {
        Self::one(Op::Chmod { at: CWD, path: arg(path), mode, flags: 0 })
    }

    /// Changes owner and group to this id.
    pub fn chown(path: impl AsRef<str>, id: u32) -> Self {
        let (path, uid, gid) = (arg(path), Some(id), Some(id));
        Self::one(Op::Chown { at: CWD, path, uid, gid, flags: NOFOLLOW })
    }

    /// Sets this access time in seconds since 1970, and a modification time one second later.
    pub fn utimens(path: impl AsRef<str>, secs: u32) -> Self {
        let [atime, mtime] = [0, 1].map(|more| Time::At(i64::from(secs) + more, 0));
        Self::one(Op::Utimens { at: CWD, path: arg(path), atime, mtime, flags: NOFOLLOW })
    }

    pub fn setflags(path: impl AsRef<str>, flags: u32) -> Self {
        Self::on(path, libc::O_RDONLY, Some(Op::SetInodeFlags { fd: FILE, flags }))
    }

    pub fn fsync(path: impl AsRef<str>) -> Self {
        Self::on(path, libc::O_WRONLY, Some(Op::Fsync { fd: FILE, data_only: false }))
    }

    pub fn fdatasync(path: impl AsRef<str>) -> Self {
        Self::on(path, libc::O_WRONLY, Some(Op::Fsync { fd: FILE, data_only: true }))
    }

    pub fn fsync_dir(path: impl AsRef<str>) -> Self {
        let flags = libc::O_RDONLY | libc::O_DIRECTORY;
        Self::on(path, flags, Some(Op::Fsync { fd: FILE, data_only: false }))
    }

    /// Syncs the whole file system.
    pub fn sync() -> Self {
        Self::on("/", libc::O_RDONLY | libc::O_DIRECTORY, Some(Op::Syncfs { fd: FILE }))
    }

    /// Discards all free space, where that is supported.
    pub fn trim() -> Self {
        Self::one(Op::Trim {})
    }
}

impl Compound {
    /// Returns the paths of the files that the calls name.
    pub fn paths(&self) -> Vec<&str> {
        let all = self.0.iter().flat_map(Op::paths).map(PathArg::text);
        all.filter(|path| !path.is_empty()).collect()
    }

    /// Returns the old path, the new one and the flags of a rename.
    pub fn renamed(&self) -> Option<(&str, &str, u32)> {
        match &*self.0 {
            [Op::Rename { path, to, flags, .. }] => Some((path.text(), to.text(), *flags)),
            _ => None,
        }
    }

    /// Returns the path of the file whose times the call sets.
    pub fn timed(&self) -> Option<&str> {
        match &*self.0 {
            [Op::Utimens { path, .. }] => Some(path.text()),
            _ => None,
        }
    }

    /// Returns the path of the file or directory that the call makes durable, and whether only its
    /// data.
    pub fn synced(&self) -> Option<(&str, bool)> {
        match &*self.0 {
            [Op::Open { path, .. }, Op::Fsync { data_only, .. }] => Some((path.text(), *data_only)),
            _ => None,
        }
    }

    /// Returns whether the call is an `fsync` of a directory.
    pub fn is_fsync_of_dir(&self) -> bool {
        self.synced().is_some() && self.opens_with(libc::O_DIRECTORY)
    }

    /// Returns the operation of a `fallocate`.
    pub fn allocated(&self) -> Option<Space> {
        let mode = self.0.iter().find_map(|op| match op {
            Op::Fallocate { mode, .. } => Some(*mode),
            _ => None,
        });
        mode.and_then(|mode| Space::ALL.into_iter().find(|space| space.mode() == mode))
    }

    /// Returns whether the calls make something durable.
    pub fn is_sync(&self) -> bool {
        self.syncs_all() || self.synced().is_some()
    }

    /// Returns whether the calls make everything before them durable.
    pub fn syncs_all(&self) -> bool {
        self.0.iter().any(|op| matches!(op, Op::Syncfs { .. }))
    }

    /// Returns whether the calls change the data of a file and nothing else.
    pub fn is_of_data(&self) -> bool {
        !self.opens_with(libc::O_CREAT)
            && !self.opens_with(libc::O_TMPFILE)
            && (self.opens_with(libc::O_TRUNC) || self.0.iter().any(Op::is_of_data))
    }

    /// Returns whether what the calls write, or where, depends on the data before.
    pub fn depends_on_data(&self) -> bool {
        self.appends() || self.copies()
    }

    /// Returns whether the calls write at the end of a file.
    pub fn appends(&self) -> bool {
        self.opens_with(libc::O_APPEND)
    }

    /// Returns the offsets in a file at which one part of a write ends, and the next begins. A
    /// volume writes the parts one after another, and what is between them may be written back.
    pub fn seams(&self) -> Vec<u64> {
        let ends = |op: &Op| match op {
            Op::Writev { parts, off: Some(off), .. } => {
                let mut at = *off;
                let end = |part: &Data| {
                    at += part.len();
                    at
                };
                parts.iter().map(end).collect()
            }
            _ => Vec::new(),
        };
        self.0.iter().flat_map(ends).collect()
    }

    /// Returns whether the calls write what they have read.
    pub fn copies(&self) -> bool {
        self.0.iter().any(|op| matches!(op, Op::CopyRange { .. }))
    }

    fn opens_with(&self, wanted: i32) -> bool {
        let has = |flags: u32| flags as i32 & wanted == wanted;
        self.0.iter().any(|op| matches!(op, Op::Open { flags, .. } if has(*flags)))
    }

    /// Returns the compound with other tags of what it writes.
    pub fn tagged(mut self, new: impl Fn(u32) -> u32) -> Self {
        for op in &mut self.0 {
            if let Op::Write { data, .. } | Op::Pwrite { data, .. } = op
                && let Data::Tagged { tag, .. } = data
            {
                *tag = new(*tag);
            }
        }
        self
    }
}

fn arg(path: impl AsRef<str>) -> PathArg {
    path.as_ref().into()
}

impl fmt::Display for Compound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, op) in self.0.iter().enumerate() {
            write!(f, "{}{op}", if number > 0 { "; " } else { "" })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
