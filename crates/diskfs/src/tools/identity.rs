//! Giving a volume another id.
//!
//! # Purpose
//!
//! An image that was copied has the id of the first one. A user of both wants to tell them
//! apart. Every block of metadata has the id, as has every record of the log, and the order of
//! names depends on it; so these keep the one that the volume was made with
//! ([`Superblock::volume`]), and the superblock has another besides, which is shown
//! ([`Superblock::id`]; as `sb_meta_uuid` in XFS). A program that knows nothing of that shows the
//! former id, and does everything right: the feature is one of *compat*.
//!
//! # A log on a device of its own
//!
//! has an id, too, which superblock and log have to agree on, so that a volume does not take the
//! log of its copy. It changes with the volume's. In between the log has none, which both agree
//! with: it is closed without one, the superblock is written with the new one, and the log is
//! closed once more with that. A crash leaves a volume that opens, at each step.

use std::sync::Arc;

use vfscale_block::Device;

use crate::format::superblock::{LogPlace, LogSeen, Superblock};
use crate::format::uuid::Uuid;
use crate::tools::check::{CheckError, CheckedLog};
use crate::volume;
use crate::volume::copies::{self, OpenError};

/// Error of [`set_id`].
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
    /// Another log was named than the volume has.
    #[error("{0}")]
    LogDevice(#[from] CheckError),
    /// The log is on another device, and has changes.
    #[error("the log has changes that are not home: mount the volume and unmount it first")]
    NotClean,
    /// The log can't be read or written.
    #[error(transparent)]
    Log(#[from] vfscale_journal::Error),
    /// The system has no random numbers.
    #[error("no random numbers for the id of the log: {0}")]
    Random(#[from] std::io::Error),
}

/// Gives the volume on `device`, which no other program uses, the id `id`; without one, the id it
/// was made with. `log` is the device of its log, if that has one of its own. Returns the
/// superblock. Durable when it returns; blocks for the I/O.
///
/// # Errors
/// [`IdError`]. After an error of a device the volume has the one id or the other.
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
        // Nothing in the log depends on it.
        return write(device, superblock.with_id(id));
    };
    if !logged.is_clean()? {
        return Err(IdError::NotClean);
    }
    logged.known.device = Uuid::NIL.to_bytes();
    let log_seen = closed(&logged, &superblock)?;
    let place = LogPlace::Outside { device: Uuid::random()?, blocks };
    let Some(mut superblock) = superblock.with_id(id).with_log(place) else {
        // Not reached: the old superblock had a log of that size.
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

/// Opens a log that is clean, and closes it, so that its last record has the id of the device.
fn closed(logged: &CheckedLog, superblock: &Superblock) -> Result<LogSeen, IdError> {
    let (journal, _) = logged.replay(superblock)?;
    journal.close()?;
    Ok(journal.known().map_or(superblock.log_seen, volume::seen))
}

#[cfg(test)]
mod tests;
