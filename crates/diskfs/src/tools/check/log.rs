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
use crate::Superblock;
use crate::volume::recovery::Replay;
use crate::volume::{self, Places, VolumeOptions};

/// The state of the log in a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogState {
    /// Nothing was to be done: everything is home.
    Clean,
    /// There was, and what the log has was replayed: into the volume for a repair, otherwise in
    /// memory.
    Replayed {
        /// Checkpoints that were replayed.
        checkpoints: u64,
        /// Items in them that were.
        items: u64,
    },
    /// Unreadable. The check used the blocks on disk as they are.
    Unusable,
}

/// A log that is thrown away, or would be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discarded {
    /// Why it can't be replayed. If it can be, it is, and nothing is lost.
    pub why: Option<String>,
    /// How many checkpoints are lost, as far as can be told: those that have a record between the
    /// tail and the head of the log that can be read.
    pub checkpoints: u64,
    /// How many such records there are.
    pub records: u64,
}

impl Discarded {
    /// Counts what is between tail and head of a log that can't be replayed.
    pub(super) fn of(logged: &CheckedLog, why: Option<String>) -> Self {
        let inspection = logged.inspection().ok().filter(|_| why.is_some());
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
    /// The superblock's knowledge of it.
    pub(crate) known: Known,
}

impl CheckedLog {
    /// Opens the log of the volume, which is on `device` or on one of its own.
    ///
    /// # Errors
    /// [`CheckError::LogDevice`].
    pub(crate) fn new(
        device: Arc<dyn Device>,
        log: Option<&Arc<dyn Device>>,
        superblock: &Superblock,
    ) -> Result<Self, CheckError> {
        let options = VolumeOptions { log_device: log.cloned(), ..VolumeOptions::default() };
        let (log, region) = volume::log_of(&device, superblock, &options)
            .map_err(|error| CheckError::LogDevice { why: error.to_string() })?;
        let id = VolumeId(superblock.volume().to_bytes());
        let known = volume::known(superblock);
        Ok(Self { device, log, region, volume: id, known })
    }

    /// Returns the device of the log, and its region.
    pub(crate) fn log(&self) -> (&dyn Device, Region) {
        (&*self.log, self.region)
    }

    /// Returns the contents of the log, read once.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn inspection(&self) -> vfscale_journal::Result<Inspection<'_>> {
        Inspection::new(&*self.log, self.region, self.volume)
    }

    /// Returns whether the log has nothing to replay.
    ///
    /// # Errors
    /// It can't be read.
    pub(crate) fn is_clean(&self) -> vfscale_journal::Result<bool> {
        Journal::is_clean(&*self.log, self.region, self.volume, &self.known)
    }

    /// Copies both devices in memory.
    pub(crate) fn copied(&self) -> Self {
        let copy = |device: &Arc<dyn Device>| -> Arc<dyn Device> {
            Arc::new(CowDevice::new(device.clone()))
        };
        let device = copy(&self.device);
        let is_inside = Arc::ptr_eq(&self.device, &self.log);
        let log = if is_inside { device.clone() } else { copy(&self.log) };
        Self { device, log, ..*self }
    }

    /// Replays the log. It stays open.
    ///
    /// # Errors
    /// Those of the devices, and of a log that can't be replayed.
    pub(crate) fn replay(
        &self,
        superblock: &Superblock,
    ) -> vfscale_journal::Result<(Journal, LogState)> {
        let places = Places::new(superblock);
        let mut sink = Replay::new(&*self.device, superblock.volume(), &places);
        let options = Options { sync_interval: None, known: self.known, ..Options::default() };
        let (log, hooks) = (self.log.clone(), Arc::new(RepairHooks(self.device.clone())));
        let opened = Journal::open(log, self.region, self.volume, hooks, &mut sink, options);
        let (journal, found) = opened?;
        let state = LogState::Replayed { checkpoints: found.checkpoints, items: found.items };
        Ok((journal, if found.checkpoints == 0 { LogState::Clean } else { state }))
    }

    /// Replays the log home, and does not go on with it. A log that can't be replayed as a whole is
    /// not at all.
    ///
    /// # Errors
    /// Those of the devices, and of a log that can't be replayed: nothing was written then, unless
    /// it is the volume's device that failed.
    pub(crate) fn replay_home(&self, superblock: &Superblock) -> vfscale_journal::Result<LogState> {
        // Changes have to be durable in the log before they are written back.
        self.log.flush()?;
        let tried = self.copied().replay_only(superblock)?;
        if tried == LogState::Clean { Ok(tried) } else { self.replay_only(superblock) }
    }

    /// Replays the log, and does not go on with it.
    ///
    /// # Errors
    /// Those of the devices, and of a log that can't be replayed.
    pub(crate) fn replay_only(&self, superblock: &Superblock) -> vfscale_journal::Result<LogState> {
        let places = Places::new(superblock);
        let mut sink = Replay::new(&*self.device, superblock.volume(), &places);
        let found = Journal::replay(&*self.log, self.region, self.volume, &self.known, &mut sink)?;
        let state = LogState::Replayed { checkpoints: found.checkpoints, items: found.items };
        Ok(if found.checkpoints == 0 { LogState::Clean } else { state })
    }
}

impl From<vfscale_journal::Error> for Problem {
    fn from(error: vfscale_journal::Error) -> Self {
        Self::Log { why: error.to_string() }
    }
}
