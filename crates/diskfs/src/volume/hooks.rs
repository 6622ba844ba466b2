//! The volume's part in the order of what becomes durable.
//!
//! # Why no data is missed
//!
//! Whoever has written data sets a flag; whoever flushes takes it back before the flush begins. So
//! a flag that is found set will be taken back by a flush that has not begun yet, and a writer may
//! leave it as it is; a flag that is not set after a flush was waited for says that all that was
//! marked before is durable. A flush that fails sets the flag again before anybody who waits for it
//! goes on: those flush themselves, and get the error themselves.

use std::sync::Arc;

use vfscale_block::Device;
use vfscale_journal::Hooks;
use vfscale_sync::atomic::{AtomicBool, Ordering};
use vfscale_sync::{Condvar, Mutex};

use crate::ranks::DataFlush;

/// What the log of a volume calls.
#[derive(Debug)]
pub(super) struct VolumeHooks {
    device: Arc<dyn Device>,
    /// Data was written that no flush has covered.
    is_written: AtomicBool,
    is_flushing: Mutex<bool, DataFlush>,
    flushed: Condvar,
}

impl VolumeHooks {
    pub(super) fn new(device: Arc<dyn Device>) -> Self {
        Self {
            device,
            is_written: AtomicBool::new(false),
            is_flushing: Mutex::new(false),
            flushed: Condvar::new(),
        }
    }

    pub(super) fn mark_data_written(&self) {
        // Looked at first, so that many writers do not pass the line around.
        if !self.is_written.load(Ordering::SeqCst) {
            self.is_written.store(true, Ordering::SeqCst);
        }
    }

    pub(super) fn flush_data(&self) -> Result<(), vfscale_block::Error> {
        let mut is_flushing = self.is_flushing.lock();
        loop {
            if *is_flushing {
                is_flushing = self.flushed.wait(is_flushing);
            } else if self.is_written.swap(false, Ordering::SeqCst) {
                break;
            } else {
                return Ok(());
            }
        }
        *is_flushing = true;
        drop(is_flushing);
        let mut ending = EndFlush { hooks: self, has_failed: true };
        let flushed = self.device.flush();
        ending.has_failed = flushed.is_err();
        flushed
    }
}

/// A flush that ends, well or not.
struct EndFlush<'h> {
    hooks: &'h VolumeHooks,
    has_failed: bool,
}

impl Drop for EndFlush<'_> {
    fn drop(&mut self) {
        let mut is_flushing = self.hooks.is_flushing.lock();
        if self.has_failed {
            self.hooks.is_written.store(true, Ordering::SeqCst);
        }
        *is_flushing = false;
        self.hooks.flushed.notify_all();
    }
}

impl Hooks for VolumeHooks {
    fn before_commit_record(&self, _sequence: u64) -> vfscale_journal::Result<()> {
        Ok(self.flush_data()?)
    }

    fn flush_home(&self) -> vfscale_journal::Result<()> {
        Ok(self.device.flush()?)
    }
}
