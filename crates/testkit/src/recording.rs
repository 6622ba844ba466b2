//! A device that records its calls, and rebuilds the states that a crash might have left.
//!
//! # Purpose
//!
//! A volume is crash-safe if it recovers from *every* state that the promises of a device permit. A
//! [`RecordingDevice`] records each write, discard and flush in order, with contents.
//! [`CrashStates`] then yields the images: after every prefix of the calls, and for the writes that
//! no flush had covered, with any of them missing, in any order, and torn ([`crash`]).
//!
//! A test records in the log what it has promised so far ([`RecordingDevice::mark`]): each state
//! contains the number of marks before the crash, and the test compares the recovered contents with
//! them.
//!
//! # Several devices
//!
//! A file system may have its log on a device of its own, and each device has a cache of its own:
//! the state of one after a crash implies nothing about the other. Devices that record together
//! ([`RecordingDevice::beside`]) share one log, which is the clock: a flush covers the changes of
//! its own device, and a state contains any part of the pending changes of each at one moment.
//!
//! # Invariants
//!
//! * The inner device is the image at the start and is never written: all changes are in the
//!   recording, which makes states cheap. So no other code may write it either.
//! * The log contains the calls in the order in which they began, and when they returned. A write
//!   is durable in a state if a flush that began after the write had returned has itself returned
//!   before the crash.
//! * Discarded bytes immediately read as [`DISCARDED`](vfscale_block::DISCARDED): this exposes code
//!   that relies on their old contents, or on zeros.
//! * A change of size is durable when it returns, as the trait requires.
//! * Changes that a device has forgotten ([`RecordingDevice::forget`]) are in no state any more,
//!   nor in the live image.
//!
//! # Locks
//!
//! `RecordingLog` guards the log, and is held while a call enters it and the live image, so that
//! both have the same order. This makes the device slower with many threads, which is intended.

use std::fmt;
use std::sync::Arc;

use vfscale_sync::Mutex;

use vfscale_block::cow::{CowDevice, ExtentData};
use vfscale_block::{CallRange, Device, Discards, Error, Operation};

pub mod crash;
mod log;

use log::{LogEntry, Recording};

pub use crash::{CrashId, CrashPlan, CrashState, CrashStates, Moment};

vfscale_sync::lock_class! {
    /// The log of a [`RecordingDevice`]; only the live image is locked under it.
    pub(crate) RecordingLog = ("recording_log", 64880);
}

#[derive(Debug, Default)]
struct Log {
    bases: Vec<Arc<dyn Device>>,
    entries: Vec<LogEntry>,
    marks: Vec<Arc<str>>,
}

/// A device that records its calls. Counterpart of `dm-log-writes` in Linux. See the
/// [module](self).
///
/// Memory: the written data, once, and about a hundred bytes for each call.
pub struct RecordingDevice<D> {
    base: Arc<D>,
    /// The current image.
    live: CowDevice,
    /// Number of the device among those that share the log.
    disk: usize,
    log: Arc<Mutex<Log, RecordingLog>>,
}

impl<D: Device + 'static> RecordingDevice<D> {
    /// Starts recording with the present contents of `base`, which must not be written any more.
    pub fn new(base: D) -> Self {
        Self::sharing(base, Arc::default())
    }

    /// Starts recording another device into the log of `first`: states contain both of them, as of
    /// one moment. The devices should have the same block size, for the largest one is the atomic
    /// unit.
    pub fn beside<F>(first: &RecordingDevice<F>, base: D) -> Self {
        Self::sharing(base, first.log.clone())
    }

    fn sharing(base: D, log: Arc<Mutex<Log, RecordingLog>>) -> Self {
        let base = Arc::new(base);
        let live = CowDevice::new(base.clone());
        let disk = {
            let mut log = log.lock();
            log.bases.push(base.clone());
            log.bases.len() - 1
        };
        Self { base, live, disk, log }
    }

    /// Notes that a promise of the test holds from here on, and returns the number of marks. To be
    /// called after the call that made the promise true.
    pub fn mark(&self, label: impl Into<Arc<str>>) -> usize {
        let mut log = self.log.lock();
        log.marks.push(label.into());
        log.entries.push(LogEntry::Mark);
        log.marks.len()
    }

    /// Returns the labels of all marks, in order. The marks of a state are the first
    /// [`marks`](CrashState::marks) of them.
    pub fn marks(&self) -> Vec<Arc<str>> {
        self.log.lock().marks.clone()
    }

    /// Returns how many lines the log has: calls count twice, when they begin and when they return.
    pub fn log_len(&self) -> usize {
        self.log.lock().entries.len()
    }

    /// Returns the states of the recording so far that `plan` selects.
    pub fn crash_states(&self, plan: CrashPlan) -> CrashStates {
        CrashStates::new(self.recording(), plan)
    }

    /// Rebuilds one state by its id, for examining a failure again. The calls must have been the
    /// same. Returns `None` if the log has no such state.
    pub fn crash_state(&self, id: CrashId) -> Option<CrashState> {
        crash::rebuild(&self.recording(), id)
    }

    /// Drops the writes that no flush has covered, like a disk that can't write its cache: they are
    /// in no state from here on, and reads return the former contents. Calls that have not returned
    /// are not affected.
    pub fn forget(&self) {
        let mut log = self.log.lock();
        log.entries.push(LogEntry::Forgotten(self.disk));
        let recording = Recording { bases: log.bases.clone(), entries: log.entries.clone() };
        self.live.replace(crash::present_layer(&recording, self.disk));
    }

    /// Returns the device as it was at the start.
    pub fn base(&self) -> &D {
        &self.base
    }

    fn recording(&self) -> Recording {
        let log = self.log.lock();
        Recording { bases: log.bases.clone(), entries: log.entries.clone() }
    }

    /// Enters a change into the log and the live image.
    fn change(&self, start: u64, end: u64, data: ExtentData) {
        if start == end {
            return;
        }
        let number = {
            let mut log = self.log.lock();
            let disk = self.disk;
            log.entries.push(LogEntry::Change { disk, start, end, data: data.clone() });
            self.live.put(start, end, data);
            log.entries.len() - 1
        };
        self.returned(number);
    }

    /// Notes that a call returns. The log was unlocked in between: a flush of another thread may
    /// begin between the two lines, as on a busy disk, and then promises nothing about this call.
    fn returned(&self, number: usize) {
        self.log.lock().entries.push(LogEntry::Returned(number));
    }
}

impl<D: Device + 'static> Device for RecordingDevice<D> {
    fn name(&self) -> &str {
        self.base.name()
    }

    fn describe(&self) -> String {
        format!("recording over {}", self.base.describe())
    }

    fn size(&self) -> u64 {
        self.live.size()
    }

    fn block_size(&self) -> u32 {
        self.base.block_size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        CallRange::new(Operation::Read, offset, buf.len()).inside(self)?;
        self.live.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), Error> {
        CallRange::new(Operation::Write, offset, buf.len()).inside(self)?.in_blocks(self)?;
        self.change(offset, offset + buf.len() as u64, ExtentData::Bytes(buf.into(), 0));
        Ok(())
    }

    fn flush(&self) -> Result<(), Error> {
        let number = {
            let mut log = self.log.lock();
            log.entries.push(LogEntry::Flush(self.disk));
            log.entries.len() - 1
        };
        self.returned(number);
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), Error> {
        let range =
            CallRange { operation: Operation::Discard, offset, length: len }.inside(self)?;
        let (start, end) = range.whole_blocks(self.block_size());
        self.change(start, end, ExtentData::Fill(vfscale_block::DISCARDED));
        Ok(())
    }

    fn discards(&self) -> Option<Discards> {
        Some(Discards { granularity: self.block_size(), is_thin: true })
    }

    fn identity(&self) -> Option<[u8; 16]> {
        self.live.identity()
    }

    fn set_size(&self, size: u64) -> Result<(), Error> {
        let mut log = self.log.lock();
        self.live.set_size(size)?;
        log.entries.push(LogEntry::Resized { disk: self.disk, size });
        Ok(())
    }
}

impl<D: fmt::Debug> fmt::Debug for RecordingDevice<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let log = self.log.lock();
        f.debug_struct("RecordingDevice")
            .field("base", &self.base)
            .field("disk", &self.disk)
            .field("log", &log.entries.len())
            .field("marks", &log.marks)
            .finish()
    }
}

#[cfg(test)]
mod tests;
