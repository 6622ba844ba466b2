//! A new id for a volume.
//!
//! # Purpose
//!
//! A copied image has the id of the original, and a user of both wants to distinguish them. Every
//! block of metadata and every record of the log has the id, and the order of names depends on it;
//! so these retain the id with which the volume was created ([`Superblock::volume`]). The
//! superblock has a second id, which programs show ([`Superblock::id`]; as `sb_meta_uuid` in XFS).
//! A program that does not know this feature shows the first id, and works correctly otherwise: the
//! feature is one of *compat*.
//!
//! # A log on a separate device
//!
//! Such a log has an id, too. Superblock and log must agree on it, so a volume does not accept the
//! log of its copy. This id changes with the volume's, in three steps: the log is closed without an
//! id, which agrees with the old and the new one; the superblock is written with the new id; and
//! the log is closed once more, with that id. After a crash at any step, the volume opens.

use std::sync::Arc;

use vfscale_block::Device;

use crate::format::superblock::{LogPlace, LogSeen, Superblock};
use crate::format::uuid::Uuid;
use crate::tools::check::{CheckError, CheckedLog};
use crate::volume;
use crate::volume::copies::{self, OpenError};

/// The error of [`set_id`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IdError {
    /// There is no volume, or none that this program knows.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The volume has a feature that this program does not know, and may only be read.
    #[error("the volume has features that this program does not know: it may only be read")]
    ReadOnly,
    /// The id is nil.
    #[error("the id of zeros is that of no volume: name another, random or restore")]
    Nil,
    /// The named log is not the one of the volume.
    #[error("{0}")]
    LogDevice(#[from] CheckError),
    /// The log is on a separate device, and has changes that are not written back.
    #[error("the log has changes that are not home: mount the volume and unmount it first")]
    NotClean,
    /// The log can't be read or written.
    #[error(transparent)]
    Log(#[from] vfscale_journal::Error),
    /// The system has no random numbers.
    #[error("no random numbers for the id of the log: {0}")]
    Random(#[from] std::io::Error),
}

/// Gives the id `id` to the volume on `device`, which no other program uses; without `id`, gives it
/// the id with which the volume was created. `log` is the device of the log, if that is on a
/// separate one. Returns the superblock. The change is durable when the call returns. Blocks for
/// I/O.
///
/// # Errors
/// [`IdError`]. After an error of a device, the volume has either the old id or the new one.
pub fn set_id(
    device: &Arc<dyn Device>,
    log: Option<&Arc<dyn Device>>,
    id: Option<Uuid>,
) -> Result<Superblock, IdError> {
    let found = copies::read(&**device)?;
    if found.is_read_only() {
        return Err(IdError::ReadOnly);
    }
    if id == Some(Uuid::NIL) {
        return Err(IdError::Nil);
    }
    let superblock = found.superblock;
    let mut logged = CheckedLog::new(device.clone(), log, &superblock)?;
    let id = id.unwrap_or(superblock.volume());
    let LogPlace::Outside { blocks, .. } = superblock.log() else {
        // The contents of a log inside the volume do not depend on this id.
        return write(device, superblock.with_id(id));
    };
    if !logged.is_clean()? {
        return Err(IdError::NotClean);
    }
    logged.known.device = Uuid::NIL.to_bytes();
    let log_seen = closed(&logged, &superblock)?;
    let place = LogPlace::Outside { device: Uuid::random()?, blocks };
    let Some(mut superblock) = superblock.with_id(id).with_log(place) else {
        // This is not reached: the old superblock had a log of that size.
        return Err(IdError::ReadOnly);
    };
    superblock.log_seen = log_seen;
    let mut superblock = write(device, superblock)?;
    superblock.log_seen = closed(&CheckedLog::new(device.clone(), log, &superblock)?, &superblock)?;
    write(device, superblock)
}

fn write(device: &Arc<dyn Device>, mut superblock: Superblock) -> Result<Superblock, IdError> {
    copies::write(&**device, &mut superblock).map_err(OpenError::Device)?;
    Ok(superblock)
}

/// Opens a clean log and closes it; its last record then has the id of the device.
fn closed(logged: &CheckedLog, superblock: &Superblock) -> Result<LogSeen, IdError> {
    let (journal, _) = logged.replay(superblock, false)?;
    journal.close()?;
    Ok(journal.known().map_or(superblock.log_seen, volume::seen))
}

#[cfg(test)]
mod tests;
