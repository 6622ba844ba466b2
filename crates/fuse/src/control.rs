//! Requests of other programs to a mount: to make its volume larger, and to make everything durable.
//!
//! The question is an `ioctl` on the directory that is mounted at, as the tools of other file systems
//! ask it, so that no socket is needed whose place somebody would have to know:
//!
//! ```c
//! /* In: the size wanted, in bytes. Out: the size that the volume has, which is durable. */
//! #define VFSCALE_IOC_GROW _IOWR(0xe7, 1, __u64)
//! /* As syncfs(2), which Linux does not pass on. On any directory. */
//! #define VFSCALE_IOC_SYNC _IO(0xe7, 2)
//! ```
//!
//! Who mounted may have it grown, and whoever has `CAP_SYS_ADMIN`; all who can open a directory of it may
//! have it synced. Everything else goes on meanwhile.

use std::io;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::ioctl::{self, opcode};
use vfscale::Errno;

/// `VFSCALE_IOC_GROW`.
pub(crate) const GROW: ioctl::Opcode = opcode::read_write::<u64>(0xe7, 1);

/// `VFSCALE_IOC_SYNC`.
pub(crate) const SYNC: ioctl::Opcode = opcode::none(0xe7, 2);

/// The number that comes with a command.
pub(crate) fn bytes_of(data: &[u8]) -> Result<u64, Errno> {
    data.try_into().map(u64::from_ne_bytes).map_err(|_| Errno::INVAL)
}

/// Has the file system that is mounted at `dir` made larger: `bytes` long, rounded down to what it can
/// have. Returns its size in bytes, which is durable. Blocks for the I/O.
///
/// # Errors
/// `ENOTTY` if nothing of ours is mounted there, `EOPNOTSUPP` if it has no size of its own, `EPERM`;
/// `EINVAL` for less than it has, `EFBIG` for more than it can have; `EBUSY` if it has grown too often since
/// it was mounted, `ENOSPC` if its device is smaller or has no room, `EROFS`, `EIO`.
pub fn grow(dir: impl AsRef<Path>, bytes: u64) -> io::Result<u64> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = rustix::fs::open(dir.as_ref(), flags, Mode::empty())?;
    let mut bytes = bytes;
    // SAFETY: the command says in its number that eight bytes go in and out through its argument, which
    // are there; no file system but ours has it, and directories have no others.
    unsafe { ioctl::ioctl(&dir, ioctl::Updater::<GROW, u64>::new(&mut bytes))? };
    Ok(bytes)
}

/// Makes everything durable that was changed on the file system that `dir` is a directory of, as far as it
/// has reached the server: what a kernel holds back ([`writeback`](crate::Builder::writeback)) only if it was
/// synced by itself. Nothing to do for a file system in memory. Blocks for the I/O.
///
/// # Errors
/// `ENOTTY` if it is none of ours; `EIO` and the like if not everything is durable.
pub fn sync(dir: impl AsRef<Path>) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = rustix::fs::open(dir.as_ref(), flags, Mode::empty())?;
    // SAFETY: the command says in its number that nothing goes in or out through its argument.
    unsafe { ioctl::ioctl(&dir, ioctl::NoArg::<SYNC>::new())? };
    Ok(())
}
