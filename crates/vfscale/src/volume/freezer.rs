//! Freezing an open volume, for a snapshot of what it lies on.

use std::sync::{Arc, Weak};

use vfscale_vfs::Errno;

use crate::place::lower::Lower;
use crate::place::present::Present;
use crate::place::shared::{OpenBranch, PoolShared};

/// A handle by which another thread freezes a volume ([`Volume::freezer`](super::Volume::freezer)),
/// and all branches of its image if it is one. It does not keep the volume open.
#[derive(Clone, Debug)]
pub struct Freezer {
    present: Arc<Present>,
    /// The device, which may have become that of a branch.
    lower: Option<Weak<Lower>>,
}

impl Freezer {
    pub(super) fn new(present: &Arc<Present>, lower: Option<&Arc<Lower>>) -> Self {
        Self { present: present.clone(), lower: lower.map(Arc::downgrade) }
    }

    /// Returns the size of the volume in bytes; `None` if it is closed.
    pub fn volume_size(&self) -> Option<u64> {
        Some(self.present.current.fs()?.volume().geometry().bytes())
    }

    /// Returns the pool of the volume, if it is a branch by now.
    fn pool(&self) -> Option<Arc<PoolShared>> {
        let lower = self.lower.as_ref().and_then(Weak::upgrade);
        let pool = || lower.as_ref()?.branch().and_then(OpenBranch::pool);
        self.present.pool().or_else(pool)
    }

    /// Calls `meanwhile` while the volume is frozen: its device, and that of its log, have
    /// everything that calls have returned for, in place and durable, and do not change. So a copy
    /// or a snapshot of them that is made meanwhile opens with nothing to replay. Returns the
    /// result of `meanwhile`. If the volume is a branch, all volumes that are open in branches of
    /// the image are frozen, and calls that change or list the branches sleep as well.
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
    /// let freezer = volume.freezer();
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
    /// closed, and `EBUSY` if a branch is just being opened, or is open as a device; `meanwhile`
    /// was not called then.
    pub fn freeze<T>(&self, meanwhile: impl FnOnce() -> T) -> Result<T, Errno> {
        let mut meanwhile = Some(meanwhile);
        let mut run = || meanwhile.take().map(|meanwhile| meanwhile());
        loop {
            let frozen = match self.pool() {
                Some(pool) => pool.freeze(&mut run).map_err(|error| {
                    tracing::warn!("the branches can't be frozen: {error}");
                    error.errno()
                }),
                None => {
                    let fs = self.present.current.fs().ok_or(Errno::NODEV)?;
                    // Looks again when no pool is being made.
                    let frozen = fs.freeze(|| self.pool().is_none().then(&mut run).flatten());
                    frozen.map_err(|fault| {
                        tracing::warn!(%fault, "the volume can't be frozen");
                        fault.errno()
                    })
                }
            };
            // Otherwise the volume has become a branch in between.
            if let Some(result) = frozen? {
                return Ok(result);
            }
        }
    }
}
