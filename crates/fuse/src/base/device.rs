//! The device that requests are read from and replies written to.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, OFlags, fcntl_getfl, fcntl_setfl, fstat, makedev};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::ioctl;

/// Path of the device.
pub(crate) const PATH: &str = "/dev/fuse";

/// `FUSE_DEV_IOC_CLONE`: binds a freshly opened device to the connection of another.
const CLONE: ioctl::Opcode = ioctl::opcode::read::<u32>(229, 0);

/// Major and minor number of the device.
const NUMBERS: (u32, u32) = (10, 229);

/// An open `/dev/fuse`, bound to one connection.
///
/// `Send` and `Sync`: each read takes one whole request, each write sends one whole reply. A reply
/// must be written to the descriptor that its request was read from, since the kernel lists
/// outstanding requests per descriptor.
#[derive(Debug)]
pub(crate) struct Device(File);

impl Device {
    pub(crate) fn from_fd(fd: OwnedFd) -> Device {
        Device(File::from(fd))
    }

    pub(crate) fn into_fd(self) -> OwnedFd {
        OwnedFd::from(self.0)
    }

    /// Takes over the descriptor of a connection that another process has attached.
    ///
    /// # Errors
    /// `EINVAL` if it is not the FUSE device; any error of `fcntl(2)`.
    pub(crate) fn adopt(fd: OwnedFd) -> std::io::Result<Device> {
        let stat = fstat(&fd)?;
        let is_device = FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice;
        if !is_device || stat.st_rdev != makedev(NUMBERS.0, NUMBERS.1) {
            return Err(Errno::INVAL.into());
        }
        // The workers wait in `read`.
        fcntl_setfl(&fd, fcntl_getfl(&fd)? - OFlags::NONBLOCK)?;
        Ok(Device::from_fd(fd))
    }

    /// Does what [`adopt`](Self::adopt) does with a copy of descriptor `number` of this process.
    ///
    /// # Errors
    /// The errors of `adopt`; `EBADF` if there is no such descriptor.
    pub(crate) fn adopt_number(number: RawFd) -> std::io::Result<Device> {
        if number < 0 {
            return Err(Errno::BADF.into());
        }
        // SAFETY: the number is not -1, and the descriptor is used for one call only, which fails
        // if it is not open.
        let fd = unsafe { BorrowedFd::borrow_raw(number) };
        Device::adopt(fcntl_dupfd_cloexec(fd, 3)?)
    }

    /// Opens another descriptor for the same connection, with queues of its own. Workers then do
    /// not contend for one lock in the kernel.
    pub(crate) fn clone_connection(&self) -> std::io::Result<Device> {
        use std::os::fd::AsRawFd;
        let device = open(Path::new(PATH))?;
        let source = self.0.as_raw_fd().cast_unsigned();
        // SAFETY: this operation reads one `u32`, the number of a descriptor, through its argument.
        unsafe { ioctl::ioctl(&device, ioctl::Setter::<CLONE, u32>::new(source))? };
        Ok(Device(device))
    }

    /// Waits for a request. Returns `Ok(0)` when the connection has ended.
    ///
    /// # Errors
    /// Returns any error of the device except those that mean the end of the connection or a
    /// withdrawn request.
    pub(crate) fn receive(&self, buf: &mut [u8]) -> std::io::Result<usize> {
        loop {
            match (&self.0).read(buf) {
                Ok(n) => return Ok(n),
                Err(e) => match Errno::from_io_error(&e) {
                    // The request was withdrawn before it was read, or a signal arrived.
                    Some(Errno::NOENT | Errno::INTR | Errno::AGAIN) => {}
                    Some(Errno::NODEV | Errno::CONNABORTED) => return Ok(0),
                    _ => return Err(e),
                },
            }
        }
    }

    /// Returns whether a request waits, or the connection has ended. Never blocks.
    pub(crate) fn is_ready(&self) -> bool {
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        matches!(poll(&mut fds, Some(&Timespec::default())), Ok(n) if n > 0)
    }

    /// Sends one whole message.
    ///
    /// # Errors
    /// Returns `ENOENT` if the request no longer waits for a reply. That is harmless, except that
    /// the kernel did not receive the nodes in the reply. Returns `ENODEV` after the end of the
    /// connection.
    pub(crate) fn send(&self, message: &[u8]) -> std::io::Result<()> {
        loop {
            match (&self.0).write(message) {
                Ok(_) => return Ok(()),
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Opens the device at `path`.
pub(crate) fn open(path: &Path) -> std::io::Result<File> {
    File::options().read(true).write(true).open(path)
}
