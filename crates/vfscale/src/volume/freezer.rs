//! Freezing an open volume, for a snapshot of what it lies on.

use std::sync::{Arc, Weak};

use vfscale_diskfs::DiskFs;
use vfscale_vfs::Errno;

use crate::place::lower::Lower;

/// A handle by which another thread freezes a volume ([`Volume::freezer`](super::Volume::freezer)).
/// It does not keep the volume open.
#[derive(Clone, Debug)]
pub struct Freezer {
    fs: Weak<DiskFs>,
    /// The device, which may have become that of a branch.
    lower: Option<Weak<Lower>>,
}

impl Freezer {
    pub(super) fn new(fs: &Arc<DiskFs>, lower: Option<&Arc<Lower>>) -> Self {
        Self { fs: Arc::downgrade(fs), lower: lower.map(Arc::downgrade) }
    }

    /// Returns whether the volume has become a branch, whose device others change as well.
    fn is_branch(&self) -> bool {
        let lower = self.lower.as_ref().and_then(Weak::upgrade);
        lower.is_some_and(|lower| lower.branch().is_some())
    }

    /// Calls `meanwhile` while the volume is frozen: its device, and that of its log, have
    /// everything that calls have returned for, in place and durable, and do not change. So a copy
    /// or a snapshot of them that is made meanwhile opens with nothing to replay. Returns the
    /// result of `meanwhile`.
    ///
    /// Calls that change the volume sleep until `meanwhile` returns, also syncs that have something
    /// to write and [`Volume::close`](super::Volume::close); `meanwhile` must make none of them,
    /// since it would wait for itself.
    ///
    /// Blocks for the I/O, and while the volume is frozen by another thread. The calling thread has
    /// no call under way in the volume.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let (image, copy) = (dir.path().join("disk.vfs"), dir.path().join("copy.vfs"));
    /// let volume = vfscale::volume(&image).create(16 << 20).open()?;
    /// volume.task().write("/note", "kept\n")?;
    /// let freezer = volume.freezer().expect("it is no branch");
    /// freezer.freeze(|| std::fs::copy(&image, &copy))??;
    ///
    /// let copied = vfscale::volume(&copy).read_only(true).open()?;
    /// assert_eq!(copied.task().read_to_string("/note")?, "kept\n");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `EIO` and other errors of write-back, the log and the devices, `ENODEV` if the volume is
    /// closed, and `EOPNOTSUPP` if it has become a branch of a pool; `meanwhile` was not called
    /// then.
    pub fn freeze<T>(&self, meanwhile: impl FnOnce() -> T) -> Result<T, Errno> {
        let fs = self.fs.upgrade().ok_or(Errno::NODEV)?;
        // Looks when no pool is being made.
        let guarded = || if self.is_branch() { Err(Errno::OPNOTSUPP) } else { Ok(meanwhile()) };
        fs.freeze(guarded).unwrap_or_else(|fault| {
            tracing::warn!(%fault, "the volume can't be frozen");
            Err(fault.errno())
        })
    }
}
