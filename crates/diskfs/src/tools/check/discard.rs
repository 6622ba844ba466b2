//! Replacement of the log of a volume by a new, empty one. What can't be replayed of the former log
//! is discarded.
//!
//! # Order
//!
//! 1. The former log is replayed, if it can be replayed completely: nothing is lost then. If only
//!    its end can't be read, what comes before is replayed. If the volume can't be written, the
//!    former log stays as it is: only a log that can't be read is thrown away.
//! 2. All metadata on disk are read, because the new log must begin after every LSN in them.
//!    Storage for all of the new log is reserved.
//! 3. The superblock records that a repair is under way, which log the volume has from now on, and
//!    whether anything of the former one is lost.
//!    Any remainder of the former log, here or on a device that reappears, is older, and every
//!    program refuses it.
//! 4. LSNs that are so late that no log can begin after them are cleared in the blocks that have
//!    them.
//! 5. The new log is written.
//!
//! Each step is durable before the next one begins. A repair must follow, because the blocks on
//! disk may contain half of a change.
//!
//! # Why it can be interrupted
//!
//! Before the third step the volume is unchanged, or as a mount would have left it. If that step or
//! the fourth fails, the superblock is written as it was, if that is possible. After that the
//! volume can be mounted only to read the blocks on disk without the log, until a repair has
//! completed.
//! The new log is not valid before all of it is written. So a repair that may not discard it
//! refuses it, and a repair that may does all these steps again.
//!
//! # Why it begins after every LSN
//!
//! All blocks in use are read. A block that nothing references may have a later LSN, if the block
//! that references it was never written back. So the new log begins after all known LSNs, at a
//! distance greater than any log advances between two such LSNs.

use std::collections::BTreeSet;
use std::sync::Arc;

use vfscale_block::Device;
use vfscale_journal::{Journal, Known, Lsn, Region};

use super::error::CheckError;
use super::log::{CheckedLog, Discarded, LogState};
use super::options::Options;
use super::run::run;
use super::watch::Findings;
use crate::format::superblock::LOG_BLOCKS_MIN;
use crate::format::{BLOCK_BYTES, Identity, byte_of_block};
use crate::tools::mkfs;
use crate::volume::copies::{self, FoundSuperblock, read_block};
use crate::{LogPlace, Superblock, Uuid, volume};

/// A volume with its new log.
pub(super) struct NewLog {
    pub(super) discarded: Discarded,
    /// State of the former log.
    pub(super) log: LogState,
    /// The superblock as it was written.
    pub(super) superblock: Superblock,
}

/// Gives the volume a new log; see the [module](self). A repair must follow.
///
/// # Errors
/// Returns the errors of the devices. Returns [`CheckError::LogDevice`] if the device of the log is
/// missing, contains other data, or is too small: nothing was written then.
pub(super) fn renew(
    device: &Arc<dyn Device>,
    found: &FoundSuperblock,
    options: &Options,
) -> Result<NewLog, CheckError> {
    let before = &found.superblock;
    let logged = CheckedLog::new(device.clone(), options.log.as_ref(), before)?;
    let (log, why) = logged.replay_home(before);
    if let Some(error) = log.as_ref().err().and_then(vfscale_journal::Error::unwritten) {
        return Err(CheckError::NotReplayed { error: error.clone() });
    }
    let place = place(&logged, before, log.is_err())?;
    let discarded = Discarded::of(&logged, log.is_ok(), why);
    let (newest, late) = places_at_home(device, found);
    let known = known(&logged, before, place, newest);
    let superblock = before.clone().with_log(place).ok_or_else(|| no_room(&logged))?;
    let mut superblock = superblock;
    superblock.features = superblock.features.with_repair(true);
    if discarded.why.is_some() {
        superblock.features = superblock.features.with_lost_log(true);
    }
    (superblock.log_seen, superblock.sums) = (volume::seen(known), None);
    let (log_device, former) = logged.log();
    let region = Region { length: byte_of_block(superblock.log_blocks()), ..former };
    Journal::reserve(log_device, region)?;
    let marked = copies::write(&**device, &mut superblock);
    if let Err(error) = marked.and_then(|()| forget_places(&**device, &late)) {
        // The former log was not touched. If this fails too, the next repair goes on from here.
        let mut former = before.clone();
        former.generation = superblock.generation;
        let _ = copies::write(&**device, &mut former);
        return Err(error.into());
    }
    let id = volume::log_id(&superblock);
    Journal::renew(log_device, region, id, &known)?;
    Ok(NewLog { discarded, log: log.unwrap_or(LogState::Unusable), superblock })
}

/// Returns the recorded state of the new log.
fn known(logged: &CheckedLog, superblock: &Superblock, place: LogPlace, at_home: Lsn) -> Known {
    let seen = &superblock.log_seen;
    let inspection = logged.inspection();
    let records = inspection.as_ref().map_or(&[][..], |found| found.records());
    let epoch = records.iter().map(|record| record.epoch).chain([seen.epoch]).max();
    let places = records.iter().map(|record| record.lsn);
    let newest = places.chain([Lsn::from_bits(seen.last), at_home]).max();
    let device = match place {
        LogPlace::Inside { .. } => Uuid::NIL,
        LogPlace::Outside { device, .. } => device,
    };
    Known::renewed(epoch.unwrap_or(0), newest.unwrap_or(Lsn::NONE), device.to_bytes())
}

/// Finds the latest LSN of all blocks on disk, and the blocks whose LSN is too late.
fn places_at_home(device: &Arc<dyn Device>, found: &FoundSuperblock) -> (Lsn, BTreeSet<u64>) {
    let mut nobody = ();
    let check = run(&**device, found, Findings::new(&mut nobody, 0), None, None);
    (check.media.newest(), check.media.late())
}

fn no_room(logged: &CheckedLog) -> CheckError {
    let (name, least) = (logged.log().0.name(), (LOG_BLOCKS_MIN * BLOCK_BYTES as u64) >> 20);
    CheckError::LogDevice {
        why: format!("{name}: too small for a log, which has {least} MiB at least"),
    }
}

/// Returns the location of the new log. On a device of its own it has the size of the former log,
/// if there is room, and another id; with this id the former log is refused if it reappears.
fn place(
    logged: &CheckedLog,
    superblock: &Superblock,
    is_lost: bool,
) -> Result<LogPlace, CheckError> {
    let LogPlace::Outside { blocks, .. } = superblock.log() else { return Ok(superblock.log()) };
    let (device, region) = logged.log();
    let id = volume::log_id(superblock);
    let owners = if is_lost { Journal::owners(device, region) } else { vec![id] };
    let what = match &owners[..] {
        owners if owners.contains(&id) => None,
        [] => mkfs::recognise(device)?,
        _ => Some("the log of another vfscale volume".into()),
    };
    if let Some(what) = what {
        let name = device.name();
        let why = format!(
            "{name} has {what} on it, which would be lost: clear it, or name another device for the new log"
        );
        return Err(CheckError::LogDevice { why });
    }
    let blocks = blocks.min(device.size() / BLOCK_BYTES as u64);
    if blocks < LOG_BLOCKS_MIN {
        return Err(no_room(logged));
    }
    let device = Uuid::random().map_err(|error| CheckError::LogDevice {
        why: format!("no random numbers for the id of the log: {error}"),
    })?;
    Ok(LogPlace::Outside { device, blocks })
}

/// Clears the LSNs of blocks. Changes only their headers, each of which lies in one sector, so no
/// block is torn. Durable when it returns.
fn forget_places(device: &dyn Device, blocks: &BTreeSet<u64>) -> Result<(), vfscale_block::Error> {
    for address in blocks {
        let mut block = read_block(device, *address)?;
        let header = block.header();
        let (magic, owner, volume) = (header.magic, header.owner.get(), header.volume);
        block.seal(&Identity { magic, address: *address, owner, volume }, 0);
        device.write_at(byte_of_block(*address), block.bytes())?;
    }
    device.flush()
}
