//! Pools that are held still or grow, with the volumes in their branches.
//!
//! # A freeze
//!
//! Each open volume is frozen by a thread of its own, so that no thread holds the locks of two, and
//! then the pool ([`vfscale_pool::Pool::hold_still`]). A volume that is opened in between is found
//! there, and the freeze refused. Freezes of one pool wait for each other: of two that froze some
//! volumes each, neither would end.

use std::sync::{Arc, mpsc};
use std::thread;

use vfscale_diskfs::DiskFs;
use vfscale_vfs::Errno;

use super::shared::PoolShared;
use crate::error::pool::PoolError;

impl PoolShared {
    /// Calls `meanwhile` while the device of the pool has everything, in place and durable, and
    /// does not change.
    ///
    /// # Errors
    /// [`PoolError::Sync`] if a volume can't be frozen, and [`PoolError::Branches`]; `meanwhile`
    /// was not called then.
    pub(crate) fn freeze<T>(&self, meanwhile: impl FnOnce() -> T) -> Result<T, PoolError> {
        let _one = self.freezing();
        let (names, volumes): (Vec<String>, Vec<Arc<DiskFs>>) = self.volumes().into_iter().unzip();
        let failed = |errno| PoolError::Sync { name: self.name().to_owned(), errno };
        thread::scope(|scope| {
            let (tell, told) = mpsc::channel();
            // Dropping a holder thaws its volume.
            let mut holders = Vec::new();
            for volume in &volumes {
                let (holder, held) = mpsc::channel::<()>();
                holders.push(holder);
                let tell = tell.clone();
                let hold = move || {
                    let frozen = volume.freeze(|| {
                        let _ = tell.send(Ok(()));
                        let _ = held.recv();
                    });
                    if let Err(fault) = frozen {
                        let _ = tell.send(Err(fault.errno()));
                    }
                };
                let begun = thread::Builder::new().name("vfscale-freeze".into());
                let begun = begun.spawn_scoped(scope, hold);
                begun.map_err(|error| {
                    failed(Errno::from_io_error(&error).unwrap_or(Errno::AGAIN))
                })?;
            }
            for _ in &volumes {
                told.recv().unwrap_or(Err(Errno::IO)).map_err(failed)?;
            }
            let done = self.call(self.pool().hold_still(&names, meanwhile));
            drop(holders);
            done
        })
    }

    /// Makes the volume in a branch larger, which may be open, and the pool with it.
    ///
    /// # Errors
    /// [`PoolError::Grow`], and [`PoolError::Branches`].
    pub(crate) fn grow_branch(self: &Arc<Self>, name: &str, bytes: u64) -> Result<u64, PoolError> {
        self.to_change()?;
        let label = || format!("{}:{name}", self.name());
        let refused = |errno, why: String| PoolError::Grow { name: label(), why, errno };
        let open = self.volumes().into_iter().find(|(other, _)| other == name);
        if let Some((_, volume)) = open {
            let grown = volume.volume().grow(Some(bytes));
            return grown
                .map(|geometry| geometry.bytes())
                .map_err(|error| refused(error.errno(), error.to_string()));
        }
        let branch = self.open_branch(name)?;
        let volume = vfscale_diskfs::Volume::open(branch.device(), Default::default());
        let volume = volume.map_err(|fault| refused(fault.errno(), fault.to_string()))?;
        let grown = volume.grow(Some(bytes));
        let closed = volume.close();
        let grown = grown.map_err(|error| refused(error.errno(), error.to_string()))?;
        closed.map_err(|fault| refused(fault.errno(), fault.to_string()))?;
        branch.close()?;
        Ok(grown.bytes())
    }
}
