//! The state of a log, as the superblock and as the journal express it.

use vfscale_journal::{Known, Lsn};

use crate::format::superblock::{LogPlace, LogSeen, Superblock};
use crate::format::uuid::Uuid;

/// Returns the knowledge of a superblock about the volume's log.
pub(crate) fn known(superblock: &Superblock) -> Known {
    let LogSeen { epoch, last, checkpoint, is_closed } = superblock.log_seen;
    let device = match superblock.log() {
        LogPlace::Inside { .. } => Uuid::NIL,
        LogPlace::Outside { device, .. } => device,
    };
    let (last, device) = (Lsn::from_bits(last), device.to_bytes());
    Known { epoch, last, checkpoint, is_closed, device }
}

/// Returns the form in which a superblock records this knowledge about the log.
pub(crate) fn seen(known: Known) -> LogSeen {
    let Known { epoch, last, checkpoint, is_closed, .. } = known;
    LogSeen { epoch, last: last.to_bits(), checkpoint, is_closed }
}
