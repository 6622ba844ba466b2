//! The volume's part in the order in which changes become durable.
//!
//! # Why no data is missed
//!
//! A thread that has written data counts the write; a flush covers the data that was counted before
//! the flush began. A thread that needs data durable reads the count, and waits for a flush that
//! began after this read. A flush that the checkpoint of another thread has begun earlier does not
//! suffice; but a thread whose data an earlier flush has covered does not wait. A flush that fails
//! covers nothing: the threads that wait for it flush themselves, and each gets the error of its
//! own flush.
//!
//! Two flushes may overlap ([`FLUSHES_MAX`]). Each covers what was counted before it began itself,
//! in whichever order they end, and the durable count only grows. So a thread that arrives just
//! after a flush has begun does not wait for its end, and then as long again for its own.
//!
//! The flush at the end of a checkpoint is one of them, if the log is on the same device. So a
//! thread whose data was written while another one pushed the log needs no flush of its own.

use std::fmt;
use std::sync::{Arc, OnceLock};

use vfscale_block::Device;
use vfscale_journal::{Delayed, Durable, Hooks, Known};
use vfscale_sync::atomic::{AtomicU64, Ordering};
use vfscale_sync::percpu_arc::Kept;
use vfscale_sync::{Condvar, Mutex};

use super::copies;
use super::known::{known, seen};
use crate::base::fault::Fault;
use crate::base::ranks::{DataFlush, SuperblockLock};
use crate::buffer::WriteQueue;
use crate::format::superblock::Superblock;

/// Number of flushes that may overlap. More threads share the next one.
const FLUSHES_MAX: u32 = 2;

/// A writer of the delayed changes of groups. `Send` and `Sync`.
pub(super) trait DelayedWork: fmt::Debug + Send + Sync {
    /// Writes the delayed changes of all groups into their trees, one commit for each group.
    /// Transactions delay nothing more until [`ended`](Self::ended).
    ///
    /// # Errors
    /// The errors of the device and the log, and damage: the log has to be shut down.
    fn run(&self, delayed: &dyn Delayed) -> Result<(), Fault>;

    /// Returns whether there are delayed changes. Exact while no commit is in progress.
    fn is_any(&self) -> bool;

    /// Notes that the context has ended, with so many items.
    fn ended(&self, items: usize);
}

/// The callbacks of a volume's log.
#[derive(Debug)]
pub(super) struct VolumeHooks {
    device: Arc<dyn Device>,
    /// The blocks of inodes that wait for write-back. Set once the cache exists.
    write_queue: OnceLock<Kept<WriteQueue>>,
    /// The writer of delayed changes of groups. Set once the volume is open.
    delayed: OnceLock<Box<dyn DelayedWork>>,
    /// The superblock, which records the state of the log. Set once the volume is open.
    superblock: OnceLock<Arc<Mutex<Superblock, SuperblockLock>>>,
    /// The number of writes of data, and the number of these that are durable.
    written: AtomicU64,
    flushed: AtomicU64,
    /// Whether the log is on the device as well.
    log_is_here: bool,
    /// The number of writes of data when the last flush of the log began. Only the thread that
    /// pushes accesses it.
    log_covers: AtomicU64,
    /// Number of flushes under way.
    flushing: Mutex<u32, DataFlush>,
    flush_ended: Condvar,
}

impl VolumeHooks {
    /// `log_is_here` means that the log is on `device` as well.
    pub(super) fn new(device: Arc<dyn Device>, log_is_here: bool) -> Self {
        Self {
            device,
            write_queue: OnceLock::new(),
            delayed: OnceLock::new(),
            superblock: OnceLock::new(),
            written: AtomicU64::new(0),
            flushed: AtomicU64::new(0),
            log_is_here,
            log_covers: AtomicU64::new(0),
            flushing: Mutex::new(0),
            flush_ended: Condvar::new(),
        }
    }

    /// Sets the list of inode blocks that wait for write-back.
    pub(super) fn set_write_queue(&self, write_queue: Kept<WriteQueue>) {
        // A volume has one cache, so this is the only call.
        let _ = self.write_queue.set(write_queue);
    }

    /// Sets the writer of delayed changes of groups.
    pub(super) fn set_delayed(&self, delayed: Box<dyn DelayedWork>) {
        // A volume is opened once, so this is the only call.
        let _ = self.delayed.set(delayed);
    }

    /// Sets the superblock.
    pub(super) fn set_superblock(&self, superblock: Arc<Mutex<Superblock, SuperblockLock>>) {
        // A volume is opened once, so this is the only call.
        let _ = self.superblock.set(superblock);
    }

    /// Counts a write of data; returns the number of all of them.
    pub(super) fn mark_data_written(&self) -> u64 {
        self.written.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Returns a count of the data written so far, for [`flush_data`](Self::flush_data).
    pub(super) fn data_written(&self) -> u64 {
        self.written.load(Ordering::SeqCst)
    }

    /// Makes the data durable that was written up to the count `wanted`.
    pub(super) fn flush_data(&self, wanted: u64) -> Result<(), vfscale_block::Error> {
        let is_flushed = || self.flushed.load(Ordering::SeqCst) >= wanted;
        if is_flushed() {
            return Ok(());
        }
        let mut flushing = self.flushing.lock();
        while *flushing == FLUSHES_MAX && !is_flushed() {
            flushing = self.flush_ended.wait(flushing);
        }
        if is_flushed() {
            return Ok(());
        }
        *flushing += 1;
        drop(flushing);
        let mut ending = EndFlush { hooks: self, covered: 0 };
        let covered = self.data_written();
        self.device.flush()?;
        ending.covered = covered;
        Ok(())
    }
}

/// A flush under way. Its drop, after success or failure, ends it.
struct EndFlush<'h> {
    hooks: &'h VolumeHooks,
    /// The count of data that the flush has made durable.
    covered: u64,
}

impl Drop for EndFlush<'_> {
    fn drop(&mut self) {
        let mut flushing = self.hooks.flushing.lock();
        self.hooks.flushed.fetch_max(self.covered, Ordering::SeqCst);
        *flushing -= 1;
        self.hooks.flush_ended.notify_all();
    }
}

impl Hooks for VolumeHooks {
    fn run_delayed(&self, delayed: &dyn Delayed) -> vfscale_journal::Result<()> {
        self.delayed.get().map_or(Ok(()), |work| Ok(work.run(delayed)?))
    }

    fn has_delayed(&self) -> bool {
        self.delayed.get().is_some_and(|work| work.is_any())
    }

    fn context_ended(&self, items: usize) {
        if let Some(work) = self.delayed.get() {
            work.ended(items);
        }
    }

    /// Records that the volume is mounted, and that its log is not closed any more; in memory only,
    /// if whoever reads the superblock on the device looks for records of the log anyway.
    fn epoch_begun(&self, now: Known) -> vfscale_journal::Result<()> {
        let Some(superblock) = self.superblock.get() else { return Ok(()) };
        let mut superblock = superblock.lock();
        let is_new = known(&superblock).is_new;
        superblock.note_mount(Some(seen(now)));
        if is_new { Ok(()) } else { Ok(copies::write(&*self.device, &mut superblock)?) }
    }

    fn before_commit_record(&self, _sequence: u64) -> vfscale_journal::Result<()> {
        Ok(self.flush_data(self.data_written())?)
    }

    fn flush_begins(&self) {
        self.log_covers.store(self.data_written(), Ordering::Relaxed);
    }

    fn on_durable(&self, _checkpoint: Durable) {
        if self.log_is_here {
            let covered = self.log_covers.load(Ordering::Relaxed);
            self.flushed.fetch_max(covered, Ordering::SeqCst);
        }
    }

    fn flush_home(&self) -> vfscale_journal::Result<()> {
        if let Some(write_queue) = self.write_queue.get() {
            write_queue.write_all()?;
        }
        let covered = self.data_written();
        self.device.flush()?;
        self.flushed.fetch_max(covered, Ordering::SeqCst);
        Ok(())
    }
}
