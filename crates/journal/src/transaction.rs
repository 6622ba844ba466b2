//! Transactions.
//!
//! # The life of a transaction
//!
//! 1. [`Journal::begin`](crate::Journal::begin) passes the freeze gate and reserves the worst case.
//!    It may sleep for both, so the caller holds no lock that other threads need to end their
//!    transactions, and no item locked.
//! 2. The caller locks items, [adds](Transaction::add) them, and changes them.
//! 3. [`commit`](Transaction::commit) formats them, puts them on the CIL of this CPU, gives the
//!    checkpoint the log space that they need and returns the rest. It does no I/O. Then the caller
//!    unlocks the items.
//! 4. Or [`roll`](Transaction::roll): it commits in the same way, and immediately begins another
//!    transaction with the next part of the reservation. It may have to wait for log space while
//!    the caller still holds items locked. The caller adds those to each of the parts, so that no
//!    item which other threads wait for holds the tail back.
//!
//! A transaction that is dropped returns its whole reservation. If it has items, these were changed
//! in memory and the change is in no log: that can't be undone, and shuts the journal down.

use std::sync::Arc;

use vfscale_sync::cpu;

use crate::admission::grant::ReserveKind;
use crate::change_list::ChangeList;
use crate::log::Log;
use crate::{Committed, Durable, Error, LogItem, Reservation, Result};

/// A change of several items that is atomic. `Send`. It can't outlive its open journal. Counterpart
/// of `struct xfs_trans`.
#[must_use = "a transaction that is dropped does nothing"]
pub struct Transaction<'j> {
    admitted: Admitted<'j>,
    /// The changes of this part.
    changes: ChangeList,
}

/// A transaction that has passed the gate and reserved its log space, and has changed nothing yet.
/// Small: a caller that has more to do before it begins passes this on instead of a
/// [`Transaction`]. A drop gives the space back.
#[must_use = "dropped, it gives the log space back"]
pub struct Admitted<'j> {
    /// Borrowed: a reference count would be a cache line that every transaction writes.
    log: &'j Log,
    /// Log space for one part, in bytes, and number of reserved parts after this one.
    unit: u64,
    parts: u32,
    is_over: bool,
}

impl<'j> Admitted<'j> {
    /// Creates it for a caller that has passed the gate and reserved.
    pub(crate) fn new(log: &'j Log, unit: u64, reservation: Reservation) -> Self {
        Self { log, unit, parts: reservation.count.saturating_sub(1), is_over: false }
    }

    /// Begins the transaction.
    #[inline]
    pub fn begin(self) -> Transaction<'j> {
        let changes = ChangeList::new(self.log.costs, self.unit);
        Transaction { admitted: self, changes }
    }

    /// Returns the rest of the reservation, of which `left` bytes are of the present part, and
    /// leaves the gate.
    fn end(&mut self, cpu: u32, left: u64) {
        self.is_over = true;
        self.log.grant.give(cpu, left + self.unit * u64::from(self.parts));
        self.log.leave(cpu);
    }
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.end(cpu::current(), self.unit);
        }
    }
}

impl Transaction<'_> {
    /// Returns the changes of the present part, for callers that fill those of any commit.
    pub fn changes(&mut self) -> &mut ChangeList {
        &mut self.changes
    }

    /// Adds and pins `item`, which the transaction is about to change. The caller holds it locked
    /// until after the commit. Adding it twice is harmless; after a roll it must be added again.
    pub fn add<I: LogItem + 'static>(&mut self, item: Arc<I>) {
        self.changes.add(item);
    }

    /// Registers `f`, which is called once when the transaction is durable, with its checkpoint, or
    /// with the error that prevents it from ever being so. This is where busy extents become free.
    /// It runs under the rules of [`Hooks`](crate::Hooks), before the threads that force the log
    /// are woken. If the transaction is dropped, or its commit fails, `f` may be dropped without
    /// being called.
    pub fn on_durable(&mut self, f: impl FnOnce(Result<Durable>) + Send + 'static) {
        self.changes.on_durable(f);
    }

    /// Returns the rest of this part's reservation, in bytes of log.
    #[must_use]
    pub fn reserved(&self) -> u64 {
        self.changes.left
    }

    /// Ends the transaction: all of its items are in one checkpoint, which is durable once it is
    /// forced. Does no I/O, and waits for no push: the caller may hold locks that a push needs. If
    /// the CIL is too large, the next transactions wait before they begin
    /// ([`Journal::begin`](crate::Journal::begin)).
    ///
    /// # Errors
    /// [`Error::Shutdown`]; [`Error::Overrun`], which shuts the journal down: more was logged than
    /// reserved.
    pub fn commit(mut self) -> Result<Committed> {
        self.commit_in_place()
    }

    /// Commits like [`commit`](Self::commit), and moves nothing. The transaction has ended then.
    ///
    /// # Errors
    /// Errors of [`commit`](Self::commit).
    pub fn commit_in_place(&mut self) -> Result<Committed> {
        let cpu = cpu::current();
        let log = self.admitted.log;
        let committed = log.commit(cpu, &mut self.changes)?;
        self.admitted.end(cpu, self.changes.left);
        if committed.sequence != 0 {
            log.want_push(committed.sequence);
        }
        Ok(committed)
    }

    /// Commits the items that were added so far, and begins the next part. Sleeps if the parts that
    /// were reserved at the beginning are used up and there is no space for another.
    ///
    /// # Errors
    /// Errors of [`commit`](Self::commit). The transaction has then ended.
    pub fn roll(mut self) -> Result<(Committed, Self)> {
        let cpu = cpu::current();
        let Admitted { log, unit, parts, .. } = &mut self.admitted;
        let committed = log.commit(cpu, &mut self.changes)?;
        if *parts > 0 {
            *parts -= 1;
        } else {
            log.reserve(cpu, *unit, ReserveKind::Regrant)?;
        }
        self.changes.left = *unit;
        if committed.sequence != 0 {
            log.want_push(committed.sequence);
        }
        Ok((committed, self))
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        if !self.changes.items.is_empty() {
            self.admitted.log.shut_down(Error::Abandoned);
        }
        if !self.admitted.is_over {
            self.admitted.end(cpu::current(), self.changes.left);
        }
    }
}

impl std::fmt::Debug for Transaction<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transaction").field("changes", &self.changes).finish_non_exhaustive()
    }
}
