//! The place of a volume: a device, or a branch of an open pool; and its release.

use std::sync::{Arc, Weak};

use vfscale_block::{Device, Error, Guarded};
use vfscale_diskfs::{CacheBudget, Fault};

use super::current::Current;
use super::devices::{DeviceSource, Opened};
use super::lower::Lower;
use crate::error::pool::PoolError;
use crate::place::shared::{OpenBranch, PoolShared};

/// The place of a volume.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    Device(DeviceSource),
    /// A branch of an open pool.
    Branch(Arc<PoolShared>, String),
}

/// The open device of a volume.
pub(crate) enum OpenPlace {
    Device(Opened),
    /// A device that can be written, and may become a pool.
    Lower(Arc<Lower>),
    Branch(OpenBranch),
}

impl OpenPlace {
    pub(crate) fn device(&self) -> Arc<dyn Device> {
        match self {
            OpenPlace::Device(opened) => opened.device(),
            OpenPlace::Lower(lower) => lower.device(),
            OpenPlace::Branch(open) => open.device(),
        }
    }

    /// Has a device that it may become a pool while the volume is open, whose branches share the
    /// memory for caches with the volume, if that has a budget.
    pub(crate) fn or_lower(
        self,
        name: &str,
        budget: Option<&Arc<CacheBudget>>,
        current: &Arc<Current>,
    ) -> Self {
        match self {
            OpenPlace::Device(opened) => {
                OpenPlace::Lower(Lower::new(name, opened, budget, current))
            }
            place => place,
        }
    }

    /// Returns the open device, if this is no branch.
    pub(crate) fn opened(&self) -> Option<&Opened> {
        match self {
            OpenPlace::Device(opened) => Some(opened),
            OpenPlace::Lower(lower) => Some(lower.opened()),
            OpenPlace::Branch(_) => None,
        }
    }

    /// Returns the device below, if it was opened by the volume or the pool.
    fn own(&self) -> Option<Arc<dyn Guarded>> {
        match self {
            OpenPlace::Device(opened) => opened.own().cloned(),
            OpenPlace::Lower(lower) => lower.own(),
            OpenPlace::Branch(open) => open.own(),
        }
    }
}

/// The devices of a volume and of its log. Released when dropped.
pub(crate) struct Devices {
    pub(crate) place: OpenPlace,
    pub(crate) log: Option<Opened>,
}

impl Devices {
    pub(crate) fn branch(&self) -> Option<&OpenBranch> {
        match &self.place {
            OpenPlace::Branch(open) => Some(open),
            OpenPlace::Lower(lower) => lower.branch(),
            OpenPlace::Device(_) => None,
        }
    }

    /// Returns the device that may become a pool.
    pub(crate) fn lower(&self) -> Option<&Arc<Lower>> {
        match &self.place {
            OpenPlace::Lower(lower) => Some(lower),
            OpenPlace::Device(_) | OpenPlace::Branch(_) => None,
        }
    }

    fn own(&self) -> impl Iterator<Item = Arc<dyn Guarded>> {
        self.place.own().into_iter().chain(self.log.iter().filter_map(Opened::own).cloned())
    }

    pub(crate) fn publish_mount(&self, device: (u32, u32)) -> std::io::Result<()> {
        self.own().try_for_each(|own| own.publish_mount(device))
    }

    /// Makes all writes of a branch durable where the next opening of the pool finds them at once.
    pub(crate) fn close(&self) -> Result<(), PoolError> {
        self.branch().map_or(Ok(()), OpenBranch::close)
    }

    pub(crate) fn release(&self) {
        match &self.place {
            OpenPlace::Device(opened) => opened.release(),
            OpenPlace::Lower(lower) => lower.release(),
            OpenPlace::Branch(open) => open.release(),
        }
        self.log.iter().for_each(Opened::release);
    }
}

impl Drop for Devices {
    fn drop(&mut self) {
        self.release();
    }
}

/// A handle by which a thread finds out that another process has taken a volume over
/// ([`Volume::fence`](crate::Volume::fence)). It does not keep the volume open.
#[derive(Clone, Debug)]
pub struct Fence {
    current: Arc<Current>,
    devices: Vec<Weak<dyn Guarded>>,
}

impl Fence {
    pub(crate) fn new(current: &Arc<Current>, devices: Option<&Devices>) -> Self {
        let devices = devices.iter().flat_map(|devices| devices.own());
        let devices = devices.map(|device| Arc::downgrade(&device));
        Self { current: current.clone(), devices: devices.collect() }
    }

    /// Asks for each device of the volume whether this process still has it. If it has lost one,
    /// shuts the volume down at once: nothing is written any more, and calls fail with `EIO`, or as
    /// [`OnError`](crate::volume::OnError) says. Succeeds if the volume is closed, and if that
    /// can't be found out at present.
    ///
    /// Blocks for the I/O.
    ///
    /// # Errors
    /// [`Error::Fenced`].
    pub fn check(&self) -> Result<(), Error> {
        for device in self.devices.iter().filter_map(Weak::upgrade) {
            if let Err(error @ Error::Fenced { .. }) = device.prove() {
                if let Some(fs) = self.current.fs() {
                    fs.volume().shut_down(Fault::from(error.clone()));
                }
                return Err(error);
            }
        }
        Ok(())
    }
}
