//! The log of a volume: its location, and its opening or replay.

use std::ops::Range;
use std::sync::Arc;

use vfscale_block::{CowDevice, Device};
use vfscale_journal::{Journal, Recovered, Region};

use super::block_map::Places;
use super::hooks::VolumeHooks;
use super::known::{known, log_id};
use super::recovery::{MayLack, Replay};
use crate::Settings;
use crate::base::fault::Fault;
use crate::format::superblock::{LogPlace, Superblock};
use crate::format::{BLOCK_BYTES, byte_of_block};

/// A volume whose log was opened, replayed or ignored.
pub(super) struct Logged {
    /// The device to read from, and to write to if there is a journal.
    pub(super) device: Arc<dyn Device>,
    pub(super) hooks: Arc<VolumeHooks>,
    pub(super) journal: Option<Journal>,
    pub(super) recovered: Recovered,
}

impl Logged {
    fn read_only(device: Arc<dyn Device>, recovered: Recovered) -> Self {
        let hooks = Arc::new(VolumeHooks::new(device.clone(), false));
        Self { device, hooks, journal: None, recovered }
    }
}

/// Replays the log in memory, unless the settings ignore it.
pub(super) fn read_log(
    device: Arc<dyn Device>,
    superblock: &Superblock,
    places: &Places,
    settings: &Settings,
) -> Result<Logged, Fault> {
    if settings.no_recovery {
        return Ok(Logged::read_only(device, Recovered::default()));
    }
    let replayed = replay_in_memory(device, superblock, places, settings, true)?;
    Ok(Logged::read_only(replayed.device, replayed.recovered))
}

/// A log that was replayed in memory.
pub(crate) struct Replayed {
    /// A copy of the device with the changes, or the device itself if there is nothing to replay.
    pub(crate) device: Arc<dyn Device>,
    /// The bytes that the replay has changed.
    pub(crate) changed: Vec<Range<u64>>,
    pub(crate) recovered: Recovered,
}

/// Replays the log in memory. If `may_lack`, changes and inodes that can't be read are missing in
/// the copy, and are logged as errors.
///
/// # Errors
/// The errors of the device and the log, and damage in the contents of the log.
pub(crate) fn replay_in_memory(
    device: Arc<dyn Device>,
    superblock: &Superblock,
    places: &Places,
    settings: &Settings,
    may_lack: bool,
) -> Result<Replayed, Fault> {
    let (log_device, region) = log_of(&device, superblock, settings)?;
    let volume = log_id(superblock);
    let copy = Arc::new(CowDevice::in_place_of(device.clone()));
    let sink = Replay::new(&*copy, superblock.volume(), places).unless_closed(superblock);
    let lacking = if may_lack { MayLack::All } else { MayLack::Nothing };
    let (mut sink, known) = (sink.lacking(lacking), known(superblock));
    let recovered = Journal::replay(&*log_device, region, volume, &known, may_lack, &mut sink)?;
    if recovered.items == 0 {
        return Ok(Replayed { device, changed: Vec::new(), recovered });
    }
    tracing::info!(items = recovered.items, "the log was replayed in memory");
    Ok(Replayed { changed: copy.changed(), device: copy, recovered })
}

/// Opens the log and replays it.
pub(super) fn open_log(
    device: Arc<dyn Device>,
    superblock: &Superblock,
    places: &Places,
    settings: &Settings,
) -> Result<Logged, Fault> {
    let (log_device, region) = log_of(&device, superblock, settings)?;
    let volume = log_id(superblock);
    let mut sink = Replay::new(&*device, superblock.volume(), places).unless_closed(superblock);
    let shares_device = matches!(superblock.log(), LogPlace::Inside { .. });
    let hooks = Arc::new(VolumeHooks::new(device.clone(), shares_device));
    let journal = vfscale_journal::Options { known: known(superblock), ..settings.journal };
    let opened = Journal::open(log_device, region, volume, hooks.clone(), &mut sink, journal);
    let (journal, recovered) = opened?;
    drop(sink);
    Ok(Logged { device, hooks, journal: Some(journal), recovered })
}

/// Returns the device with the log, and the position of the log on it.
pub(crate) fn log_of(
    device: &Arc<dyn Device>,
    superblock: &Superblock,
    settings: &Settings,
) -> Result<(Arc<dyn Device>, Region), Fault> {
    let length = superblock.log_blocks() * BLOCK_BYTES as u64;
    match (superblock.log(), &settings.log_device) {
        (LogPlace::Inside { start, .. }, None) => {
            Ok((device.clone(), Region { offset: byte_of_block(start), length }))
        }
        (LogPlace::Outside { .. }, Some(log)) => Ok((log.clone(), Region { offset: 0, length })),
        (LogPlace::Inside { .. }, Some(_)) => {
            Err(Fault::LogDevice("the volume has its log inside, not on a device of its own"))
        }
        (LogPlace::Outside { .. }, None) => {
            Err(Fault::LogDevice("the volume has its log on a device of its own: name that too"))
        }
    }
}
