//! An open volume as its handles find it: also after a [switch](super::current::Switchable).

use std::sync::{Arc, Mutex, PoisonError, Weak};

use vfscale_diskfs::DiskFs;

use super::current::Current;
use super::places::Devices;
use super::shared::PoolShared;

/// The present state of an open volume, which this does not keep open.
#[derive(Debug, Default)]
pub(crate) struct Present {
    pub(crate) current: Arc<Current>,
    pool: Mutex<Weak<PoolShared>>,
}

impl Present {
    /// Notes what the volume is from now on.
    pub(crate) fn enter(&self, fs: &Arc<DiskFs>, devices: &Devices) {
        self.current.set_fs(fs);
        let Some(open) = devices.branch() else { return };
        open.note(fs, &self.current);
        if let Some(pool) = open.pool() {
            *self.pool.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(&pool);
        }
    }

    /// Returns the pool, if the volume was opened as a branch, or has been switched.
    pub(crate) fn pool(&self) -> Option<Arc<PoolShared>> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner).upgrade()
    }
}
