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
//! * each dirty page, with two blocks for what its write-back changes: its inode, and a leaf of the
//!   extents.
//!
//! # How homes are counted
//!
//! A transaction takes its worst case out of the *spare* blocks, which are *bound* from then on.
//! Nobody counts what it has really used. When nothing is spare, a thread
//! settles (`volume/settle.rs`): it adds up the blocks of transactions under way, of delayed
//! changes, and of all items that are not written back. The rest of the bound ones is renewed on
//! the device: what writes have used of them is gone, and the others are reserved anew. A block
//! goes through these three in this order, and they are read in this order, so none is missed, and
//! no transaction has to wait.
//!
//! # Near the limit
//!
//! If the device refuses, threads begin one after the other: each waits until no other transaction
//! is under way, and has all items written home, which gives their blocks back. It reserves only
//! what the spare blocks lack. A refusal counts only if no other transaction was there from before
//! the attempt until after it, and no other thread settled during it: what was on its way back at
//! that time would not have been found. So a full pool refuses a transaction only if it can't be
//! reserved by itself, or if others have begun during each of a thousand attempts: callers get an
//! answer, however busy those are that need no space.
//!
//! Two more sums were reserved with the log, and are filled first whenever something comes back:
//!
//! * blocks *kept* for transactions that write accepted data back. One of these at a time lends the
//!   most that it may need; what it has really used is covered by the two blocks of each page,
//!   which are kept as well;
//! * blocks set *aside* for transactions that free something in the end. They also get the urgent
//!   part of the device's storage.
//!
//! While some of these are missing, calls that need more space are refused.
//!
//! # Locks
//!
//! `CreditsTight` serializes the threads that begin near the limit; they wait for other
//! transactions with it, which therefore never wait for it: a thread with a transaction begins no
//! other. `CreditsLock` serializes threads that settle. `CreditsWake` is a leaf.

use std::ops::Range;
use std::sync::Arc;

use vfscale_block::Device;
use vfscale_sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use vfscale_sync::lock::assert_held;
use vfscale_sync::percpu::PerCpuCounter;
use vfscale_sync::{Condvar, Mutex, MutexGuard, cpu};

use crate::base::fault::Fault;
use crate::base::ranks::{CreditsLock, CreditsTight, CreditsWake};
use crate::base::reserve::{ReservePages, fault_of, reserve};

/// Blocks that are reserved together, so that few transactions ask the device.
pub(super) const BATCH: u64 = 256;
/// The most blocks that are kept for write-back, without those of pages, and as many are set aside
/// for removals: the largest of their transactions has fewer. With a small log, half of the log.
const SUM_MAX: u64 = 192;
/// Blocks that the write-back of a page may change for the first time.
const PAGE_CHANGES: u64 = 2;

/// The reason why a transaction is begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A call that may be refused.
    Growth,
    /// A change that frees space in the end.
    Removal,
    /// Write-back of what was accepted.
    WriteBack,
}

/// Blocks for one purpose.
#[derive(Debug)]
pub(super) struct Sum {
    /// How many there should be, and how many are there.
    wanted: AtomicU64,
    blocks: AtomicU64,
}

impl Sum {
    fn new(wanted: u64) -> Self {
        Self { wanted: wanted.into(), blocks: AtomicU64::new(0) }
    }

    /// Returns how many blocks are missing.
    pub(super) fn missing(&self) -> u64 {
        let wanted = self.wanted.load(Ordering::Acquire);
        wanted.saturating_sub(self.blocks.load(Ordering::Acquire))
    }

    pub(super) fn add(&self, blocks: u64) {
        self.blocks.fetch_add(blocks, Ordering::AcqRel);
    }

    /// Takes blocks. Returns false if there are fewer.
    fn take(&self, blocks: u64) -> bool {
        let less = |there: u64| there.checked_sub(blocks);
        self.blocks.fetch_update(Ordering::AcqRel, Ordering::Acquire, less).is_ok()
    }

    /// Takes those that are too many. Returns their number.
    fn take_excess(&self) -> u64 {
        let wanted = self.wanted.load(Ordering::Acquire);
        let less = |there: u64| (there > wanted).then_some(wanted);
        let before = self.blocks.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
        before.map_or(0, |before| before - wanted)
    }
}

/// The account of reserved blocks. See the [module](self).
#[derive(Debug)]
pub(crate) struct Credits {
    pub(super) device: Arc<dyn Device>,
    is_on: AtomicBool,
    /// How many blocks are kept without those of pages.
    kept_least: u64,
    /// The log and the superblocks, in bytes.
    fixed: Vec<Range<u64>>,
    pub(super) is_prepared: AtomicBool,
    pub(super) kept: Sum,
    pub(super) aside: Sum,
    pub(super) spare: AtomicU64,
    pub(super) bound: AtomicU64,
    /// Blocks of transactions that have begun, and of those that have ended.
    pub(super) begun: PerCpuCounter,
    pub(super) ended: PerCpuCounter,
    pub(super) settling: Mutex<(), CreditsLock>,
    pub(super) tight: Mutex<(), CreditsTight>,
    is_awaited: AtomicBool,
    wake: Mutex<(), CreditsWake>,
    woken: Condvar,
}

/// The blocks of a transaction under way.
#[derive(Debug)]
pub(super) struct TxCredit<'c> {
    credits: Option<&'c Credits>,
    blocks: u64,
}

impl TxCredit<'_> {
    /// Returns whether the transaction was counted.
    pub(super) fn is_counted(&self) -> bool {
        self.credits.is_some()
    }
}

impl Drop for TxCredit<'_> {
    fn drop(&mut self) {
        if let Some(credits) = self.credits {
            credits.end(self.blocks);
        }
    }
}

impl Credits {
    /// Creates the account of a volume on `device` whose log and superblocks are at `fixed`, in
    /// bytes, the log with `log_blocks` blocks. It is for nothing unless the device needs it and
    /// the volume `is_writable`.
    pub(super) fn new(
        device: Arc<dyn Device>,
        is_writable: bool,
        fixed: Vec<Range<u64>>,
        log_blocks: u64,
    ) -> Self {
        let slots = cpu::most_slots() as usize;
        let sum = (log_blocks / 2).min(SUM_MAX);
        Self {
            is_on: AtomicBool::new(is_writable && device.must_reserve()),
            kept_least: sum,
            device,
            fixed,
            is_prepared: AtomicBool::new(false),
            kept: Sum::new(sum),
            aside: Sum::new(sum),
            spare: AtomicU64::new(0),
            bound: AtomicU64::new(0),
            begun: PerCpuCounter::new(slots),
            ended: PerCpuCounter::new(slots),
            settling: Mutex::new(()),
            tight: Mutex::new(()),
            is_awaited: AtomicBool::new(false),
            wake: Mutex::new(()),
            woken: Condvar::new(),
        }
    }

    /// Returns whether the device needs reservations, and the volume can be written.
    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Acquire)
    }

    /// Asks the device again whether it needs reservations. The volume can be written, and no
    /// transaction is under way; one that has come before it waits has no credit, and begins again.
    pub(super) fn look_again(&self) {
        if self.device.must_reserve() {
            self.is_on.store(true, Ordering::Release);
        }
    }

    /// Reserves the log and the superblocks, unless that was done.
    ///
    /// May block for the I/O.
    ///
    /// # Errors
    /// [`Fault::NoSpace`], [`Fault::Limit`], and those of the device.
    #[inline]
    pub(super) fn prepare(&self) -> Result<(), Fault> {
        if !self.is_on() || self.is_prepared.load(Ordering::Acquire) {
            return Ok(());
        }
        self.prepare_now()
    }

    #[cold]
    fn prepare_now(&self) -> Result<(), Fault> {
        let alone = self.settling.lock();
        if !self.is_prepared.load(Ordering::Acquire) {
            self.fill_all(&alone, || self.device.reserve_ranges(&self.fixed).map_err(fault_of))?;
            self.is_prepared.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Reserves what is missing of the sums for write-back and removals, and does `more`; or
    /// neither.
    ///
    /// # Errors
    /// [`Fault::NoSpace`], [`Fault::Limit`], those of the device and of `more`.
    pub(super) fn fill_all(
        &self,
        _alone: &MutexGuard<'_, (), CreditsLock>,
        more: impl FnOnce() -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let (kept, aside) = (self.kept.missing(), self.aside.missing());
        reserve(&*self.device, kept + aside, false)?;
        more().inspect_err(|_| self.device.unreserve(kept + aside))?;
        self.kept.add(kept);
        self.aside.add(aside);
        Ok(())
    }

    /// Counts `blocks` blocks as those of a transaction, until the result is dropped.
    pub(super) fn begin(&self, blocks: u64) -> TxCredit<'_> {
        let credits = self.is_on().then_some(self);
        if credits.is_some() {
            self.begun.add(blocks as i64);
        }
        TxCredit { credits, blocks }
    }

    fn end(&self, blocks: u64) {
        self.ended.add(blocks as i64);
        // Before the look: the thread that waits looks at the counts after it has said so.
        fence(Ordering::SeqCst);
        if self.is_awaited.load(Ordering::Relaxed) {
            let _wake = self.wake.lock();
            self.woken.notify_all();
        }
    }

    /// Returns the blocks of transactions under way; those that end during the call may be counted.
    pub(super) fn active(&self) -> u64 {
        let ended = self.ended.sum();
        u64::try_from(self.begun.sum() - ended).unwrap_or(0)
    }

    /// Returns how many blocks transactions have begun with: none has begun between two calls with
    /// the same result.
    pub(super) fn begun(&self) -> i64 {
        self.begun.sum()
    }

    /// Waits until no transaction is under way, at one moment during the call.
    pub(super) fn wait_for_others(&self) {
        assert_held::<CreditsTight>();
        self.is_awaited.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        drop(self.woken.wait_while(self.wake.lock(), |()| self.active() > 0));
        self.is_awaited.store(false, Ordering::Relaxed);
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
    pub(super) fn grow(&self, blocks: u64, extra: u64) -> Result<(), Fault> {
        reserve(&*self.device, blocks + extra, false)?;
        self.bound.fetch_add(blocks, Ordering::AcqRel);
        self.spare.fetch_add(extra, Ordering::AcqRel);
        Ok(())
    }

    /// Reserves the blocks that are missing among the spare ones, and binds all. Returns false if
    /// another transaction has bound some of them meanwhile.
    pub(super) fn complete(&self, blocks: u64, is_urgent: bool) -> Result<bool, Fault> {
        let missing = blocks.saturating_sub(self.spare.load(Ordering::Acquire));
        if missing > 0 {
            reserve(&*self.device, missing, is_urgent)?;
            self.spare.fetch_add(missing, Ordering::AcqRel);
        }
        Ok(self.bind(blocks))
    }

    /// Binds blocks that are there for `purpose`. Returns false if there are fewer.
    pub(super) fn bind_for(&self, purpose: Purpose, blocks: u64) -> bool {
        let is_bound = match purpose {
            Purpose::Growth => false,
            Purpose::Removal => self.aside.take(blocks),
            Purpose::WriteBack => self.kept.take(blocks),
        };
        if is_bound {
            self.bound.fetch_add(blocks, Ordering::AcqRel);
        }
        is_bound
    }

    /// Reserves what is missing of a sum, or as much of it as possible. A lack is noticed by the
    /// next call that needs it.
    pub(super) fn fill(&self, sum: &Sum, is_urgent: bool) {
        let mut missing = sum.missing();
        let mut some = missing;
        while some > 0 {
            match reserve(&*self.device, some, is_urgent) {
                Ok(()) => {
                    sum.add(some);
                    missing -= some;
                    some = some.min(missing);
                }
                Err(_) => some /= 2,
            }
        }
    }

    /// Returns whether calls that need more space may be accepted: nothing is missing that others
    /// rely on.
    pub(super) fn is_roomy(&self) -> bool {
        !self.is_on() || self.kept.missing() == 0 && self.aside.missing() == 0
    }
}

impl ReservePages for Credits {
    fn is_on(&self) -> bool {
        self.is_on()
    }

    fn reserve_pages(&self, pages: u64, is_urgent: bool) -> Result<(), Fault> {
        let changes = pages * PAGE_CHANGES;
        match reserve(&*self.device, pages + changes, is_urgent) {
            Err(fault) if fault.is_refusal() && is_urgent && self.aside.take(pages + changes) => {}
            reserved => reserved?,
        }
        self.kept.wanted.fetch_add(changes, Ordering::AcqRel);
        self.kept.add(changes);
        Ok(())
    }

    fn unreserve_pages(&self, pages: u64) {
        // Pages that were dirty before the device needed reservations have nothing to give back.
        let least = self.kept_least;
        let less = |wanted: u64| Some(wanted.saturating_sub(pages * PAGE_CHANGES).max(least));
        let wanted = &self.kept.wanted;
        let before = wanted.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
        let had = before.map_or(0, |before| (before - least) / PAGE_CHANGES).min(pages);
        self.device.unreserve(had + self.kept.take_excess());
    }
}

#[cfg(test)]
mod tests;
