//! The credits of transactions: taking them, and finding those that are not needed any more. See
//! [`credits`](super::credits).

use vfscale_journal::Reservation;
use vfscale_sync::MutexGuard;
use vfscale_sync::atomic::Ordering;

use super::credits::{BATCH, Purpose, TxCredit};
use super::tx::TxReservation;
use super::{Metadata, Volume};
use crate::base::fault::Fault;
use crate::base::ranks::CreditsLock;
use crate::base::reserve::reserve;
use crate::format::inode::RECORD_BYTES;

/// Most attempts of a transaction to be the only one near the limit, beside others that never end.
const ATTEMPTS_MAX: u32 = 1000;

impl Metadata {
    /// Returns the credit of a transaction that writes delayed changes, which others have reserved.
    pub(super) fn credit_of_delayed(&self) -> TxCredit<'_> {
        let credits = self.credits();
        let blocks = if credits.is_on() { self.delayed_blocks() } else { 0 };
        credits.begin(blocks)
    }

    /// Returns the most blocks that delayed changes may dirty. Each directory logs its inode, which
    /// takes less space than a block, and at least one block.
    fn delayed_blocks(&self) -> u64 {
        let pair = Reservation::item_bytes(RECORD_BYTES as u64);
        (self.groups().delayed().log_bytes() + self.dirs().log_bytes()).div_ceil(2 * pair)
    }
}

/// Blocks that are reserved on the device for writes outside of the log, until it is dropped.
#[derive(Debug)]
#[must_use = "a reservation that is dropped is given back"]
pub(crate) struct Reserved<'v> {
    volume: &'v Volume,
    blocks: u64,
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.volume.credits().device.unreserve(self.blocks);
    }
}

impl Volume {
    /// Reserves on the device what a transaction may write home. Does nothing if the device needs
    /// no reservations. The caller has no transaction.
    ///
    /// # Errors
    /// [`Fault::NoSpace`], [`Fault::Limit`], and those of the device and the log.
    #[inline]
    pub(super) fn credit(
        &self,
        need: TxReservation,
        purpose: Purpose,
    ) -> Result<TxCredit<'_>, Fault> {
        let credits = self.credits();
        if credits.is_on() { self.credit_now(need, purpose) } else { Ok(credits.begin(0)) }
    }

    fn credit_now(&self, need: TxReservation, purpose: Purpose) -> Result<TxCredit<'_>, Fault> {
        let credits = self.credits();
        credits.prepare()?;
        if purpose == Purpose::Growth {
            self.roomy()?;
        }
        let blocks = u64::from(need.log_blocks) + need.space;
        // Before it is bound: see the module.
        let credit = credits.begin(blocks);
        if credits.bind(blocks) {
            return Ok(credit);
        }
        self.settle_without(blocks);
        if credits.bind(blocks) || credits.grow(blocks, BATCH).is_ok() {
            return Ok(credit);
        }
        drop(credit);
        self.credit_near_limit(blocks, purpose)
    }

    /// Binds blocks when the device has too few for all: alone if it must be.
    #[cold]
    fn credit_near_limit(&self, blocks: u64, purpose: Purpose) -> Result<TxCredit<'_>, Fault> {
        let credits = self.credits();
        let _alone = credits.tight.lock();
        let (mut home, mut attempts) = (None, 0);
        loop {
            attempts += 1;
            // Others may have what it lacks, at any moment of the attempt.
            let begun = credits.begun();
            let was_alone = credits.active() == 0;
            let had_changes = self.has_changes();
            let credit = credits.begin(blocks);
            let refusal = match self.bind_near_limit(blocks, purpose) {
                Err(fault) if fault.is_refusal() => fault,
                bound => return bound.map(|()| credit),
            };
            drop(credit);
            let others = !was_alone || credits.begun() != begun + blocks as i64;
            if others && attempts < ATTEMPTS_MAX {
                credits.wait_for_others();
            } else if others {
                // They have got along with what is spare, and may go on for ever.
                return Err(refusal);
            } else if !had_changes || home == Some(begun) {
                return Err(refusal);
            } else {
                home = Some(credits.begun());
                self.write_home()?;
            }
        }
    }

    /// Settles and binds blocks, without another thread that settles in between.
    fn bind_near_limit(&self, blocks: u64, purpose: Purpose) -> Result<(), Fault> {
        let credits = self.credits();
        let alone = credits.settling.lock();
        self.settle_alone(&alone, blocks);
        match credits.complete(blocks, purpose != Purpose::Growth) {
            Ok(true) => Ok(()),
            Err(fault) if !fault.is_refusal() => Err(fault),
            _ if credits.bind_for(purpose, blocks) => Ok(()),
            Ok(false) => Err(Fault::NoSpace),
            Err(refusal) => Err(refusal),
        }
    }

    /// Checks that a call which needs more space may be accepted.
    ///
    /// # Errors
    /// [`Fault::NoSpace`], if the device lacks storage for writing back what was accepted before,
    /// or for removals.
    pub(crate) fn roomy(&self) -> Result<(), Fault> {
        let credits = self.credits();
        if credits.is_roomy() {
            return Ok(());
        }
        self.settle_credits();
        if !credits.is_roomy() && self.has_items() {
            self.make_room()?;
        }
        if credits.is_roomy() {
            Ok(())
        } else {
            credits.fill_all(&credits.settling.lock(), || Ok(()))
        }
    }

    /// Writes all items home and settles: what they had reserved comes back. Does nothing if the
    /// device needs no reservations. Blocks for the I/O. The caller has no transaction.
    ///
    /// # Errors
    /// Errors of the log.
    pub(crate) fn make_room(&self) -> Result<(), Fault> {
        if self.credits().is_on() {
            self.write_home()?;
            self.settle_credits();
        }
        Ok(())
    }

    /// Reserves `blocks` blocks on the device for writes outside of the log.
    ///
    /// # Errors
    /// [`Fault::NoSpace`], [`Fault::Limit`], and those of the device.
    pub(crate) fn reserve_blocks(&self, blocks: u64) -> Result<Reserved<'_>, Fault> {
        reserve(&*self.credits().device, blocks, false)?;
        Ok(Reserved { volume: self, blocks })
    }

    fn has_items(&self) -> bool {
        self.journal().is_some_and(|journal| journal.unwritten_blocks() > 0)
    }

    /// Returns whether there are changes that are not home. The first count is that of those that
    /// come first: see the module.
    fn has_changes(&self) -> bool {
        self.metadata().delayed_blocks() > 0 || self.has_items()
    }

    /// Writes all items home that are committed, and gives the device what was freed. Transactions
    /// go on meanwhile.
    fn write_home(&self) -> Result<(), Fault> {
        if let Some(journal) = self.journal() {
            journal.quiesce()?;
        }
        self.discard_all_freed();
        Ok(())
    }

    /// Gives back the bound blocks that nothing needs any more, and the spare ones. Fills the sums
    /// for write-back and removals first.
    pub(super) fn settle_credits(&self) {
        self.settle_without(0);
    }

    /// Settles for a thread whose transaction of `blocks` blocks has begun, with none of them
    /// bound: leaves as many spare, if they are there.
    fn settle_without(&self, blocks: u64) {
        let credits = self.credits();
        if !credits.is_on() {
            return;
        }
        let alone = credits.settling.lock();
        self.settle_alone(&alone, blocks);
    }

    /// Settles as [`settle_without`](Self::settle_without) does. The device needs reservations.
    fn settle_alone(&self, _alone: &MutexGuard<'_, (), CreditsLock>, blocks: u64) {
        let credits = self.credits();
        let bound = credits.bound.load(Ordering::Acquire);
        let active = credits.active().saturating_sub(blocks);
        let delayed = self.metadata().delayed_blocks();
        let unwritten = self.journal().map_or(0, vfscale_journal::Journal::unwritten_blocks);
        let excess = bound.saturating_sub(active + delayed + unwritten);
        credits.bound.fetch_sub(excess, Ordering::AcqRel);
        let back = excess + credits.spare.swap(0, Ordering::AcqRel);
        let is_prepared = credits.is_prepared.load(Ordering::Acquire);
        let sums = [&credits.kept, &credits.aside].map(|sum| (sum, sum.missing()));
        let missing: u64 =
            if is_prepared { sums.iter().map(|(_, missing)| missing).sum() } else { 0 };
        let mut stay = credits.device.renew(back, missing + blocks);
        if is_prepared {
            for (sum, missing) in sums {
                let some = missing.min(stay);
                sum.add(some);
                stay -= some;
            }
        }
        credits.spare.fetch_add(stay, Ordering::AcqRel);
        if is_prepared {
            credits.fill(&credits.kept, true);
            credits.fill(&credits.aside, false);
        }
    }
}
