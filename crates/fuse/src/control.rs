//! Requests of other programs to a mount: grow its volume, discard its free space, freeze it, tell
//! its statistics, make, list and compare branches, sync it, unmount it.
//!
//! A request is a message on the socket of the mount: [`connect`] leads to it, and [`Connection`]
//! has a method for each. Who connects has opened a directory of the mount before, and learnt from
//! an `ioctl` on that the random name of the socket, and a secret by which the server knows which
//! mount is meant: names of sockets are no secret. The server and its socket are those of one
//! network namespace.
//!
//! ```c
//! /* As syncfs(2), which Linux does not pass on. On any directory. */
//! #define VFSCALE_IOC_SYNC _IO(0xe7, 2)
//! /* Out: 32 digits of the name of an abstract socket, and 32 of the secret. On any directory. */
//! #define VFSCALE_IOC_SOCKET _IOR(0xe7, 6, __u8[64])
//! ```
//!
//! Beside these the server knows `FITRIM`, for `fstrim(8)`, on any file.
//!
//! The mounting user, unless that is root, and processes with `CAP_SYS_ADMIN` may learn the name of
//! the socket and make requests; every process that can open a directory of the mount may sync it,
//! which only the kernel can check. Requests are served concurrently, each by a thread of its own.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::ioctl::{self, opcode};
use rustix::mount::UnmountFlags;
use vfscale::Errno;
use vfscale::posix::FstrimRange;

mod connection;
mod error;
pub(crate) mod listening;
mod message;
mod reply;
mod request;

pub(crate) use connection::image_id;
pub use connection::{Address, Connection};
pub use error::Error;
pub use listening::Host;
pub use reply::{Checked, Reply, Stage};
pub use request::{Growth, Request};

use crate::attach;

/// `VFSCALE_IOC_SYNC`.
pub(crate) const SYNC: ioctl::Opcode = opcode::none(0xe7, 2);

/// `VFSCALE_IOC_SOCKET`.
pub(crate) const SOCKET: ioctl::Opcode = opcode::read::<Address>(0xe7, 6);

/// `FITRIM`, with the fields of a `struct fstrim_range`: start, length, shortest extent.
pub(crate) const TRIM: ioctl::Opcode = opcode::read_write::<[u64; 3]>(b'X', 121);

/// Decodes the argument of [`TRIM`].
#[expect(clippy::host_endian_bytes, reason = "the caller speaks the machine's byte order")]
pub(crate) fn trim_range(data: &[u8]) -> Result<FstrimRange, Errno> {
    match data.as_chunks::<8>() {
        ([start, len, minlen], []) => {
            let [start, len, minlen] = [start, len, minlen].map(|it| u64::from_ne_bytes(*it));
            Ok(FstrimRange { start, len, minlen })
        }
        _ => Err(Errno::INVAL),
    }
}

/// Opens a directory of a mount to send it a request.
fn open(dir: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(dir, flags, Mode::empty())?)
}

/// Returns the address of the mount that the directory `dir` is on.
///
/// # Errors
/// * `ENOTTY` if no vfscale file system is mounted there.
/// * `EPERM` if the caller has neither `CAP_SYS_ADMIN` nor mounted it as another user than root.
/// * `EMFILE` and the like if its server can't listen.
pub fn address(dir: impl AsRef<Path>) -> io::Result<Address> {
    let dir = open(dir.as_ref())?;
    let mut address: Address = [0; _];
    // SAFETY: the command's number encodes the size of an address, and at most that many bytes are
    // written through its argument. No file system but vfscale has this command, and directories
    // have no others.
    unsafe { ioctl::ioctl(&dir, ioctl::Updater::<SOCKET, Address>::new(&mut address))? };
    Ok(address)
}

/// Connects to the server of the mount that the directory `dir` is on, for one request.
///
/// # Errors
/// Errors of [`address`]; `ECONNREFUSED` if the server is in another network namespace.
pub fn connect(dir: impl AsRef<Path>) -> Result<Connection, Error> {
    Connection::open(&address(dir)?, None)
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

#[cfg(test)]
mod tests;
