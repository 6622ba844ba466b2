//! Storage on the device, before it is needed.

use vfscale_block::{Demand, Device, Error, OsError};

use super::fault::Fault;

/// Reserves storage.
///
/// # Errors
/// [`Fault::NoSpace`], and those of the device.
pub(crate) fn reserve(device: &dyn Device, demand: Demand, is_urgent: bool) -> Result<(), Fault> {
    device.reserve(demand, is_urgent).map_err(|error| match error {
        Error::Io { source: OsError::NO_SPACE, .. } => Fault::NoSpace,
        error => error.into(),
    })
}
