//! The credits of transactions: taking them, and finding those that are not needed any more. See
//! [`credits`](super::credits).

use vfscale_block::Demand;
use vfscale_journal::Reservation;
use vfscale_sync::atomic::Ordering;

use super::credits::{BATCH, TxCredit};
use super::tx::TxReservation;
use super::{Metadata, Volume};
use crate::base::fault::Fault;
use crate::format::inode::RECORD_BYTES;

impl Metadata {
    /// Returns the credit of a transaction that writes delayed changes, which others have reserved.
    pub(super) fn credit_of_delayed(&self) -> TxCredit<'_> {
        let credits = self.credits();
        let blocks = if credits.is_on { self.delayed_blocks() } else { 0 };
        credits.begin(blocks)
    }

    /// Returns the most blocks that delayed changes may dirty. Each directory logs its inode, which
    /// takes less space than a block, and at least one block.
    fn delayed_blocks(&self) -> u64 {
        let pair = Reservation::item_bytes(RECORD_BYTES as u64);
        (self.groups().delayed().log_bytes() + self.dirs().log_bytes()).div_ceil(2 * pair)
    }
}

impl Volume {
    /// Reserves on the device what a transaction may write home. Does nothing if the device needs
    /// no reservations. The caller has no transaction.
    ///
    /// # Errors
    /// [`Fault::NoSpace`], and those of the device and the log.
    pub(super) fn credit(&self, need: TxReservation) -> Result<TxCredit<'_>, Fault> {
        let credits = self.credits();
        credits.prepare()?;
        if !need.from_pool {
            self.roomy()?;
        }
        let blocks = u64::from(need.log_blocks) + need.space;
        // Before it is bound: see the module.
        let credit = credits.begin(blocks);
        if credits.is_on && !credits.bind(blocks) {
            self.bind_more(blocks, need.from_pool)?;
        }
        Ok(credit)
    }

    /// Checks that a call which needs more space may be accepted.
    ///
    /// # Errors
    /// [`Fault::NoSpace`], if the device lacks storage for writing back what was accepted before.
    pub(crate) fn roomy(&self) -> Result<(), Fault> {
        let credits = self.credits();
        if credits.is_roomy() {
            return Ok(());
        }
        self.settle_credits();
        if !credits.is_roomy() && self.has_items() {
            self.write_home(0)?;
        }
        if credits.is_roomy() { Ok(()) } else { Err(Fault::NoSpace) }
    }

    fn has_items(&self) -> bool {
        self.journal().is_some_and(|journal| journal.unwritten_blocks() > 0)
    }

    /// Waits for the transactions under way and writes all items home, which gives their blocks
    /// back, and gives the device what was freed. For `blocks` see
    /// [`settle_without`](Self::settle_without).
    fn write_home(&self, blocks: u64) -> Result<(), Fault> {
        if let Some(journal) = self.journal() {
            journal.freeze()?;
            journal.thaw();
        }
        self.discard_all_freed();
        self.settle_without(blocks);
        Ok(())
    }

    #[cold]
    fn bind_more(&self, blocks: u64, is_urgent: bool) -> Result<(), Fault> {
        let credits = self.credits();
        self.settle_without(blocks);
        if credits.bind(blocks) || credits.grow(blocks, BATCH, false).is_ok() {
            return Ok(());
        }
        for is_last in [false, false, true] {
            match credits.grow(blocks, 0, is_urgent) {
                Err(Fault::NoSpace) => {}
                grown => return grown,
            }
            if is_urgent && credits.bind_kept(blocks) {
                return Ok(());
            }
            if !is_last && (is_urgent || self.has_items()) {
                self.write_home(blocks)?;
            }
        }
        Err(Fault::NoSpace)
    }

    /// Gives back the bound blocks that nothing needs any more, and the spare ones. Fills the kept
    /// blocks.
    pub(super) fn settle_credits(&self) {
        self.settle_without(0);
    }

    /// Settles for a thread whose transaction of `blocks` blocks has begun, with none of them
    /// bound.
    fn settle_without(&self, blocks: u64) {
        let credits = self.credits();
        if !credits.is_on {
            return;
        }
        let _alone = credits.settling.lock();
        let bound = credits.bound.load(Ordering::Acquire);
        let ended = credits.ended.sum();
        let active = u64::try_from(credits.begun.sum() - ended).unwrap_or(0);
        let active = active.saturating_sub(blocks);
        let delayed = self.metadata().delayed_blocks();
        let unwritten = self.journal().map_or(0, vfscale_journal::Journal::unwritten_blocks);
        let spare = bound.saturating_sub(active + delayed + unwritten);
        credits.bound.fetch_sub(spare, Ordering::AcqRel);
        let spare = spare + credits.spare.swap(0, Ordering::AcqRel);
        // All of it: the device takes what writes have spent out of what comes back.
        credits.device.unreserve(Demand::anywhere(spare));
        if credits.is_prepared.load(Ordering::Acquire) {
            // A lack is noticed by the next call that needs it.
            let _ = credits.fill_kept(true);
        }
    }
}
