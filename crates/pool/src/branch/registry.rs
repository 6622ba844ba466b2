//! The open branches of a pool.
//!
//! A branch whose handle was dropped stays here with what it has in memory: dropping does no I/O
//! and takes no lock, since a volume may let go of its device anywhere, and late. It is closed when
//! its user closes it, or before it is deleted, renamed or rolled back.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use vfscale_sync::{Mutex, MutexGuard};

use crate::Error;
use crate::branch::Inner;

vfscale_sync::lock_class! {
    /// The open branches of a pool; held while one is opened, closed, forked or deleted.
    pub(crate) PoolOpen = ("pool_open", 64000) sleeping;
}

/// The open branches, by name.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    branches: Mutex<HashMap<String, Arc<Inner>>, PoolOpen>,
}

/// The locked list of open branches.
pub(crate) type Branches<'r> = MutexGuard<'r, HashMap<String, Arc<Inner>>, PoolOpen>;

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
        open_in(&mut self.lock(), name, open)
    }
}

/// Opens a branch as [`Registry::open`] does.
///
/// # Errors
/// Errors of [`Registry::open`].
pub(crate) fn open_in(
    branches: &mut Branches<'_>,
    name: &str,
    open: impl FnOnce() -> Result<Inner, Error>,
) -> Result<Arc<Inner>, Error> {
    let inner = match branches.get(name) {
        Some(inner) => inner.clone(),
        None => Arc::new(open()?),
    };
    if inner.handles.load(Ordering::Acquire) > 0 && !inner.is_read_only() {
        return Err(Error::InUse(name.into()));
    }
    inner.handles.fetch_add(1, Ordering::Relaxed);
    branches.insert(name.into(), inner.clone());
    Ok(inner)
}

/// Returns the name by which a node is open that may have none. No branch has it.
pub(crate) fn key_of_node(id: u64) -> String {
    format!("/{id}")
}

/// Closes a branch that has at most `handles` handles.
///
/// # Errors
/// [`Error::InUse`], and errors of a checkpoint; the branch is still open then.
pub(crate) fn close(branches: &mut Branches<'_>, name: &str, handles: usize) -> Result<(), Error> {
    let Some(inner) = branches.get(name) else { return Ok(()) };
    if inner.handles.load(Ordering::Acquire) > handles {
        return Err(Error::InUse(name.into()));
    }
    inner.close()?;
    branches.remove(name);
    Ok(())
}
