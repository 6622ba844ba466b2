//! Mounts that one process makes, and another one serves.
//!
//! The process that mounts acts with the rights and in the namespace of mounts of its user; it
//! passes the descriptor to the server through a socket (`SCM_RIGHTS`).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use crate::attach::{self, Attached, Attachment, Detach};
use crate::base::device::Device;
use crate::base::error::MountError;

/// A mount that no process serves yet. Calls on it wait until one does, or fail once this and all
/// copies of its descriptor are dropped.
#[derive(Debug)]
pub struct Unserved {
    fd: OwnedFd,
    dir: PathBuf,
    device: (u32, u32),
}

impl Attachment {
    /// Mounts at the directory `dir`, for a server to be found. Uses `mount(2)` or `fusermount3`,
    /// as [`Builder::mount`](crate::Builder::mount) does.
    ///
    /// # Errors
    /// Returns a [`MountError`], whose text names the cause and the remedy.
    pub fn mount(&self, dir: impl AsRef<Path>) -> Result<Unserved, MountError> {
        let (device, attached) = attach::attach(dir.as_ref(), self)?;
        let dir = attached.dir().to_owned();
        match attached.device() {
            Ok(number) => Ok(Unserved { fd: device.into_fd(), dir, device: number }),
            Err(source) => Err(MountError::Target { dir, source }),
        }
    }
}

impl Unserved {
    /// Takes a mount that another process has made: `fd` is the open `/dev/fuse`, `dir` the
    /// absolute path at which that process sees the mount, `device` the mount's device number,
    /// major and minor.
    pub fn new(fd: OwnedFd, dir: PathBuf, device: (u32, u32)) -> Unserved {
        Unserved { fd, dir, device }
    }

    /// Returns the directory of the mount.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the device number of the mount, major and minor.
    pub fn device(&self) -> (u32, u32) {
        self.device
    }

    /// Unmounts. Calls that wait for a server fail.
    ///
    /// # Errors
    /// Any error of `umount2(2)`.
    pub fn unmount(self) -> io::Result<()> {
        let attached = Attached::elsewhere(self.dir, self.device);
        attached.detach(&Device::from_fd(self.fd), Detach::Force)
    }

    /// Returns what a server needs of it.
    ///
    /// # Errors
    /// [`MountError::Descriptor`] if the descriptor is not the FUSE device.
    pub(crate) fn into_parts(self) -> Result<(Device, Attached), MountError> {
        let Unserved { fd, dir, device } = self;
        match Device::adopt(fd) {
            Ok(adopted) => Ok((adopted, Attached::elsewhere(dir, device))),
            Err(source) => Err(MountError::Descriptor { dir, source }),
        }
    }
}

impl AsFd for Unserved {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
