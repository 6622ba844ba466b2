//! What is tested: a file system on a device.

use std::ops::Range;
use std::sync::Arc;

use vfscale::{Errno, Vfs};
use vfscale_block::Device;

use crate::op::Op;

/// A kind of file system that lives on a device.
pub trait Subject: Sync {
    /// Puts an empty file system on the device.
    ///
    /// # Errors
    /// Why not.
    fn format(&self, device: &Arc<dyn Device>) -> Result<(), String>;

    /// Opens what is on the device, after whatever has happened to it.
    ///
    /// # Errors
    /// Why not.
    fn open(&self, device: Arc<dyn Device>) -> Result<Box<dyn Opened>, String>;

    /// Where a sector that was being written when power failed can be such that it can't be read any more,
    /// and nothing is lost by it, in bytes: the file system writes what is there again before it needs it.
    fn may_be_lost(&self, device: &dyn Device) -> Vec<Range<u64>> {
        let _ = device;
        Vec::new()
    }

    /// Looks for what is wrong with a device that nobody has open.
    ///
    /// # Errors
    /// What was found.
    fn check(&self, device: &Arc<dyn Device>) -> Result<(), String>;
}

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
