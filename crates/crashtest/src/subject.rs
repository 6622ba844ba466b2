//! The subject of the test: a file system on one device or several.

pub mod volume;

use std::ops::Range;
use std::sync::Arc;

use vfscale::{Errno, Vfs};
use vfscale_block::Device;
use vfscale_testkit::calls::compound::Compound;

/// A device of a file system.
pub type Disk = Arc<dyn Device>;

/// A kind of file system on a device, and possibly on other devices that store a part of it.
pub trait Subject: Sync {
    /// Returns the sizes of the other devices in bytes. In all calls they follow the first device.
    fn others(&self) -> Vec<u64> {
        Vec::new()
    }

    /// Formats the devices with an empty file system.
    ///
    /// # Errors
    /// Describes the failure.
    fn format(&self, disks: &[Disk]) -> Result<(), String>;

    /// Opens the file system on the devices, in any state.
    ///
    /// # Errors
    /// Describes the failure.
    fn open(&self, disks: &[Disk]) -> Result<Box<dyn Opened>, String>;

    /// Returns the ranges whose sectors may become unreadable without loss if power fails while
    /// they are written, with the number of their device. The file system rewrites their content
    /// before it needs it, or refuses to open until a [repair](Self::repair) has given them up.
    fn may_be_lost(&self, disks: &[Disk]) -> Vec<LostRange> {
        let _ = disks;
        Vec::new()
    }

    /// Returns the ranges where a wrong byte looks like a write that a power failure has torn, with
    /// the number of their device: no later write shows that it was durable.
    fn may_look_torn(&self, disks: &[Disk]) -> Vec<LostRange> {
        let _ = disks;
        Vec::new()
    }

    /// Returns whether all times of inodes are durable. If not, only the modification time is.
    fn keeps_all_times(&self) -> bool {
        true
    }

    /// Repairs devices that no file system has open, of which sectors can't be read.
    ///
    /// # Errors
    /// Describes the findings that are left.
    fn repair(&self, disks: &[Disk]) -> Result<(), String> {
        let _ = disks;
        Err("no repair".into())
    }

    /// Checks devices that no file system has open.
    ///
    /// # Errors
    /// Describes the findings.
    fn check(&self, disks: &[Disk]) -> Result<(), String>;
}

/// The number of a device, and a byte range of it.
pub type LostRange = (usize, Range<u64>);

/// An open file system.
pub trait Opened {
    /// Returns its tree.
    fn vfs(&self) -> &Vfs;

    /// Handles the success of a call of the script. A file system that receives `fsync` through its
    /// tree needs no action.
    ///
    /// # Errors
    /// Returns the final error of the call.
    fn done(&self, op: &Compound) -> Result<(), Errno> {
        let _ = op;
        Ok(())
    }

    /// Closes the file system with everything durable.
    ///
    /// # Errors
    /// Describes the failure.
    fn close(self: Box<Self>) -> Result<(), String>;
}
