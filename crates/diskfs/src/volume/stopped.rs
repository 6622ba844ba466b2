//! The record on disk of the reason why a volume stopped, for later mounts and checks.
//!
//! The superblock is written directly, not through the log, which has ended. The record changes
//! nothing else on which a mount relies, and a mount that does not know the record preserves it. A
//! read-only volume is not written.

use vfscale_journal::Error;
use vfscale_sync::atomic::Ordering;

use super::Volume;
use crate::base::fault::Fault;
use crate::format::superblock::{Stopped, Timestamp};

/// The number for a failure to write the log, or to write a block back.
const LOG: u32 = 1001;

/// Returns the fault with which a log was ended, without the error of the log around it.
pub(crate) fn cause(fault: &Fault) -> &Fault {
    match fault {
        Fault::Journal(Error::Client(error)) => error.downcast_ref::<Fault>().map_or(fault, cause),
        _ => fault,
    }
}

/// Returns the number of the finding that the fault is.
pub(crate) fn number(fault: &Fault) -> u32 {
    match cause(fault) {
        Fault::Damage(damage) | Fault::Local(damage) => damage.number(),
        _ => LOG,
    }
}

/// Returns the reason in few words: the superblock has room for one line. The device is the one
/// that has the superblock, or the log, so it is not named.
fn reason(fault: &Fault) -> String {
    use vfscale_block::Error as DeviceError;
    let cause = cause(fault);
    let (error, of) = match cause {
        Fault::Device(error) => (Some(error), ""),
        Fault::Journal(Error::Device(error)) => (Some(error), "log: "),
        _ => (None, ""),
    };
    match error {
        Some(DeviceError::Full { .. }) => format!("{of}the file system of the image was full"),
        Some(DeviceError::Io { operation, offset, source, .. }) => {
            format!("{of}{operation} at {offset}: {source}")
        }
        _ => cause.to_string(),
    }
}

impl Volume {
    /// Writes the reason why the volume stopped into the superblock, if it has stopped and the
    /// reason was not written yet. Blocks for the I/O. If the device itself has failed, nothing is
    /// written, and the next call tries again.
    pub(crate) fn note_stop(&self) {
        let Some(fault) = self.failure() else { return };
        let has_ended = matches!(fault, Fault::Journal(Error::Closed));
        if has_ended || self.is_read_only() || self.is_noted.load(Ordering::Acquire) {
            return;
        }
        let stopped = Stopped::new(number(&fault), Timestamp::now(), &reason(&fault));
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
