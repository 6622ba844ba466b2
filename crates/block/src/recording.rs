//! A device that remembers what was done to it, and rebuilds what a crash might have left.
//!
//! # Purpose
//!
//! A volume is crash-safe if it recovers from *every* state that the promises of a device permit. A
//! [`RecordingDevice`] notes each write, discard and flush in order, with contents; [`CrashStates`]
//! then yields the images: after every prefix of the calls, and for the writes that no flush had
//! covered, with any of them missing, in any order, and torn ([`crash`]).
//!
//! A test tells the recording what it has promised by then ([`RecordingDevice::mark`]): each state
//! says how many marks preceded the crash, and the test compares what it recovers with them.
//!
//! # Several devices
//!
//! A file system may have its log on a device of its own, and each device has a cache of its own: what a
//! crash leaves of one says nothing about the other. Devices that record side by side
//! ([`RecordingDevice::beside`]) share one log, which is the clock: a flush covers the changes of its own
//! device, and a state has any part of what was pending on each of them at one moment.
//!
//! # Invariants
//!
//! * The device inside is the image at the start and is never written: all changes live in the
//!   recording, which is why states are cheap. So nobody else may write it either.
//! * The log has the calls in the order in which they began, and notes when they returned. A write is
//!   durable in a state if a flush that began after it had returned had itself returned by then.
//! * Bytes that were discarded read as [`DISCARDED`](crate::DISCARDED), at once: whoever relies on their old
//!   contents, or on zeros, is found out.
//! * A change of size is durable when it returns, as the trait says.
//! * What a device has forgotten ([`RecordingDevice::forget`]) is in no state any more, nor in the live
//!   image.
//!
//! # Locks
//!
//! `RecordingLog` guards the log, and is held while a call enters it and the live image, so that both
//! have the same order. That makes this device slower with many threads, and is its purpose.

use std::fmt;
use std::sync::Arc;

use vfscale_sync::Mutex;

use crate::cow::{CowDevice, Data};
use crate::device::Range;
use crate::{Device, Error, Operation};

pub mod crash;

pub use crash::{CrashId, CrashPlan, CrashState, CrashStates, Moment};

vfscale_sync::lock_class! {
    /// The log of a [`RecordingDevice`]; only the live image is locked under it.
    pub(crate) RecordingLog = ("recording_log", 64880);
}

/// One line of the log.
#[derive(Clone, Debug)]
pub(crate) enum Entry {
    /// A write, or a discard, of the bytes `start..end` of a device began.
    Change { disk: usize, start: u64, end: u64, data: Data },
    /// A flush of a device began.
    Flush(usize),
    /// The call whose line has this number returned.
    Returned(usize),
    /// The size of a device changed, from here on.
    Resized { disk: usize, size: u64 },
    /// A device lost what had returned and no flush had covered.
    Forgotten(usize),
    /// The test promised something.
    Mark,
}

/// What was recorded up to some moment. Cheap to clone: contents are shared.
#[derive(Clone, Debug)]
pub(crate) struct Recording {
    /// The image of each device at the start; the first is that which the log began with.
    pub(crate) bases: Vec<Arc<dyn Device>>,
    pub(crate) entries: Vec<Entry>,
}

#[derive(Debug, Default)]
struct Log {
    bases: Vec<Arc<dyn Device>>,
    entries: Vec<Entry>,
    marks: Vec<Arc<str>>,
}

/// A device that remembers what was done to it. See the [module](self).
///
/// Memory: what was written since the start, once, and about a hundred bytes for each call.
pub struct RecordingDevice<D> {
    base: Arc<D>,
    /// The image as its user sees it.
    live: CowDevice,
    /// Its number among those that share the log.
    disk: usize,
    log: Arc<Mutex<Log, RecordingLog>>,
}

impl<D: Device + 'static> RecordingDevice<D> {
    /// Starts recording with `base` as it is now. Nobody writes `base` any more.
    pub fn new(base: D) -> Self {
        Self::sharing(base, Arc::default())
    }

    /// Starts recording another device into the log of `first`: states have both of them, as they were at
    /// one moment. Blocks of the devices should have one size, for the largest is what is written atomically.
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

    /// Notes that the test has promised, or knows, something from here on, and returns how many marks
    /// there are now. Take it after the call that made it true.
    pub fn mark(&self, label: impl Into<Arc<str>>) -> usize {
        let mut log = self.log.lock();
        log.marks.push(label.into());
        log.entries.push(Entry::Mark);
        log.marks.len()
    }

    /// The labels of all marks, in order: those of a state are as many of the first as its
    /// [`marks`](CrashState::marks).
    pub fn marks(&self) -> Vec<Arc<str>> {
        self.log.lock().marks.clone()
    }

    /// How many lines the log has: calls count twice, when they begin and when they return.
    pub fn log_len(&self) -> usize {
        self.log.lock().entries.len()
    }

    /// Every state that `plan` asks for, of what has been recorded by now.
    pub fn crash_states(&self, plan: CrashPlan) -> CrashStates {
        CrashStates::new(self.recording(), plan)
    }

    /// One state, by the name that it had before: for looking at a failure again. The calls must
    /// have been the same. `None` if the log has no such state.
    pub fn crash_state(&self, id: CrashId) -> Option<CrashState> {
        crash::rebuild(&self.recording(), id)
    }

    /// Loses what was written and no flush has covered, as a disk does that can't write its cache: it is in
    /// no state from here on, and reads give what was there before. Calls that have not returned are not
    /// touched.
    pub fn forget(&self) {
        let mut log = self.log.lock();
        log.entries.push(Entry::Forgotten(self.disk));
        let recording = Recording { bases: log.bases.clone(), entries: log.entries.clone() };
        self.live.replace(crash::present(&recording, self.disk));
    }

    /// The device as it was at the start.
    pub fn base(&self) -> &D {
        &self.base
    }

    fn recording(&self) -> Recording {
        let log = self.log.lock();
        Recording { bases: log.bases.clone(), entries: log.entries.clone() }
    }

    /// Enters a change into the log and the live image.
    fn change(&self, start: u64, end: u64, data: Data) {
        if start == end {
            return;
        }
        let number = {
            let mut log = self.log.lock();
            let disk = self.disk;
            log.entries.push(Entry::Change { disk, start, end, data: data.clone() });
            self.live.put(start, end, data);
            log.entries.len() - 1
        };
        self.returned(number);
    }

    /// Notes that a call returns. The log was free meanwhile: a flush of another thread may begin
    /// between the two lines, as it may while a disk is busy, and then promises nothing about this call.
    fn returned(&self, number: usize) {
        self.log.lock().entries.push(Entry::Returned(number));
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
        Range::new(Operation::Read, offset, buf.len()).inside(self)?;
        self.live.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), Error> {
        Range::new(Operation::Write, offset, buf.len()).inside(self)?.in_blocks(self)?;
        self.change(offset, offset + buf.len() as u64, Data::Bytes(buf.into(), 0));
        Ok(())
    }

    fn flush(&self) -> Result<(), Error> {
        let number = {
            let mut log = self.log.lock();
            log.entries.push(Entry::Flush(self.disk));
            log.entries.len() - 1
        };
        self.returned(number);
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), Error> {
        let range = Range { operation: Operation::Discard, offset, length: len }.inside(self)?;
        let (start, end) = range.whole_blocks(self.block_size());
        self.change(start, end, Data::Fill(crate::DISCARDED));
        Ok(())
    }

    fn set_size(&self, size: u64) -> Result<(), Error> {
        let mut log = self.log.lock();
        self.live.set_size(size)?;
        log.entries.push(Entry::Resized { disk: self.disk, size });
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
