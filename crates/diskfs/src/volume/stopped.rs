//! Remembering on disk what has stopped a volume, for whoever looks at it later.
//!
//! The superblock is written home at once, not through the log, which has ended. It changes nothing
//! else that a mount goes by, and one that does not know of it keeps it. A volume that is read-only
//! is not written.

use vfscale_journal::Error;
use vfscale_sync::atomic::Ordering;

use super::Volume;
use crate::base::fault::Fault;
use crate::format::superblock::{Stopped, Timestamp};

/// The number for a log that can't be written, or what is to go home.
const LOG: u32 = 1001;

/// Returns the fault itself that a log was ended with.
pub(crate) fn cause(fault: &Fault) -> &Fault {
    match fault {
        Fault::Journal(Error::Client(error)) => error.downcast_ref::<Fault>().map_or(fault, cause),
        _ => fault,
    }
}

/// Returns the number of a finding that it is.
pub(crate) fn number(fault: &Fault) -> u32 {
    match cause(fault) {
        Fault::Damage(damage) => damage.number(),
        _ => LOG,
    }
}

impl Volume {
    /// Writes into the superblock what has stopped the volume, if that is so and was not written
    /// yet. Blocks for the I/O. The device may be what has failed: then nothing is written, and the
    /// next call tries again.
    pub(crate) fn note_stop(&self) {
        let Some(fault) = self.failure() else { return };
        let has_ended = matches!(fault, Fault::Journal(Error::Closed));
        if has_ended || self.is_read_only() || self.is_noted.load(Ordering::Acquire) {
            return;
        }
        let stopped = Stopped::new(number(&fault), Timestamp::now(), &cause(&fault).to_string());
        let noted = self.update_superblock(|superblock| {
            superblock.stopped = superblock.stopped.take().or(stopped);
        });
        match noted {
            Ok(()) => self.is_noted.store(true, Ordering::Release),
            Err(error) => {
                tracing::warn!(%error, "the superblock does not say that the volume has stopped")
            }
        }
    }
}
