//! The device of a volume that may become a branch of a pool while it is open.
//!
//! # How
//!
//! The volume is opened on a [`Switch`]. To make its device a pool, the volume is frozen with
//! everything at home ([`DiskFs::swap_device`]), the device is converted as a closed one is, the
//! pool and its branch `main` are opened, and the switch leads to the branch. Then the volume goes
//! on. A power cut at any time finds a volume or a pool with the same contents.
//!
//! If the conversion fails, the volume goes on as it was, unless the device may lead to the pool
//! already. Then the volume must not write to it any more: it is shut down, and whoever opens the
//! device next finds everything.
//!
//! # Locks
//!
//! `is_over` is held while a pool is made; the caller of that has no lock of the volume. It is a
//! lock of the volume's owner, which no call in the volume takes.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use vfscale_block::{Device, Guarded};
use vfscale_diskfs::{CacheBudget, DiskFs, Fault, copies};
use vfscale_vfs::Errno;

use super::current::Current;
use super::devices::Opened;
use super::switch::{Gone, Switch};
use crate::error::pool::PoolError;
use crate::place::convert::{Converted, convert, discard_free};
use crate::place::shared::{Access, MAIN, OpenBranch, PoolShared};

/// The open device of a volume that can be written.
#[derive(Debug)]
pub(crate) struct Lower {
    name: String,
    opened: Opened,
    /// The memory for the caches of branches.
    budget: Option<Arc<CacheBudget>>,
    switch: Arc<Switch>,
    /// The branch that the volume has become.
    branch: OnceLock<OpenBranch>,
    current: Arc<Current>,
    /// Whether the volume is closed.
    is_over: Mutex<bool>,
}

impl Lower {
    pub(crate) fn new(
        name: &str,
        opened: Opened,
        budget: Option<&Arc<CacheBudget>>,
        current: &Arc<Current>,
    ) -> Arc<Self> {
        let switch = Arc::new(Switch::new(opened.device()));
        let (name, branch) = (name.to_owned(), OnceLock::new());
        let (budget, current, is_over) = (budget.cloned(), current.clone(), Mutex::new(false));
        Arc::new(Self { name, opened, budget, switch, branch, current, is_over })
    }

    /// Returns the device for the volume.
    pub(crate) fn device(&self) -> Arc<dyn Device> {
        self.switch.clone()
    }

    pub(crate) fn opened(&self) -> &Opened {
        &self.opened
    }

    /// Returns the device below, if the volume has opened it.
    pub(crate) fn own(&self) -> Option<Arc<dyn Guarded>> {
        self.opened.own().cloned()
    }

    /// Returns the branch that the volume has become.
    pub(crate) fn branch(&self) -> Option<&OpenBranch> {
        self.branch.get()
    }

    /// Makes the device a pool, and the open volume its branch `main`; returns the pool. Only
    /// returns it if that was done before.
    ///
    /// Blocks for the I/O. The calling thread has no call under way in the volume.
    ///
    /// # Errors
    /// [`PoolError`].
    pub(crate) fn make_pool(&self, fs: &Arc<DiskFs>) -> Result<Arc<PoolShared>, PoolError> {
        let is_over = self.is_over();
        if let Some(pool) = self.branch().and_then(OpenBranch::pool) {
            return Ok(pool);
        }
        if *is_over {
            return Err(self.refused("it is being closed", Errno::NODEV));
        }
        let made = fs.swap_device(|| self.convert(fs)).map_err(|fault| match fault {
            Fault::ReadOnly => self.refused("it is open for reading only", Errno::ROFS),
            fault => PoolError::Sync { name: self.name.clone(), errno: fault.errno() },
        })?;
        if made.is_err()
            && let Err(error) = self.switch.flush()
        {
            fs.volume().shut_down(error.into());
        }
        let (pool, converted) = made?;
        if converted == Converted::Fixed {
            discard_free(&self.name, fs);
            if let Err(error) = self.branch().map_or(Ok(()), OpenBranch::checkpoint) {
                tracing::warn!("the space of free blocks is not used yet: {error}");
            }
        }
        Ok(pool)
    }

    /// Converts the device of the volume, which does not change, and leads it to the branch.
    fn convert(&self, fs: &Arc<DiskFs>) -> Result<(Arc<PoolShared>, Converted), PoolError> {
        let opened = convert(&self.name, MAIN, &self.opened).and_then(|converted| {
            let (opened, budget) = (self.opened.clone(), self.budget.clone());
            let pool = PoolShared::open_held(&self.name, opened, Access::Write, budget)?;
            let branch = pool.open_branch(MAIN)?;
            Ok((pool, branch, converted))
        });
        let device = self.opened.device();
        let (pool, branch, converted) = opened.inspect_err(|error| {
            if !copies::read(&*device).is_ok_and(|found| found.is_whole()) {
                let name = &self.name;
                tracing::error!("{name}: {error}; it is to be closed and opened again");
                self.switch.replace(Arc::new(Gone::of(&*device)));
            }
        })?;
        branch.note(fs, &self.current);
        self.switch.replace(branch.device());
        let _ = self.branch.set(branch);
        Ok((pool, converted))
    }

    fn refused(&self, why: &str, errno: Errno) -> PoolError {
        PoolError::Convert { name: self.name.clone(), why: why.into(), errno }
    }

    /// Ends the use of the device. No pool is made from it any more.
    pub(crate) fn release(&self) {
        *self.is_over() = true;
        match self.branch() {
            Some(open) => open.release(),
            None => self.opened.release(),
        }
    }

    fn is_over(&self) -> MutexGuard<'_, bool> {
        self.is_over.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
