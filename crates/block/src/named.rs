//! Devices by their names, as users write them: a path, or `rbd:POOL[/NAMESPACE]/IMAGE[@SNAP]`.
//!
//! A file whose name begins with `rbd:` is named by a path that does not, such as `./rbd:x`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::{Ceph, Error, FileOptions, Guarded, Operation};

/// The beginning of the name of an image of Ceph RBD.
const RBD: &[u8] = b"rbd:";

/// Returns whether a name is that of an image of Ceph RBD, and not a path.
pub fn is_rbd(name: impl AsRef<OsStr>) -> bool {
    name.as_ref().as_bytes().starts_with(RBD)
}

/// Options for opening a device by its name.
///
/// ```
/// # mod vfscale { pub mod block { pub use vfscale_block::*; } }
/// use vfscale::block::{Device, DeviceOptions};
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("disk.vfs");
/// let device = DeviceOptions::new().create(&path, 16 << 20)?;
/// device.write_at(4096, &[1; 4096])?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct DeviceOptions {
    pub(crate) read_only: bool,
    pub(crate) take_over: bool,
    #[cfg_attr(not(feature = "rbd"), expect(dead_code, reason = "for images of Ceph RBD"))]
    pub(crate) patience: Option<Duration>,
    #[cfg_attr(not(feature = "rbd"), expect(dead_code, reason = "for images of Ceph RBD"))]
    pub(crate) ceph: Ceph,
}

impl DeviceOptions {
    /// Returns the defaults: reading and writing, and nothing is taken over.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets whether to only read. No by default.
    pub fn read_only(self, read_only: bool) -> Self {
        Self { read_only, ..self }
    }

    /// Sets whether to take an image of Ceph RBD from a holder that is alive: the cluster refuses
    /// that client from then on. No by default.
    pub fn take_over(self, take_over: bool) -> Self {
        Self { take_over, ..self }
    }

    /// Sets the time after which a request of the opening of an image of Ceph RBD fails with
    /// `ETIMEDOUT`, rounded up to seconds: another opening then has new connections. By default it
    /// waits for the cluster, as requests of the open image always do.
    pub fn patience(self, patience: Option<Duration>) -> Self {
        Self { patience, ..self }
    }

    /// Sets the user and the configuration for images of Ceph RBD.
    pub fn ceph(self, ceph: Ceph) -> Self {
        Self { ceph, ..self }
    }

    /// Opens a device: as [`FileOptions::open`] does, or as `RbdDevice::open` of the module `rbd`
    /// does.
    ///
    /// Blocks for the I/O; for an image of Ceph RBD, for at most half a minute if no monitor of the
    /// cluster answers.
    ///
    /// # Errors
    /// [`Error::Locked`] if another process has it open. [`Error::Unsupported`] if it is to be
    /// taken over and is a file. Otherwise the errors of these functions.
    pub fn open(&self, name: impl AsRef<Path>) -> Result<Arc<dyn Guarded>, Error> {
        let name = name.as_ref();
        if is_rbd(name) {
            return rbd::open(name, self);
        }
        if self.take_over {
            let device = name.to_string_lossy().into();
            let why = "only an image of Ceph RBD is taken over: the lock of a file ends with its \
                       holder";
            return Err(Error::Unsupported { device, operation: Operation::Open, why });
        }
        Ok(Arc::new(FileOptions::new().read_only(self.read_only).open(name)?))
    }

    /// Creates an image of `size` bytes, all zero, and opens it.
    ///
    /// Blocks for the I/O.
    ///
    /// # Errors
    /// [`Error::Misaligned`] for a size that is not in whole blocks; [`Error::ReadOnly`] with the
    /// option [`read_only`](Self::read_only); [`Error::Io`], also if the name exists.
    pub fn create(&self, name: impl AsRef<Path>, size: u64) -> Result<Arc<dyn Guarded>, Error> {
        let name = name.as_ref();
        if is_rbd(name) {
            return rbd::create(name, size, self);
        }
        Ok(Arc::new(FileOptions::new().read_only(self.read_only).create(name, size)?))
    }

    /// Removes an image that this process has created, and released.
    ///
    /// Blocks for the I/O.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn remove(&self, name: impl AsRef<Path>) -> Result<(), Error> {
        let name = name.as_ref();
        if is_rbd(name) {
            return rbd::remove(name, self);
        }
        std::fs::remove_file(name).map_err(|error| io_error(name, &error))
    }

    /// Returns whether there is an image or a device of this name.
    ///
    /// Blocks for the I/O.
    ///
    /// # Errors
    /// [`Error::Io`] if that can't be found out, and the errors of a name and of a cluster.
    pub fn exists(&self, name: impl AsRef<Path>) -> Result<bool, Error> {
        let name = name.as_ref();
        if is_rbd(name) {
            return rbd::exists(name, self);
        }
        name.try_exists().map_err(|error| io_error(name, &error))
    }

    /// Fails if another process has the device open for writing. Takes no lock.
    ///
    /// Blocks for the I/O.
    ///
    /// # Errors
    /// [`Error::Locked`] if it is in use; otherwise the errors of opening it.
    pub fn check_free(&self, name: impl AsRef<Path>) -> Result<(), Error> {
        let name = name.as_ref();
        if is_rbd(name) { rbd::check_free(name, self) } else { FileOptions::check_free(name) }
    }
}

fn io_error(name: &Path, error: &std::io::Error) -> Error {
    Error::Io {
        device: name.to_string_lossy().into(),
        operation: Operation::Open,
        offset: 0,
        length: 0,
        source: error.into(),
    }
}

#[cfg(feature = "rbd")]
mod rbd {
    //! Images of Ceph RBD by their names.

    use std::path::Path;
    use std::sync::Arc;

    use super::DeviceOptions;
    use crate::rbd::{self, Name, RbdDevice};
    use crate::{Error, Guarded};

    pub(super) fn open(name: &Path, with: &DeviceOptions) -> Result<Arc<dyn Guarded>, Error> {
        Ok(Arc::new(RbdDevice::open(&Name::parse(name)?, with)?))
    }

    pub(super) fn create(
        name: &Path,
        size: u64,
        with: &DeviceOptions,
    ) -> Result<Arc<dyn Guarded>, Error> {
        Ok(Arc::new(RbdDevice::create(&Name::parse(name)?, size, with)?))
    }

    pub(super) fn remove(name: &Path, with: &DeviceOptions) -> Result<(), Error> {
        rbd::remove(&Name::parse(name)?, with)
    }

    pub(super) fn exists(name: &Path, with: &DeviceOptions) -> Result<bool, Error> {
        rbd::exists(&Name::parse(name)?, with)
    }

    pub(super) fn check_free(name: &Path, with: &DeviceOptions) -> Result<(), Error> {
        rbd::check_free(&Name::parse(name)?, with)
    }
}

#[cfg(not(feature = "rbd"))]
mod rbd {
    //! The refusal of images of Ceph RBD, in a build without them.

    use std::path::Path;
    use std::sync::Arc;

    use super::DeviceOptions;
    use crate::{Error, Guarded};

    fn refused<T>(name: &Path) -> Result<T, Error> {
        let why = "this program was built without Ceph RBD (the feature `rbd`)".into();
        Err(Error::Refused { device: name.to_string_lossy().into(), why })
    }

    pub(super) fn open(name: &Path, _: &DeviceOptions) -> Result<Arc<dyn Guarded>, Error> {
        refused(name)
    }

    pub(super) fn create(
        name: &Path,
        _: u64,
        _: &DeviceOptions,
    ) -> Result<Arc<dyn Guarded>, Error> {
        refused(name)
    }

    pub(super) fn remove(name: &Path, _: &DeviceOptions) -> Result<(), Error> {
        refused(name)
    }

    pub(super) fn exists(name: &Path, _: &DeviceOptions) -> Result<bool, Error> {
        refused(name)
    }

    pub(super) fn check_free(name: &Path, _: &DeviceOptions) -> Result<(), Error> {
        refused(name)
    }
}

#[cfg(test)]
mod tests;
