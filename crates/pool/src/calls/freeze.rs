//! Holding a pool still, for a copy of its device.

use std::sync::atomic::Ordering;

use crate::{Error, Pool};

impl Pool {
    /// Calls `meanwhile` while the device has everything of all branches, in place and durable, and
    /// does not change but by discards of free places: so a copy of it opens with nothing to
    /// replay. The users of the open branches in `held` write nothing until the return. Calls that
    /// change the pool, and those that list its branches, wait. Returns the result of `meanwhile`.
    ///
    /// Blocks for the I/O: two flushes for each branch that has changed.
    ///
    /// # Errors
    /// [`Error::InUse`] if another branch is open that can be written, and errors of the device;
    /// `meanwhile` was not called then.
    pub fn hold_still<T>(
        &self,
        held: &[String],
        meanwhile: impl FnOnce() -> T,
    ) -> Result<T, Error> {
        self.shared.alive()?;
        let branches = self.open.lock();
        let writable = branches.iter().filter(|(_, inner)| !inner.is_read_only());
        let mut used = writable.filter(|(_, it)| it.handles.load(Ordering::Acquire) > 0);
        if let Some((name, _)) = used.find(|(name, _)| !held.contains(name)) {
            return Err(Error::InUse(name.clone()));
        }
        branches.values().try_for_each(|inner| inner.close())?;
        let _still = self.shared.state.lock();
        Ok(meanwhile())
    }
}
