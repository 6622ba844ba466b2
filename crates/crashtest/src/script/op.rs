//! The calls of a script.

use std::fmt;
use std::path::Path;

use vfscale::posix::{
    At, AtFlags, FallocateFlags, FstrimRange, OFlags, RenameFlags, SetTime, XattrFlags,
};
use vfscale::{Errno, File, Mode, Task, Timestamp};

use crate::script::pattern;

/// All free space.
const TRIM_ALL: FstrimRange = FstrimRange { start: 0, len: u64::MAX, minlen: 0 };

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
}

impl Space {
    fn flags(self) -> FallocateFlags {
        match self {
            Space::Take => FallocateFlags::empty(),
            Space::Keep => FallocateFlags::KEEP_SIZE,
            Space::Punch => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            Space::Zero => FallocateFlags::ZERO_RANGE,
        }
    }
}

/// A call. Paths are absolute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// `open` with `O_CREAT | O_EXCL`.
    Create(String),
    /// `mkdir`.
    Mkdir(String),
    /// `mknod` of a fifo.
    Mkfifo(String),
    /// `link`.
    Link(String, String),
    /// `symlink`: the target, and the path of the link.
    Symlink(String, String),
    /// `renameat2`.
    Rename(String, String, RenameFlags),
    /// `unlink`.
    Unlink(String),
    /// `rmdir`.
    Rmdir(String),
    /// `pwrite` of the pattern `tag`.
    Write {
        /// The file, which must exist.
        path: String,
        /// Offset.
        offset: u64,
        /// Number of bytes.
        len: usize,
        /// Tag of the pattern.
        tag: u32,
    },
    /// `write` with `O_APPEND` of the pattern `tag`.
    Append {
        /// The file, which must exist.
        path: String,
        /// Number of bytes.
        len: usize,
        /// Tag of the pattern.
        tag: u32,
    },
    /// Makes a file without a name (`O_TMPFILE`) in the directory of `path`, writes it and syncs
    /// it, writes the pattern `tag` over that and syncs it again, and gives it the name.
    Publish {
        /// The name.
        path: String,
        /// Number of bytes.
        len: usize,
        /// Tag of the pattern.
        tag: u32,
    },
    /// `truncate`.
    Truncate(String, u64),
    /// `fallocate`: the file, the operation, offset and length.
    Fallocate(String, Space, u64, u64),
    /// `lsetxattr` of a value of this length, whose bytes all equal the last argument.
    SetXattr(String, &'static str, usize, u8),
    /// `lremovexattr`.
    RemoveXattr(String, &'static str),
    /// `chmod`.
    Chmod(String, u32),
    /// `chown`.
    Chown(String, u32),
    /// `utimensat`: this access time in seconds since 1970, and a modification time one second
    /// later.
    Times(String, u32),
    /// `fsync` of anything but a directory.
    Fsync(String),
    /// `fdatasync`.
    Fdatasync(String),
    /// `fsync` of a directory.
    FsyncDir(String),
    /// `syncfs`.
    Sync,
    /// `FITRIM` of the whole file system. Does nothing to one in memory.
    Trim,
    /// Closes the volume. Last call of a script.
    Close,
}

impl Op {
    /// Makes the call.
    ///
    /// # Errors
    /// Returns the error of the call.
    pub fn run(&self, task: &Task) -> Result<(), Errno> {
        match self {
            Op::Create(path) => {
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
                drop(task.posix().open(path, flags, Mode::from(0o644))?);
            }
            Op::Mkdir(path) => task.create_dir(path)?,
            Op::Mkfifo(path) => {
                let mode = Mode::from(0o600);
                task.posix().mknodat(At::Cwd, path, vfscale::FileType::Fifo, mode, 0)?;
            }
            Op::Link(old, new) => task.hard_link(old, new)?,
            Op::Symlink(target, path) => task.symlink(target, path)?,
            Op::Rename(old, new, flags) => {
                task.posix().renameat2(At::Cwd, old, At::Cwd, new, *flags)?
            }
            Op::Unlink(path) => task.remove_file(path)?,
            Op::Rmdir(path) => task.remove_dir(path)?,
            Op::Write { .. } | Op::Append { .. } | Op::Publish { .. } => self.write(task)?,
            Op::Truncate(path, size) => task.posix().truncate(path, *size)?,
            Op::Fallocate(path, space, offset, len) => {
                open(task, path, OFlags::WRONLY)?.fallocate(space.flags(), *offset, *len)?;
            }
            Op::SetXattr(path, name, len, byte) => {
                let (value, how) = (vec![*byte; *len], XattrFlags::empty());
                task.posix().setxattrat(
                    At::Cwd,
                    path,
                    name,
                    &value,
                    how,
                    AtFlags::SYMLINK_NOFOLLOW,
                )?;
            }
            Op::RemoveXattr(path, name) => {
                task.posix().removexattrat(At::Cwd, path, name, AtFlags::SYMLINK_NOFOLLOW)?;
            }
            Op::Chmod(path, mode) => {
                task.set_permissions(path, Mode::from_bits_retain(*mode))?;
            }
            Op::Chown(path, owner) => {
                task.posix().fchownat(
                    At::Cwd,
                    path,
                    Some(*owner),
                    Some(*owner),
                    AtFlags::SYMLINK_NOFOLLOW,
                )?;
            }
            Op::Times(path, secs) => {
                let time = |more| SetTime::At(Timestamp::new(i64::from(*secs) + more, 0));
                task.posix().utimensat(
                    At::Cwd,
                    path,
                    [time(0), time(1)],
                    AtFlags::SYMLINK_NOFOLLOW,
                )?;
            }
            Op::Fsync(path) => open(task, path, OFlags::WRONLY)?.sync_all()?,
            Op::Fdatasync(path) => open(task, path, OFlags::WRONLY)?.sync_data()?,
            Op::FsyncDir(path) => {
                open(task, path, OFlags::RDONLY | OFlags::DIRECTORY)?.sync_all()?
            }
            Op::Sync => open(task, "/", OFlags::RDONLY | OFlags::DIRECTORY)?.sync_fs()?,
            Op::Trim => match task.posix().trim_fs(At::Cwd, "/", TRIM_ALL).map_err(Errno::from) {
                Ok(_) | Err(Errno::OPNOTSUPP) => {}
                Err(errno) => return Err(errno),
            },
            // The driver of the script closes the volume, which does not change the tree.
            Op::Close => {}
        }
        Ok(())
    }

    /// Makes a call that writes. Repeats a short write until all is written or a write fails.
    fn write(&self, task: &Task) -> Result<(), Errno> {
        let (file, offset, len, tag) = match self {
            Op::Write { path, offset, len, tag } => {
                (open(task, path, OFlags::WRONLY)?, *offset, *len, *tag)
            }
            Op::Append { path, len, tag } => {
                let file = open(task, path, OFlags::WRONLY | OFlags::APPEND)?;
                let end = file.stat()?.size;
                (file, end, *len, *tag)
            }
            Op::Publish { path, len, tag } => return publish(task, path, *len, *tag),
            _ => return Ok(()),
        };
        write_whole(&pattern::bytes(tag, offset, len), |rest, done| match self {
            Op::Append { .. } => Ok(file.write(rest)?),
            _ => Ok(file.pwrite(rest, offset + done)?),
        })
    }

    /// Returns whether the call changes data and nothing else.
    #[must_use]
    pub fn is_of_data(&self) -> bool {
        matches!(self, Op::Write { .. } | Op::Append { .. } | Op::Truncate(..) | Op::Fallocate(..))
    }

    /// Returns the paths of the call.
    #[must_use]
    pub fn paths(&self) -> Vec<&str> {
        match self {
            Op::Link(one, other) | Op::Rename(one, other, _) => vec![one, other],
            Op::Create(path)
            | Op::Mkdir(path)
            | Op::Mkfifo(path)
            | Op::Symlink(_, path)
            | Op::Unlink(path)
            | Op::Rmdir(path)
            | Op::Write { path, .. }
            | Op::Append { path, .. }
            | Op::Publish { path, .. }
            | Op::Truncate(path, _)
            | Op::Fallocate(path, ..)
            | Op::SetXattr(path, ..)
            | Op::RemoveXattr(path, _)
            | Op::Chmod(path, _)
            | Op::Chown(path, _)
            | Op::Times(path, _)
            | Op::Fsync(path)
            | Op::Fdatasync(path)
            | Op::FsyncDir(path) => vec![path],
            Op::Sync | Op::Trim | Op::Close => Vec::new(),
        }
    }

    /// Returns whether the call makes something durable.
    #[must_use]
    pub fn is_sync(&self) -> bool {
        self.syncs_all() || matches!(self, Op::Fsync(_) | Op::Fdatasync(_) | Op::FsyncDir(_))
    }

    /// Returns whether the call makes everything before it durable.
    #[must_use]
    pub fn syncs_all(&self) -> bool {
        matches!(self, Op::Sync | Op::Close)
    }
}

/// Makes calls of `write`, which gets the bytes that are left and the number of those before, and
/// returns how many it has written.
fn write_whole(
    bytes: &[u8],
    mut write: impl FnMut(&[u8], u64) -> Result<usize, Errno>,
) -> Result<(), Errno> {
    let mut done = 0;
    while done < bytes.len() {
        let written = write(&bytes[done..], done as u64)?;
        if written == 0 {
            return Err(Errno::NOSPC);
        }
        done += written;
    }
    Ok(())
}

fn publish(task: &Task, path: &str, len: usize, tag: u32) -> Result<(), Errno> {
    let parent = Path::new(path).parent().unwrap_or(Path::new("/"));
    let flags = OFlags::TMPFILE | OFlags::WRONLY;
    let file = task.posix().open(parent, flags, Mode::from(0o644))?;
    let bytes = pattern::bytes(tag, 0, len);
    write_whole(&vec![b'#'; len], |rest, at| Ok(file.pwrite(rest, at)?))?;
    file.sync_all()?;
    write_whole(&bytes, |rest, at| Ok(file.pwrite(rest, at)?))?;
    file.sync_data()?;
    task.posix().linkat(At::File(&file), "", At::Cwd, path, AtFlags::EMPTY_PATH)?;
    Ok(())
}

fn open(task: &Task, path: &str, flags: OFlags) -> Result<File, Errno> {
    // Opening a FIFO must not wait for its other end.
    Ok(task.posix().open(path, flags | OFlags::NONBLOCK, Mode::empty())?)
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Op::Rename(old, new, flags) if flags.is_empty() => write!(f, "rename {old} {new}"),
            Op::Rename(old, new, flags) => write!(f, "rename {old} {new} {flags:?}"),
            Op::Write { path, offset, len, tag } => {
                write!(f, "write {path} {len} bytes at {offset} (write {tag})")
            }
            Op::Append { path, len, tag } => write!(f, "append {path} {len} bytes (write {tag})"),
            other => write!(f, "{other:?}"),
        }
    }
}
