//! The log of a volume whose device is a copy of another one, such as a branch of a pool.
//!
//! # Purpose
//!
//! Two copies of a volume go on with logs of one id, epoch and position. If the storage below lets
//! one of them ever see what the other one wrote, a recovery would take the other one's records for
//! its own. So a volume on a device with an [identity](Device::identity) has a log with that id. A
//! volume that has another log, when it is opened to be changed, is the copy: it gets a new log. It
//! is a small one, because each copy needs storage of its own for each block of its log, and holds
//! that in reserve from its first change on.
//!
//! # Order
//!
//! 1. The former log is flushed and replayed into the volume. Flush.
//! 2. The superblock and its copies get the id, the size and the state of the new log. Flush.
//! 3. The first transaction begins the first epoch of the new log.
//!
//! Up to the second step the former log is valid, and none of its blocks was changed. From then on
//! the new one is. Both have nothing to replay in between. Nothing is erased: no record in the
//! region has the new id.
//!
//! The superblocks are not written again when the first epoch begins: a reader of one that says
//! that the log is new looks for records in all of the region, so it trusts none of them with what
//! was synced ([`Known::is_new`]). What a superblock says of the groups holds only if the log ends
//! where it says ([`holds`]).
//!
//! # Growth
//!
//! A log that was filled many times since the opening was small for its user. So the close of such
//! a volume gives it a larger one, if the device has much room: when everything is home and the
//! record that closes the log is durable, the superblock and its copies get the larger size and the
//! state of a new log, instead of that of the closed one. Nothing waits for that, nothing is
//! refused without it, and a crash leaves the closed log or the new one. The new log has the same
//! id, and lies over the former one; but each record tells the size of its log, and one of another
//! size is none of the log's own. A log never becomes smaller, so no size comes back.

use std::sync::Arc;

use vfscale_block::Device;
use vfscale_journal::{Journal, Known, Lsn, Recovered};

use super::block_map::Places;
use super::copies;
use super::known::{holds, known, log_id, seen};
use super::log::log_of;
use super::recovery::Replay;
use crate::Settings;
use crate::Uuid;
use crate::base::fault::Fault;
use crate::format::BLOCK_BYTES;
use crate::format::superblock::{LOG_BLOCKS_MIN, LogPlace, Superblock};

/// Default size of a log that a copy of a volume gets: 1 MiB, in blocks.
const LOG_BLOCKS: u64 = 1 << 8;
/// Size of the log of a copy that was busy: 4 MiB, in blocks.
const BUSY_BLOCKS: u64 = 1 << 10;
/// How often the log of a busy volume was filled since its opening.
const BUSY_LAPS: u32 = 8;
/// The share of a device's room that a log may have when it grows.
const ROOM_SHARE: u64 = 64;

/// Gives the volume a log of its own, if its device is a copy of another one and the log is that of
/// the other one; see the [module](self). Returns the result of replaying the former log.
///
/// Blocks for the I/O.
///
/// # Errors
/// The errors of the device and the former log: it is still valid then. [`Fault::LogDevice`] if the
/// log is not inside the volume.
pub(super) fn ensure(
    device: &Arc<dyn Device>,
    superblock: &mut Superblock,
    settings: &Settings,
) -> Result<Option<Recovered>, Fault> {
    let Some(identity) = device.identity() else { return Ok(None) };
    let id = Uuid::from_bytes(identity);
    if superblock.log_id() == Some(id) {
        return Ok(None);
    }
    let LogPlace::Inside { blocks: most, .. } = superblock.log() else {
        return Err(Fault::LogDevice(
            "a volume in a branch has its log inside, and this one has not",
        ));
    };
    let (_, region) = log_of(device, superblock, settings)?;
    // Changes have to be durable in the log before they are written back.
    device.flush()?;
    let places = Places::new(superblock);
    let sink = Replay::new(&**device, superblock.volume(), &places);
    let mut sink = sink.unless_closed(superblock);
    let (former, known) = (log_id(superblock), known(superblock));
    let replayed = Journal::replay(&**device, region, former, &known, false, &mut sink)?;
    let blocks = settings.branch_log_blocks.unwrap_or(LOG_BLOCKS).clamp(LOG_BLOCKS_MIN, most);
    let state = Known::successor(replayed.last)?;
    let Some(mut next) = superblock.clone().with_log_id(id, blocks) else {
        return Err(Fault::LogDevice("the place of the log is too small"));
    };
    next.log_seen = seen(state);
    next.sums = next.sums.filter(|_| holds(superblock, &replayed));
    copies::write(&**device, &mut next)?;
    *superblock = next;
    tracing::debug!(blocks, items = replayed.items, "the volume has got a log of its own");
    Ok(Some(replayed))
}

/// Gives a copy of a volume a larger log for its next opening, if its own one was filled often
/// since `opened`, when the log was at that LSN. The log is closed with the state `closed`.
pub(super) fn enlarge(
    superblock: &mut Superblock,
    device: &dyn Device,
    opened: Lsn,
    closed: Known,
) {
    let (Some(id), LogPlace::Inside { blocks: most, .. }) = (superblock.log_id(), superblock.log())
    else {
        return;
    };
    let blocks = BUSY_BLOCKS.min(most);
    let is_own = device.identity() == Some(id.to_bytes());
    let is_busy = closed.last.cycle().saturating_sub(opened.cycle()) >= BUSY_LAPS;
    let has_room =
        || device.room().is_none_or(|room| room / ROOM_SHARE >= blocks * BLOCK_BYTES as u64);
    if !(closed.is_closed && is_own && is_busy && superblock.log_blocks() < blocks && has_room()) {
        return;
    }
    let next = superblock.clone().with_log_id(id, blocks);
    if let (Some(mut next), Ok(state)) = (next, Known::successor(closed.last)) {
        next.log_seen = seen(state);
        tracing::debug!(blocks, "the volume gets a larger log of its own");
        *superblock = next;
    }
}
