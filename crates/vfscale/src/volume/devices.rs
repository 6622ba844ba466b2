//! The devices of a volume and of its log, and their release.

use std::path::PathBuf;
use std::sync::{Arc, Weak};

use vfscale_block::{Device, DeviceOptions, Error, Guarded, Operation, OsError};
use vfscale_diskfs::Fault;
use vfscale_diskfs::vfs_impl::DiskFs;

/// The source of the device of a volume or log.
#[derive(Clone, Debug)]
pub(super) enum DeviceSource {
    /// A path, or the name of an image of Ceph RBD.
    Path(PathBuf),
    Device(Arc<dyn Device>),
}

impl DeviceSource {
    pub(super) fn name(&self) -> String {
        match self {
            DeviceSource::Path(path) => path.display().to_string(),
            DeviceSource::Device(device) => device.name().to_owned(),
        }
    }

    pub(super) fn open(&self, options: &DeviceOptions) -> Result<Opened, Error> {
        match self {
            DeviceSource::Device(device) => Ok(Opened::Callers(device.clone())),
            DeviceSource::Path(path) => options.open(path).map(Opened::Own),
        }
    }

    /// Returns the path of an image that does not exist, if that is the `error` of opening it.
    pub(super) fn missing(&self, error: &Error) -> Option<&PathBuf> {
        match self {
            DeviceSource::Path(path) => Some(path).filter(|_| is_missing(error)),
            DeviceSource::Device(_) => None,
        }
    }
}

fn is_missing(error: &Error) -> bool {
    let not_found = |e: OsError| e.kind() == std::io::ErrorKind::NotFound;
    matches!(error, Error::Io { operation: Operation::Open, source, .. } if not_found(*source))
}

/// An open device, with its owner.
pub(super) enum Opened {
    /// Opened by the volume, which releases it.
    Own(Arc<dyn Guarded>),
    /// The caller's.
    Callers(Arc<dyn Device>),
}

impl Opened {
    pub(super) fn device(&self) -> Arc<dyn Device> {
        match self {
            Opened::Own(device) => device.clone(),
            Opened::Callers(device) => device.clone(),
        }
    }

    /// Unlocks the device for other openers, whatever references to it remain. The volume no longer
    /// uses it.
    fn release(&self) {
        if let Opened::Own(device) = self {
            device.release();
        }
    }
}

/// The devices of a volume and of its log. Released when dropped.
pub(super) struct Devices(pub(super) [Option<Opened>; 2]);

impl Devices {
    fn own(&self) -> impl Iterator<Item = &Arc<dyn Guarded>> {
        self.0.iter().flatten().filter_map(|opened| match opened {
            Opened::Own(own) => Some(own),
            Opened::Callers(_) => None,
        })
    }

    pub(super) fn publish_mount(&self, device: (u32, u32)) -> std::io::Result<()> {
        self.own().try_for_each(|own| own.publish_mount(device))
    }

    pub(super) fn release(&self) {
        self.0.iter().flatten().for_each(Opened::release);
    }
}

impl Drop for Devices {
    fn drop(&mut self) {
        self.release();
    }
}

/// A handle by which a thread finds out that another process has taken a volume over
/// ([`Volume::fence`](super::Volume::fence)). It does not keep the volume open.
#[derive(Clone, Debug)]
pub struct Fence {
    fs: Weak<DiskFs>,
    devices: Vec<Weak<dyn Guarded>>,
}

impl Fence {
    pub(super) fn new(fs: &Arc<DiskFs>, devices: Option<&Devices>) -> Self {
        let devices = devices.iter().flat_map(|devices| devices.own()).map(Arc::downgrade);
        Self { fs: Arc::downgrade(fs), devices: devices.collect() }
    }

    /// Asks for each device of the volume whether this process still has it. If it has lost one,
    /// shuts the volume down at once: nothing is written any more, and calls fail with `EIO`, or as
    /// [`OnError`](super::OnError) says. Succeeds if the volume is closed, and if that can't be
    /// found out at present.
    ///
    /// Blocks for the I/O.
    ///
    /// # Errors
    /// [`Error::Fenced`].
    pub fn check(&self) -> Result<(), Error> {
        for device in self.devices.iter().filter_map(Weak::upgrade) {
            if let Err(error @ Error::Fenced { .. }) = device.prove() {
                if let Some(fs) = self.fs.upgrade() {
                    fs.volume().shut_down(Fault::from(error.clone()));
                }
                return Err(error);
            }
        }
        Ok(())
    }
}
