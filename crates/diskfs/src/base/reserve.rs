//! Storage on the device, before it is needed.

use std::fmt;

use vfscale_block::{Device, Error, OsError};

use super::fault::Fault;

/// Storage for dirty pages, on a device on which what is written may have to be reserved.
pub(crate) trait ReservePages: fmt::Debug + Send + Sync {
    /// Returns whether there is something to reserve. From false it may become true.
    fn is_on(&self) -> bool;

    /// Reserves storage for pages that are about to become unstable, and for what writing them back
    /// changes. With `is_urgent` also from what is kept for removals. May block for the I/O.
    ///
    /// # Errors
    /// [`Fault::NoSpace`], [`Fault::Limit`], and those of the device.
    fn reserve_pages(&self, pages: u64, is_urgent: bool) -> Result<(), Fault>;

    /// Gives back what was reserved for pages. Does not block.
    fn unreserve_pages(&self, pages: u64);
}

/// Reserves blocks on a device.
///
/// # Errors
/// [`Fault::NoSpace`], [`Fault::Limit`], and those of the device.
pub(crate) fn reserve(device: &dyn Device, blocks: u64, is_urgent: bool) -> Result<(), Fault> {
    device.reserve(blocks, is_urgent).map_err(fault_of)
}

/// Returns the fault of a reservation that has failed.
pub(crate) fn fault_of(error: Error) -> Fault {
    match error {
        Error::Io { source: OsError::NO_SPACE, .. } => Fault::NoSpace,
        Error::Io { source: OsError::LIMIT, .. } => Fault::Limit,
        error => error.into(),
    }
}
