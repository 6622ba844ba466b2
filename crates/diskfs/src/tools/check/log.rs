//! The log of a volume that is being checked.

use std::collections::BTreeSet;
use std::sync::Arc;

use vfscale_block::{CowDevice, Device};
use vfscale_journal::{
    Inspection, Journal, Known, Options, RecordHeader, RecordKind, Region, VolumeId,
};

use super::error::CheckError;
use super::finding::Problem;
use super::home::RepairHooks;
use crate::Settings;
use crate::Superblock;
use crate::volume::recovery::{MayLack, Replay};
use crate::volume::{self, Places};

/// The state of the log in a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogState {
    /// Nothing to replay: all changes are written back.
    Clean,
    /// The contents of the log were replayed: into the volume for a repair, otherwise in memory.
    Replayed {
        /// Number of checkpoints that were replayed.
        checkpoints: u64,
        /// Number of items in them.
        items: u64,
    },
    /// The log is unreadable. The check used the blocks on disk as they are.
    Unusable,
}

/// A log that is discarded, or would be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discarded {
    /// Reason why it can't be replayed. If it can be replayed, it is, and nothing is lost.
    pub why: Option<String>,
    /// Number of lost checkpoints, as far as known: those that have a readable record between the
    /// tail and the head of the log.
    pub checkpoints: u64,
    /// Number of these records.
    pub records: u64,
}

impl Discarded {
    /// Counts the records between tail and head of a log that can't be replayed. Of one that was
    /// replayed in part, no record that can be read is lost.
    pub(super) fn of(logged: &CheckedLog, is_replayed: bool, why: Option<String>) -> Self {
        let inspection = logged.inspection().ok().filter(|_| !is_replayed);
        let records = inspection.as_ref().map_or(&[][..], |found| found.records());
        let epoch = records.iter().map(|record| record.epoch).max();
        let newest = || records.iter().filter(|record| Some(record.epoch) == epoch);
        let tail = newest().map(|record| record.tail_lsn).max();
        let is_live =
            |record: &&RecordHeader| record.kind == RecordKind::Data && Some(record.lsn) >= tail;
        let live: Vec<u64> = newest().filter(is_live).map(|record| record.checkpoint).collect();
        let checkpoints = live.iter().collect::<BTreeSet<_>>().len() as u64;
        Self { why, checkpoints, records: live.len() as u64 }
    }
}

/// A volume with its log.
#[derive(Debug)]
pub(crate) struct CheckedLog {
    /// The volume's device.
    pub(crate) device: Arc<dyn Device>,
    log: Arc<dyn Device>,
    region: Region,
    volume: VolumeId,
    /// The state of the log that the superblock records.
    pub(crate) known: Known,
    gives_up: bool,
}

impl CheckedLog {
    /// Opens the log of the volume, which is on `device` or on a device of its own.
    ///
    /// # Errors
    /// Returns [`CheckError::LogDevice`] if the volume has its log on another device and `log` is
    /// `None`, or the reverse.
    pub(crate) fn new(
        device: Arc<dyn Device>,
        log: Option<&Arc<dyn Device>>,
        superblock: &Superblock,
    ) -> Result<Self, CheckError> {
        let options = Settings { log_device: log.cloned(), ..Settings::default() };
        let (log, region) = volume::log_of(&device, superblock, &options)
            .map_err(|error| CheckError::LogDevice { why: error.to_string() })?;
        let id = volume::log_id(superblock);
        let known = volume::known(superblock);
        Ok(Self { device, log, region, volume: id, known, gives_up: false })
    }

    /// Lets a [replay](Self::replay) that may lack something give up inodes that can't be read.
    pub(super) fn giving_up(self, gives_up: bool) -> Self {
        Self { gives_up, ..self }
    }

    /// Returns the device of the log, and its region.
    pub(crate) fn log(&self) -> (&dyn Device, Region) {
        (&*self.log, self.region)
    }

    /// Returns the contents of the log, read once.
    ///
    /// # Errors
    /// Returns an error if no log is found, or if it can't be read.
    pub(crate) fn inspection(&self) -> vfscale_journal::Result<Inspection<'_>> {
        Inspection::new(&*self.log, self.region, self.volume)
    }

    /// Returns whether the log has nothing to replay.
    ///
    /// # Errors
    /// Returns an error if the log can't be read.
    pub(crate) fn is_clean(&self) -> vfscale_journal::Result<bool> {
        Journal::is_clean(&*self.log, self.region, self.volume, &self.known)
    }

    /// Returns a copy, with a copy-on-write layer in memory over each device.
    pub(crate) fn copied(&self) -> Self {
        let copy = |device: &Arc<dyn Device>| -> Arc<dyn Device> {
            Arc::new(CowDevice::new(device.clone()))
        };
        let device = copy(&self.device);
        let is_inside = Arc::ptr_eq(&self.device, &self.log);
        let log = if is_inside { device.clone() } else { copy(&self.log) };
        Self { device, log, ..*self }
    }

    /// Replays the log, and returns it open. If `may_lack`, the log ends where it can't be read any
    /// further, and inodes that it does not have may be damaged, or may be given up.
    ///
    /// # Errors
    /// Returns the errors of the devices, and of a log that can't be replayed.
    pub(crate) fn replay(
        &self,
        superblock: &Superblock,
        may_lack: bool,
    ) -> vfscale_journal::Result<(Journal, LogState)> {
        let places = Places::new(superblock);
        let sink = Replay::new(&*self.device, superblock.volume(), &places);
        let mut sink = sink.lacking(match may_lack {
            false => MayLack::Nothing,
            true if self.gives_up => MayLack::All,
            true => MayLack::Wrong,
        });
        let (known, may_cut) = (self.known, may_lack);
        let options = Options { sync_interval: None, known, may_cut, ..Options::default() };
        let (log, hooks) = (self.log.clone(), Arc::new(RepairHooks(self.device.clone())));
        let opened = Journal::open(log, self.region, self.volume, hooks, &mut sink, options);
        let (journal, found) = opened?;
        let state = LogState::Replayed { checkpoints: found.checkpoints, items: found.items };
        Ok((journal, if found.checkpoints == 0 { LogState::Clean } else { state }))
    }

    /// Replays the log into the volume, without opening it: all of it, or what comes before an end
    /// that can't be read. Returns also why something of it is lost, if anything is.
    ///
    /// # Errors
    /// Returns the errors of the devices, and of a log that can't be replayed: nothing was written
    /// then, unless the volume's device failed.
    pub(crate) fn replay_home(
        &self,
        superblock: &Superblock,
    ) -> (vfscale_journal::Result<LogState>, Option<String>) {
        match self.try_home(superblock, false) {
            Err(why @ vfscale_journal::Error::EndUnread { .. }) => {
                (self.try_home(superblock, true), Some(why.to_string()))
            }
            Err(why) => {
                let text = why.to_string();
                (Err(why), Some(text))
            }
            whole => (whole, None),
        }
    }

    fn try_home(&self, superblock: &Superblock, cut: bool) -> vfscale_journal::Result<LogState> {
        // Changes have to be durable in the log before they are written back.
        self.log.flush()?;
        let tried = self.copied().replay_some(superblock, cut)?;
        if tried == LogState::Clean { Ok(tried) } else { self.replay_some(superblock, cut) }
    }

    /// Replays the log, without opening it.
    ///
    /// # Errors
    /// Returns the errors of the devices, and of a log that can't be replayed.
    pub(crate) fn replay_only(&self, superblock: &Superblock) -> vfscale_journal::Result<LogState> {
        self.replay_some(superblock, false)
    }

    fn replay_some(&self, superblock: &Superblock, cut: bool) -> vfscale_journal::Result<LogState> {
        let places = Places::new(superblock);
        let sink = Replay::new(&*self.device, superblock.volume(), &places);
        let mut sink = sink.lacking(if cut { MayLack::Wrong } else { MayLack::Nothing });
        let (region, volume, known) = (self.region, self.volume, &self.known);
        let found = Journal::replay(&*self.log, region, volume, known, cut, &mut sink)?;
        let state = LogState::Replayed { checkpoints: found.checkpoints, items: found.items };
        Ok(if found.checkpoints == 0 { LogState::Clean } else { state })
    }
}

impl From<vfscale_journal::Error> for Problem {
    fn from(error: vfscale_journal::Error) -> Self {
        Self::Log { why: error.to_string() }
    }
}
