//! The open branches of a pool.

use std::collections::HashMap;
use std::sync::Arc;

use vfscale_sync::{Mutex, MutexGuard};

use crate::Error;
use crate::branch::Inner;

vfscale_sync::lock_class! {
    /// The open branches of a pool; held while one is opened, closed, forked or deleted.
    pub(crate) PoolOpen = ("pool_open", 64000) sleeping;
}

/// An open branch.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) inner: Arc<Inner>,
    /// 0 for a branch that could not be closed.
    handles: usize,
}

/// The open branches, by name.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    branches: Mutex<HashMap<String, Open>, PoolOpen>,
}

/// The locked list of open branches.
pub(crate) type Branches<'r> = MutexGuard<'r, HashMap<String, Open>, PoolOpen>;

impl Registry {
    /// Locks the list.
    pub(crate) fn lock(&self) -> Branches<'_> {
        self.branches.lock()
    }

    /// Opens a branch: one that can be written, once.
    ///
    /// # Errors
    /// [`Error::InUse`], and errors of `open`.
    pub(crate) fn open(
        &self,
        name: &str,
        open: impl FnOnce() -> Result<Inner, Error>,
    ) -> Result<Arc<Inner>, Error> {
        let mut branches = self.lock();
        if let Some(open) = branches.get_mut(name) {
            if open.handles > 0 && !open.inner.is_read_only() {
                return Err(Error::InUse(name.into()));
            }
            open.handles += 1;
            return Ok(open.inner.clone());
        }
        let inner = Arc::new(open()?);
        branches.insert(name.into(), Open { inner: inner.clone(), handles: 1 });
        Ok(inner)
    }

    /// Closes a branch. One that can't be written to the device stays in memory.
    pub(crate) fn close(&self, name: &str) {
        let mut branches = self.lock();
        let Some(open) = branches.get_mut(name) else { return };
        open.handles -= 1;
        if open.handles == 0 && open.inner.close().is_ok() {
            branches.remove(name);
        }
    }
}

/// Checks that a branch is not open.
///
/// # Errors
/// [`Error::InUse`].
pub(crate) fn check_closed(branches: &Branches<'_>, name: &str) -> Result<(), Error> {
    if branches.contains_key(name) { Err(Error::InUse(name.into())) } else { Ok(()) }
}
