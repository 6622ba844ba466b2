//! Devices of volumes, logs and pools, and who opened them.

use std::path::PathBuf;
use std::sync::Arc;

use vfscale_block::{Device, DeviceOptions, Error, Guarded};

/// The source of a device.
#[derive(Clone, Debug)]
pub(crate) enum DeviceSource {
    /// A path, or the name of an image of Ceph RBD.
    Path(PathBuf),
    Device(Arc<dyn Device>),
}

impl DeviceSource {
    pub(crate) fn name(&self) -> String {
        match self {
            DeviceSource::Path(path) => path.display().to_string(),
            DeviceSource::Device(device) => device.name().to_owned(),
        }
    }

    pub(crate) fn open(&self, options: &DeviceOptions) -> Result<Opened, Error> {
        match self {
            DeviceSource::Device(device) => Ok(Opened::Callers(device.clone())),
            DeviceSource::Path(path) => options.open(path).map(Opened::Own),
        }
    }

    /// Returns the path if the error of opening says that there is nothing at it.
    pub(crate) fn missing(&self, error: &Error) -> Option<&PathBuf> {
        let DeviceSource::Path(path) = self else { return None };
        error.is_missing().then_some(path)
    }
}

/// An open device, with its owner.
#[derive(Clone, Debug)]
pub(crate) enum Opened {
    /// Opened by the volume or pool, which releases it.
    Own(Arc<dyn Guarded>),
    /// The caller's.
    Callers(Arc<dyn Device>),
}

impl Opened {
    pub(crate) fn device(&self) -> Arc<dyn Device> {
        match self {
            Opened::Own(device) => device.clone(),
            Opened::Callers(device) => device.clone(),
        }
    }

    /// Returns the device if it was opened by the volume or pool.
    pub(crate) fn own(&self) -> Option<&Arc<dyn Guarded>> {
        match self {
            Opened::Own(device) => Some(device),
            Opened::Callers(_) => None,
        }
    }

    /// Unlocks the device for other openers, whatever references to it remain. The owner no longer
    /// uses it.
    pub(crate) fn release(&self) {
        if let Some(own) = self.own() {
            own.release();
        }
    }
}
