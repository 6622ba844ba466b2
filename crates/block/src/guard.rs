//! Devices that one process has for itself, and how it can tell.
//!
//! A volume is written by one process. Who that is depends on what the device is:
//!
//! | device | guard | when its holder dies | when its holder is cut off |
//! | --- | --- | --- | --- |
//! | image file, block device | a record lock of the open file | the kernel releases the lock | on a shared directory (NFS), the server ends the lease, and the kernel fails the holder's I/O |
//! | image of Ceph RBD | the exclusive lock of the image, and a watch | the watch ends | the next holder has the cluster refuse the old one (a *blocklist*) before it opens |
//!
//! [`Guarded`] is what they have in common, and [`DeviceOptions`](crate::DeviceOptions) opens both
//! by a name.

use std::io;

use crate::{Device, Error, FileDevice};

/// A device that this process has for itself, or shares with other readers.
pub trait Guarded: Device {
    /// Proves that no other process has taken the device over since it was opened. May block for
    /// the I/O. A flush proves the same.
    ///
    /// # Errors
    /// [`Error::Fenced`] if another process has; then every later write and flush fails with it.
    /// [`Error::Io`] if that can't be found out.
    fn prove(&self) -> Result<(), Error>;

    /// Releases the device for other processes although this value still exists: a program may drop
    /// the last reference to it only after a grace period. Later writes and flushes return
    /// [`Error::ReadOnly`], and later reads an error. The caller has ended all requests before. May
    /// be called again. May block for the I/O.
    fn release(&self);

    /// Tells other openers of the device that this process serves it as the mount with a device
    /// number, major and minor, if the guard can tell them.
    ///
    /// # Errors
    /// Returns any error of the file system of an image.
    fn publish_mount(&self, device: (u32, u32)) -> io::Result<()>;
}

impl Guarded for FileDevice {
    /// Does nothing: the kernel fails the I/O of a process that has lost its lock.
    fn prove(&self) -> Result<(), Error> {
        Ok(())
    }

    fn release(&self) {
        self.release();
    }

    fn publish_mount(&self, device: (u32, u32)) -> io::Result<()> {
        self.publish_mount(device)
    }
}
