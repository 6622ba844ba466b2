//! Pools of volumes that are open.

use std::sync::{Arc, Weak};

use vfscale_vfs::Errno;

use super::{Pool, PoolError};
use crate::Volume;
use crate::place::lower::Lower;
use crate::place::present::Present;
use crate::place::shared::OpenBranch;

/// A handle by which another thread makes the device of an open volume a pool
/// ([`Volume::pool_maker`]). It does not keep the volume open.
#[derive(Clone, Debug)]
pub struct PoolMaker {
    present: Arc<Present>,
    /// `None` if the volume is open for reading only.
    lower: Option<Weak<Lower>>,
}

impl PoolMaker {
    fn new(present: &Arc<Present>, lower: Option<&Arc<Lower>>) -> Self {
        Self { present: present.clone(), lower: lower.map(Arc::downgrade) }
    }

    /// Returns the pool, if the volume has become one, and is open.
    #[must_use]
    pub fn pool(&self) -> Option<Pool> {
        let lower = || self.lower.as_ref()?.upgrade()?.branch().and_then(OpenBranch::pool);
        self.present.pool().or_else(lower).map(|shared| Pool { shared })
    }

    /// Makes the device of the volume a pool as [`Volume::make_pool`] does.
    ///
    /// # Errors
    /// Errors of [`Volume::make_pool`], and [`PoolError::Convert`] if the volume is closed.
    pub fn make_pool(&self) -> Result<Pool, PoolError> {
        let refused = |why: &str, errno| {
            let name = "the volume".into();
            Err(PoolError::Convert { name, why: why.into(), errno })
        };
        if let Some(pool) = self.pool() {
            return Ok(pool);
        }
        let Some(lower) = &self.lower else {
            return refused("it is open for reading only", Errno::ROFS);
        };
        let (Some(lower), Some(fs)) = (lower.upgrade(), self.present.current.fs()) else {
            return refused("it is closed", Errno::NODEV);
        };
        lower.make_pool(&fs).map(|shared| Pool { shared })
    }
}

impl Volume {
    /// Returns the pool that the volume is a branch of; `None` for a volume without branches. The
    /// pool holds the image open.
    #[must_use]
    pub fn pool(&self) -> Option<Pool> {
        self.branch_of().map(|shared| Pool { shared })
    }

    /// Makes the device of the open volume a pool, and the volume its branch `main`, as
    /// [`PoolBuilder::convert`](super::PoolBuilder::convert) does with a closed one; returns the
    /// pool. Only returns it if the volume is a branch already. Open files and tasks go on.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("disk.vfs");
    /// let volume = vfscale::volume(&path).create(64 << 20).open()?;
    /// volume.task().write("/config", "old")?;
    /// volume.make_pool()?.fork("main", "kept")?;
    /// volume.task().write("/config", "new")?;
    /// volume.close()?;
    ///
    /// let pool = vfscale::pool(&path).open()?;
    /// let kept = pool.open("kept")?;
    /// assert_eq!(kept.task().read_to_string("/config")?, "old");
    /// # kept.close()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// A crash leaves a volume or a pool with everything that was synced. If the device fails in
    /// the last step, it may be the one or the other: then the volume is shut down, and opening it
    /// again shows which.
    ///
    /// Blocks for the I/O: all changes are written home, and six flushes. Calls that change the
    /// volume sleep meanwhile, and the calling thread must have none under way.
    ///
    /// # Errors
    /// [`PoolError::Convert`] if the volume can't become a pool: it is open for reading only, its
    /// log lies on a device of its own, the device has a fixed size. [`PoolError::Sync`] if not all
    /// changes could be written, and [`PoolError::Branches`] for an error of the device.
    pub fn make_pool(&self) -> Result<Pool, PoolError> {
        match self.pool() {
            Some(pool) => Ok(pool),
            None => PoolMaker::new(self.present(), self.lower()).make_pool(),
        }
    }

    /// Returns a handle by which another thread makes the device of the volume a pool; `None` for a
    /// branch.
    #[must_use]
    pub fn pool_maker(&self) -> Option<PoolMaker> {
        self.branch_of().is_none().then(|| PoolMaker::new(self.present(), self.lower()))
    }
}
