//! The volume's part in the order of what becomes durable.
//!
//! # Why no data is missed
//!
//! Whoever has written data counts it; a flush covers what was counted before it began. So whoever
//! wants data to be durable looks how much has been counted, and waits for a flush that began after
//! that: the one that another thread's checkpoint is making right now does not count, but neither
//! does anybody wait who has been covered already. A flush that fails covers nothing: those who
//! wait for it flush themselves, and get the error themselves.

use std::sync::{Arc, OnceLock};

use vfscale_block::Device;
use vfscale_journal::Hooks;
use vfscale_sync::atomic::{AtomicU64, Ordering};
use vfscale_sync::percpu_arc::Kept;
use vfscale_sync::{Condvar, Mutex};

use crate::base::ranks::DataFlush;
use crate::buffer::WriteQueue;

/// The callbacks of a volume's log.
#[derive(Debug)]
pub(super) struct VolumeHooks {
    device: Arc<dyn Device>,
    /// Where blocks of inodes wait to be written; there once there are inodes.
    write_queue: OnceLock<Kept<WriteQueue>>,
    /// How many times data has been written, and how many of these are durable.
    written: AtomicU64,
    flushed: AtomicU64,
    is_flushing: Mutex<bool, DataFlush>,
    flush_ended: Condvar,
}

impl VolumeHooks {
    pub(super) fn new(device: Arc<dyn Device>) -> Self {
        Self {
            device,
            write_queue: OnceLock::new(),
            written: AtomicU64::new(0),
            flushed: AtomicU64::new(0),
            is_flushing: Mutex::new(false),
            flush_ended: Condvar::new(),
        }
    }

    /// Sets the list of inode blocks that wait for write-back.
    pub(super) fn set_write_queue(&self, write_queue: Kept<WriteQueue>) {
        // There is one cache of a volume.
        let _ = self.write_queue.set(write_queue);
    }

    pub(super) fn mark_data_written(&self) {
        self.written.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns a count of the data written so far, for [`flush_data`](Self::flush_data).
    pub(super) fn data_written(&self) -> u64 {
        self.written.load(Ordering::SeqCst)
    }

    /// Makes what was written durable, up to `wanted`.
    pub(super) fn flush_data(&self, wanted: u64) -> Result<(), vfscale_block::Error> {
        let is_flushed = || self.flushed.load(Ordering::SeqCst) >= wanted;
        if is_flushed() {
            return Ok(());
        }
        let mut is_flushing = self.is_flushing.lock();
        while *is_flushing {
            is_flushing = self.flush_ended.wait(is_flushing);
        }
        if is_flushed() {
            return Ok(());
        }
        *is_flushing = true;
        drop(is_flushing);
        let mut ending = EndFlush { hooks: self, covered: 0 };
        let covered = self.data_written();
        self.device.flush()?;
        ending.covered = covered;
        Ok(())
    }
}

/// A flush that ends, well or not.
struct EndFlush<'h> {
    hooks: &'h VolumeHooks,
    /// The count of data that the flush has made durable.
    covered: u64,
}

impl Drop for EndFlush<'_> {
    fn drop(&mut self) {
        let mut is_flushing = self.hooks.is_flushing.lock();
        self.hooks.flushed.fetch_max(self.covered, Ordering::SeqCst);
        *is_flushing = false;
        self.hooks.flush_ended.notify_all();
    }
}

impl Hooks for VolumeHooks {
    fn before_commit_record(&self, _sequence: u64) -> vfscale_journal::Result<()> {
        Ok(self.flush_data(self.data_written())?)
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
