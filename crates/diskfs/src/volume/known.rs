//! The state of a log, as the superblock and as the journal express it.

use vfscale_journal::{Known, Lsn, VolumeId};

use crate::format::superblock::{LogPlace, LogSeen, Superblock};
use crate::format::uuid::Uuid;

/// Returns the id in the records of the volume's log.
pub(crate) fn log_id(superblock: &Superblock) -> VolumeId {
    VolumeId(superblock.log_id().unwrap_or(superblock.volume()).to_bytes())
}

/// Returns the knowledge of a superblock about the volume's log.
pub(crate) fn known(superblock: &Superblock) -> Known {
    let seen = superblock.log_seen;
    let LogSeen { epoch, last, checkpoint, is_closed } = seen;
    // The first record of a log has this position, and no other that closes one.
    let is_new = superblock.log_id().is_some() && is_closed && checkpoint == 0;
    let device = match superblock.log() {
        LogPlace::Inside { .. } => Uuid::NIL,
        LogPlace::Outside { device, .. } => device,
    };
    let (last, device) = (Lsn::from_bits(last), device.to_bytes());
    let is_new = is_new && last.block() == 0;
    Known { epoch, last, checkpoint, is_closed, is_new, device }
}

/// Returns the form in which a superblock records this knowledge about the log.
pub(crate) fn seen(known: Known) -> LogSeen {
    let Known { epoch, last, checkpoint, is_closed, .. } = known;
    LogSeen { epoch, last: last.to_bits(), checkpoint, is_closed }
}
