//! The file system of an open volume at present: a [switch](Switchable) makes it another one.
//!
//! # Locks
//!
//! All locks are leaves, held for a moment.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use vfscale_diskfs::DiskFs;
use vfscale_pool::{Branch, Switched};

use crate::error::pool::PoolError;

/// Gives the branch that is open other contents. Nobody writes to it during the call.
pub(crate) type Act<'a> = &'a mut dyn FnMut(&Branch) -> Result<Switched, PoolError>;

/// An open volume that can go on with other contents.
pub(crate) trait Switchable: Send + Sync {
    /// Holds up the users of the volume, calls `act`, and has them go on with the new contents.
    ///
    /// # Errors
    /// Errors of `act`, after which the volume is as before; [`PoolError::Sync`] if not everything
    /// could be written before; [`PoolError::Switch`].
    fn switch(&self, act: Act<'_>) -> Result<(), PoolError>;
}

/// The file system of an open volume, and who switches it. Does not keep it open.
#[derive(Default)]
pub(crate) struct Current {
    fs: Mutex<Weak<DiskFs>>,
    switch: Mutex<Option<Weak<dyn Switchable>>>,
}

impl Current {
    /// Returns the file system, if it is open.
    pub(crate) fn fs(&self) -> Option<Arc<DiskFs>> {
        lock(&self.fs).upgrade()
    }

    pub(crate) fn set_fs(&self, fs: &Arc<DiskFs>) {
        *lock(&self.fs) = Arc::downgrade(fs);
    }

    /// Returns the volume, if it can be switched.
    pub(crate) fn switch(&self) -> Option<Arc<dyn Switchable>> {
        lock(&self.switch).as_ref().and_then(Weak::upgrade)
    }

    pub(crate) fn set_switch(&self, switch: Weak<dyn Switchable>) {
        *lock(&self.switch) = Some(switch);
    }
}

impl fmt::Debug for Current {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Current").finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
