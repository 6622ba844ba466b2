//! Linux's calls: the view that has them, their flags and their results.
//!
//! [`Calls`] has the calls by their names in the Linux manual, as methods of [`Task::posix`]. An
//! argument that names a directory comes first and the path in it second. Errors are Linux's.
//!
//! ```
//! # fn main() -> vfscale::Result<()> {
//! use vfscale::posix::{At, OFlags, OpenHow, RenameFlags, ResolveFlags};
//!
//! let task = vfscale::memory().size(1 << 20).build()?.task();
//! let sys = task.posix();
//! sys.mkdirat(At::Cwd, "/dir", 0o700)?;
//! let dir = sys.open("/dir", OFlags::DIRECTORY, 0)?;
//! let beneath = ResolveFlags::BENEATH;
//! let how = OpenHow { resolve: beneath, ..OpenHow::new(OFlags::CREATE | OFlags::WRONLY) };
//! sys.openat2(At::File(&dir), "new", &how)?.write(b"contents")?;
//! sys.renameat2(At::File(&dir), "new", At::Cwd, "/file", RenameFlags::NOREPLACE)?;
//! # Ok(())
//! # }
//! ```
//!
//! [`Task::posix`]: crate::Task::posix

pub use vfscale_vfs::{
    Access, Acquire, At, AtFlags, Calls, DirEntryBuf, Dirents, FallocateFlags, Fd, FileHandle,
    FileList, FstrimRange, InodeFlags, LockKind, LockRange, MemfdFlags, MountFlags, MountInfo,
    NAME_MAX, OFlags, OPEN_MAX, OpenFileInfo, OpenHow, Owner, PATH_MAX, PIPE_BUF, PendingLock,
    Propagation, RecordLock, RenameFlags, ResolveFlags, SYMLINKS_MAX, SealFlags, SetTime,
    SocketType, Stat, StatFs, StatMask, UmountFlags, WaitToken, Whence, XattrFlags,
};
