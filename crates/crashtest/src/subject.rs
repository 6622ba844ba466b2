//! What is tested: a file system on a device, or on several.

use std::ops::Range;
use std::sync::Arc;

use vfscale::{Errno, Vfs};
use vfscale_block::Device;

use crate::op::Op;

/// A device that a file system lives on.
pub type Disk = Arc<dyn Device>;

/// A kind of file system that lives on a device, and on others that it keeps something apart on.
pub trait Subject: Sync {
    /// The sizes of the other devices, in bytes; in all calls they follow the first.
    fn others(&self) -> Vec<u64> {
        Vec::new()
    }

    /// Puts an empty file system on the devices.
    ///
    /// # Errors
    /// Why not.
    fn format(&self, disks: &[Disk]) -> Result<(), String>;

    /// Opens what is on the devices, after whatever has happened to them.
    ///
    /// # Errors
    /// Why not.
    fn open(&self, disks: &[Disk]) -> Result<Box<dyn Opened>, String>;

    /// Where a sector that was being written when power failed can be such that it can't be read any more,
    /// and nothing is lost by it: the number of the device, and bytes. The file system writes what is there
    /// again before it needs it.
    fn may_be_lost(&self, disks: &[Disk]) -> Vec<Lost> {
        let _ = disks;
        Vec::new()
    }

    /// Whether all times of inodes come back as they were; if not, that of the last change of data does.
    fn keeps_all_times(&self) -> bool {
        true
    }

    /// Looks for what is wrong with devices that nobody has open.
    ///
    /// # Errors
    /// What was found.
    fn check(&self, disks: &[Disk]) -> Result<(), String>;
}

/// The number of a device, and bytes of it.
pub type Lost = (usize, Range<u64>);

/// A file system that is open.
pub trait Opened {
    /// Its tree.
    fn vfs(&self) -> &Vfs;

    /// A call of the script has returned successfully. A file system that hears of `fsync` through its tree
    /// has nothing to do.
    ///
    /// # Errors
    /// That of the call, after all.
    fn done(&self, op: &Op) -> Result<(), Errno> {
        let _ = op;
        Ok(())
    }

    /// Closes it, with everything durable.
    ///
    /// # Errors
    /// What went wrong.
    fn close(self: Box<Self>) -> Result<(), String>;
}
