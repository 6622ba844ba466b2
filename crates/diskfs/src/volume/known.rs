//! The state of a log, as the superblock and as the journal express it.

use vfscale_journal::{Known, Lsn, Recovered, VolumeId};

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
    // The first record of a log has this position, and no other that closes one. The log may have
    // been opened since.
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

/// Returns whether what a superblock says of the groups holds: nothing was logged since. A log that
/// is new may have been used, and all of it been written home, without a word in the superblock.
pub(crate) fn holds(superblock: &Superblock, recovered: &Recovered) -> bool {
    recovered.items == 0 && recovered.last.to_bits() == superblock.log_seen.last
}
