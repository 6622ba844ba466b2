//! Requests of other programs to a mount: grow its volume, discard its free space, sync it, freeze
//! it, tell its statistics, make and list branches, unmount it.
//!
//! A request is an `ioctl` on the mounted directory, as in the tools of other file systems. A
//! socket alone would need a path that both sides know; where a request carries a descriptor, one
//! of these requests tells the random name of an abstract socket.
//!
//! ```c
//! /* In: the size wanted, in bytes. Out: the size that the volume has, which is durable. */
//! #define VFSCALE_IOC_GROW _IOWR(0xe7, 1, __u64)
//! /* As syncfs(2), which Linux does not pass on. On any directory. */
//! #define VFSCALE_IOC_SYNC _IO(0xe7, 2)
//! /* Out: the numbers of `Statistics`. On any directory. A new layout has another size. */
//! #define VFSCALE_IOC_STATISTICS _IOR(0xe7, 3, __u64[1565])
//! /* In: operation (1 create, 2 delete, 3 rename, 4 rollback), flags (of create: 1 read-only, 2 as
//!    synced), name, and parent or new name, with zeros behind them. On any directory. */
//! #define VFSCALE_IOC_BRANCH _IOW(0xe7, 4, __u8[264])
//! /* In: 8 bytes, how many branches to skip. Out: 8 bytes, how many follow; then the first 32 of
//!    them: name (128 bytes), size, own space (8 bytes each), depth, flags (4 bytes each). */
//! #define VFSCALE_IOC_BRANCHES _IOWR(0xe7, 5, __u8[4872])
//! /* Out: the name of an abstract socket, with zeros behind it. On any directory. */
//! #define VFSCALE_IOC_SOCKET _IOR(0xe7, 6, __u8[64])
//! /* In: milliseconds to freeze for, unless the caller ends before. On any directory. */
//! #define VFSCALE_IOC_FREEZE _IOW(0xe7, 7, __u64)
//! ```
//!
//! `FITRIM` of Linux discards free space, on any file.
//!
//! The mounting user, unless that is root, and processes with `CAP_SYS_ADMIN` may grow, trim and
//! freeze the volume, read statistics, change and list branches, and learn the name of the socket;
//! every process that can open a directory of the mount may sync it. Other requests are served
//! concurrently.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::ioctl::{self, opcode};
use rustix::mount::UnmountFlags;
use vfscale::Errno;
use vfscale::posix::FstrimRange;

mod branches;
mod socket;

pub(crate) use branches::{BRANCH, BRANCHES, list, serve};
pub use branches::{BranchRequest, branch, branches};
pub use socket::socket;
pub(crate) use socket::{SOCKET, named};

use crate::attach;
use crate::statistics::{self, Statistics};

/// `VFSCALE_IOC_GROW`.
pub(crate) const GROW: ioctl::Opcode = opcode::read_write::<u64>(0xe7, 1);

/// `VFSCALE_IOC_SYNC`.
pub(crate) const SYNC: ioctl::Opcode = opcode::none(0xe7, 2);

/// `VFSCALE_IOC_FREEZE`.
pub(crate) const FREEZE: ioctl::Opcode = opcode::write::<u64>(0xe7, 7);

/// `FITRIM`, with the fields of a `struct fstrim_range`: start, length, shortest extent.
pub(crate) const TRIM: ioctl::Opcode = opcode::read_write::<TrimFields>(b'X', 121);

type TrimFields = [u64; 3];

/// Decodes the argument of [`TRIM`].
pub(crate) fn trim_range(data: &[u8]) -> Result<FstrimRange, Errno> {
    match data.as_chunks::<8>() {
        ([start, len, minlen], []) => {
            let (start, len) = (bytes_of(start)?, bytes_of(len)?);
            Ok(FstrimRange { start, len, minlen: bytes_of(minlen)? })
        }
        _ => Err(Errno::INVAL),
    }
}

/// The numbers of encoded statistics.
type Numbers = [u64; statistics::BYTES_MAX / size_of::<u64>()];

/// `VFSCALE_IOC_STATISTICS`.
pub(crate) const STATISTICS: ioctl::Opcode = opcode::read::<Numbers>(0xe7, 3);

/// Decodes the number in the argument of a command.
pub(crate) fn bytes_of(data: &[u8]) -> Result<u64, Errno> {
    data.try_into().map(u64::from_ne_bytes).map_err(|_| Errno::INVAL)
}

/// Opens a directory of a mount to send it a request.
fn open(dir: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(dir, flags, Mode::empty())?)
}

/// Grows the file system mounted at `dir` to `bytes`, rounded down to a size it can have. Returns
/// its size in bytes, which is durable. Blocks for the I/O.
///
/// # Errors
/// * `ENOTTY` if no vfscale file system is mounted there.
/// * `EOPNOTSUPP` if the file system has no size of its own.
/// * `EPERM` if the caller may not grow it.
/// * `EINVAL` if `bytes` is less than the present size, `EFBIG` if it is more than the maximum.
/// * `EBUSY` if it has grown too often since it was mounted.
/// * `ENOSPC` if its device is smaller or has no space.
/// * `EROFS`, `EIO`.
pub fn grow(dir: impl AsRef<Path>, bytes: u64) -> io::Result<u64> {
    let dir = open(dir.as_ref())?;
    let mut bytes = bytes;
    // SAFETY: the command's number encodes that eight bytes are read and written through its
    // argument, and `bytes` has eight. No file system but vfscale has this command, and directories
    // have no others.
    unsafe { ioctl::ioctl(&dir, ioctl::Updater::<GROW, u64>::new(&mut bytes))? };
    Ok(bytes)
}

/// Discards the free blocks in a range of the file system that the directory `dir` is on, as
/// `fstrim(8)` does. Returns the number of bytes that were discarded. Blocks for the I/O.
///
/// # Errors
/// * `ENOTTY` if `dir` is not on a file system that can do that.
/// * `EOPNOTSUPP` if the file system or its device can't discard.
/// * `EPERM` if the caller has neither `CAP_SYS_ADMIN` nor mounted it as another user than root.
/// * `EINVAL` for a range outside of the file system, or of less than a block.
/// * `EROFS`, `EIO`.
pub fn trim(dir: impl AsRef<Path>, range: FstrimRange) -> io::Result<u64> {
    let dir = open(dir.as_ref())?;
    let FstrimRange { start, len, minlen } = range;
    let mut fields = [start, len, minlen];
    // SAFETY: the command's number encodes the size of the three fields, which are read and written
    // through its argument; it has the same meaning on all file systems.
    unsafe { ioctl::ioctl(&dir, ioctl::Updater::<TRIM, TrimFields>::new(&mut fields))? };
    Ok(fields[1])
}

/// Makes all changes to the file system of the directory `dir` durable that have reached the
/// server. Data that the kernel holds back ([`writeback`](crate::Builder::writeback)) is included
/// only if it was synced before. Does nothing for a file system in memory. Blocks for the I/O.
///
/// # Errors
/// Returns `ENOTTY` if `dir` is not on a vfscale file system; `EIO` or another error of the device
/// if not all changes are durable.
pub fn sync(dir: impl AsRef<Path>) -> io::Result<()> {
    let dir = open(dir.as_ref())?;
    // SAFETY: the command's number encodes that nothing is read or written through its argument.
    unsafe { ioctl::ioctl(&dir, ioctl::NoArg::<SYNC>::new())? };
    Ok(())
}

/// Freezes the volume that the directory `dir` is on, until this process ends, and for at most
/// `limit` (in milliseconds; an hour at most): its device, and that of its log, have everything
/// that has reached the server, in place and durable, and do not change. A copy or a snapshot of
/// them that is made meanwhile opens with nothing to replay. Calls that change the file system
/// sleep until the thaw, and may keep others waiting; so this process must make none.
///
/// Data that the kernel holds back ([`writeback`](crate::Builder::writeback)) is included only if
/// it was synced before. Blocks for the I/O.
///
/// # Errors
/// * `ENOTTY` if `dir` is not on a vfscale file system.
/// * `EOPNOTSUPP` if it is in memory, or a branch, whose image other branches change as well.
/// * `EPERM` if the caller has neither `CAP_SYS_ADMIN` nor mounted it as another user than root.
/// * `ESRCH` if the server can't see this process (it is in another PID namespace).
/// * `EINVAL` for another `limit`.
/// * `EIO` or another error of the device if it can't be frozen.
pub fn freeze(dir: impl AsRef<Path>, limit: Duration) -> io::Result<()> {
    let dir = open(dir.as_ref())?;
    let milliseconds = u64::try_from(limit.as_millis()).map_err(|_| Errno::INVAL)?;
    // SAFETY: the command's number encodes that eight bytes are read through its argument, and the
    // setter passes a pointer to eight. No file system but vfscale has this command, and
    // directories have no others.
    unsafe { ioctl::ioctl(&dir, ioctl::Setter::<FREEZE, u64>::new(milliseconds))? };
    Ok(())
}

/// Reads the statistics of the mount that the directory `dir` is on. This costs the mount nothing
/// of its caches.
///
/// # Errors
/// * `ENOTTY` if no vfscale file system is mounted there, or one of another version.
/// * `EPERM` if the caller has neither `CAP_SYS_ADMIN` nor mounted it as another user than root.
pub fn statistics(dir: impl AsRef<Path>) -> io::Result<Statistics> {
    let dir = open(dir.as_ref())?;
    let mut numbers: Numbers = [0; _];
    // SAFETY: the command's number encodes the size of `Numbers`, and at most that many bytes are
    // written through its argument.
    unsafe { ioctl::ioctl(&dir, ioctl::Updater::<STATISTICS, Numbers>::new(&mut numbers))? };
    statistics::decode(&numbers).map_err(io::Error::from)
}

/// Unmounts the topmost mount at `dir`, with `umount2(2)` or, for a user who may not call that,
/// with `fusermount3`. With `force` users of the mount get errors from then on; a `lazy` unmount
/// detaches the mount, which its users keep.
///
/// The server may close its volume after this returns.
///
/// # Errors
/// * `EBUSY` if the mount is in use, or if the helper refuses.
/// * `EPERM` if the caller may not unmount and there is no helper.
/// * Any other error of `umount2(2)`.
pub fn unmount(dir: impl AsRef<Path>, force: bool, lazy: bool) -> io::Result<()> {
    let mut flags = UnmountFlags::NOFOLLOW;
    flags.set(UnmountFlags::FORCE, force);
    flags.set(UnmountFlags::DETACH, lazy);
    match rustix::mount::unmount(dir.as_ref(), flags) {
        Err(Errno::PERM) => attach::unmount_by_helper(dir.as_ref(), lazy),
        unmounted => Ok(unmounted?),
    }
}
