//! Storage that is reserved on the device: calls are refused, and the log never is.
//!
//! # Purpose
//!
//! A device that shares storage with others may have none for a write, also of a block that was
//! written before ([`Device::must_reserve`]). An error below the log shuts the volume down. So
//! everything that will be written is reserved at calls that can be refused:
//!
//! * the whole log and the superblocks before the first change ([`Credits::prepare`]);
//! * the home of each item of metadata, from the beginning of a transaction, with the most that it
//!   may log, until the item is written back;
//! * each dirty page (`page_cache/cache.rs`).
//!
//! # How homes are counted
//!
//! A transaction takes its worst case out of the *spare* blocks, which are *bound* from then on.
//! Nobody counts what it has really used. When nothing is spare, a thread
//! settles (`volume/settle.rs`): it adds up the blocks of transactions under way, of delayed
//! changes, and of all items that are not written back. The rest of the bound ones goes back to the
//! device, from which spare ones are reserved anew: what was bound may be spent, and nobody but the
//! device knows that. A block goes through these three in this order, and they are read in this
//! order, so none is missed.
//!
//! If the device refuses, all items are written home, which gives their blocks back. So a full pool
//! refuses a transaction only if it can't be reserved by itself. Transactions that free something
//! in the end, or write data back, also get the urgent part of the device's storage, and then the
//! *kept* blocks of the volume. While some of these are missing, calls that need more space are
//! refused.
//!
//! # Locks
//!
//! `CreditsLock` serializes threads that settle, and those that reserve the log.

use std::sync::Arc;

use vfscale_block::{Demand, Device};
use vfscale_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use vfscale_sync::percpu::PerCpuCounter;
use vfscale_sync::{Mutex, cpu};

use crate::base::fault::Fault;
use crate::base::ranks::CreditsLock;
use crate::base::reserve::reserve;

/// Blocks that are reserved together, so that few transactions ask the device.
pub(super) const BATCH: u64 = 256;
/// The most blocks that are kept for the transactions which write accepted data back, and for
/// removals: the largest of them, and half of it. With a small log, that is half of the log.
const KEPT_MAX: u64 = 384;
/// Superblocks, and the rows of blocks that they and the log are.
const SUPERBLOCKS: u64 = 3;

/// The account of reserved blocks. See the [module](self).
#[derive(Debug)]
pub(crate) struct Credits {
    pub(super) device: Arc<dyn Device>,
    pub(super) is_on: bool,
    /// The log and the superblocks.
    log: Demand,
    pub(super) is_prepared: AtomicBool,
    /// How many blocks are to be kept, and how many are there.
    kept_max: u64,
    kept: AtomicU64,
    pub(super) spare: AtomicU64,
    pub(super) bound: AtomicU64,
    /// Blocks of transactions that have begun, and of those that have ended.
    pub(super) begun: PerCpuCounter,
    pub(super) ended: PerCpuCounter,
    pub(super) settling: Mutex<(), CreditsLock>,
}

/// The blocks of a transaction under way.
#[derive(Debug)]
pub(super) struct TxCredit<'c> {
    credits: Option<&'c Credits>,
    blocks: u64,
}

impl Drop for TxCredit<'_> {
    fn drop(&mut self) {
        if let Some(credits) = self.credits {
            credits.ended.add(self.blocks as i64);
        }
    }
}

impl Credits {
    /// Creates the account of a volume on `device` with a log of `log_blocks` blocks. It is for
    /// nothing unless the device needs it and the volume `is_writable`.
    pub(super) fn new(device: Arc<dyn Device>, is_writable: bool, log_blocks: u64) -> Self {
        let slots = cpu::slots() as usize;
        Self {
            is_on: is_writable && device.must_reserve(),
            device,
            log: Demand { blocks: log_blocks + SUPERBLOCKS, rows: 1 + SUPERBLOCKS },
            is_prepared: AtomicBool::new(false),
            kept_max: (log_blocks / 2).min(KEPT_MAX),
            kept: AtomicU64::new(0),
            spare: AtomicU64::new(0),
            bound: AtomicU64::new(0),
            begun: PerCpuCounter::new(slots),
            ended: PerCpuCounter::new(slots),
            settling: Mutex::new(()),
        }
    }

    /// Returns whether the device needs reservations, and the volume can be written.
    pub(super) fn is_on(&self) -> bool {
        self.is_on
    }

    /// Reserves the log and the superblocks, unless that was done.
    ///
    /// May block for the I/O.
    ///
    /// # Errors
    /// [`Fault::NoSpace`], and those of the device.
    #[inline]
    pub(super) fn prepare(&self) -> Result<(), Fault> {
        if !self.is_on || self.is_prepared.load(Ordering::Acquire) {
            return Ok(());
        }
        self.prepare_now()
    }

    #[cold]
    fn prepare_now(&self) -> Result<(), Fault> {
        let _alone = self.settling.lock();
        if !self.is_prepared.load(Ordering::Acquire) {
            reserve(&*self.device, self.log, false)?;
            if let Err(fault) = self.fill_kept(false) {
                let kept = self.kept.swap(0, Ordering::AcqRel);
                self.device.unreserve(Demand::anywhere(kept));
                self.device.unreserve(self.log);
                return Err(fault);
            }
            self.is_prepared.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Counts `blocks` blocks as those of a transaction, until the result is dropped.
    pub(super) fn begin(&self, blocks: u64) -> TxCredit<'_> {
        let credits = self.is_on.then_some(self);
        if self.is_on {
            self.begun.add(blocks as i64);
        }
        TxCredit { credits, blocks }
    }

    /// Binds spare blocks. Returns false if there are fewer.
    pub(super) fn bind(&self, blocks: u64) -> bool {
        let less = |spare: u64| spare.checked_sub(blocks);
        let is_bound = self.spare.fetch_update(Ordering::AcqRel, Ordering::Acquire, less).is_ok();
        if is_bound {
            self.bound.fetch_add(blocks, Ordering::AcqRel);
        }
        is_bound
    }

    /// Reserves `extra` blocks more than `blocks`, and binds these.
    pub(super) fn grow(&self, blocks: u64, extra: u64, is_urgent: bool) -> Result<(), Fault> {
        reserve(&*self.device, Demand::anywhere(blocks + extra), is_urgent)?;
        self.bound.fetch_add(blocks, Ordering::AcqRel);
        self.spare.fetch_add(extra, Ordering::AcqRel);
        Ok(())
    }

    /// Reserves what is missing of the kept blocks, or as many of them as possible. The caller
    /// holds `CreditsLock`.
    pub(super) fn fill_kept(&self, is_urgent: bool) -> Result<(), Fault> {
        let mut missing = self.kept_max.saturating_sub(self.kept.load(Ordering::Acquire));
        let mut some = missing;
        while some > 0 {
            match reserve(&*self.device, Demand::anywhere(some), is_urgent) {
                Ok(()) => {
                    self.kept.fetch_add(some, Ordering::AcqRel);
                    missing -= some;
                    some = some.min(missing);
                }
                Err(Fault::NoSpace) => some /= 2,
                Err(fault) => return Err(fault),
            }
        }
        if missing == 0 { Ok(()) } else { Err(Fault::NoSpace) }
    }

    /// Returns whether calls that need more space may be accepted: the kept blocks are there.
    pub(super) fn is_roomy(&self) -> bool {
        !self.is_on || self.kept.load(Ordering::Acquire) == self.kept_max
    }

    /// Binds kept blocks. Returns false if there are fewer.
    pub(super) fn bind_kept(&self, blocks: u64) -> bool {
        let less = |kept: u64| kept.checked_sub(blocks);
        let is_bound = self.kept.fetch_update(Ordering::AcqRel, Ordering::Acquire, less).is_ok();
        if is_bound {
            self.bound.fetch_add(blocks, Ordering::AcqRel);
        }
        is_bound
    }
}

#[cfg(test)]
mod tests;
