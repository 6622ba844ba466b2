//! The limit of a branch: how many places it may have for itself.
//!
//! A branch has what it has written since it began, its states that others come from included, and
//! not given up. Commits count that ([`Table::line`](crate::state::branch_table::Table::line));
//! what was taken and given up since the last one is added. What its user has reserved counts as
//! if it was written, a block as one place.
//!
//! Only reservations are refused, and no urgent one. So what was accepted is always written, a
//! branch at its limit can be synced and closed, and removals go on.
//!
//! # Races
//!
//! A reservation enters what it asks for before it looks at the sum, and leaves when it has
//! promised it. Of two that do not fit together, the second one to enter sees the first one. `counted`
//! and the limit change with the state of the pool locked; between a capture and its commit, the
//! count has what the branch noted, and then what the commit says.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use super::{Inner, Pending};
use crate::Error;
use crate::disk::record::Record;
use crate::state::branch_table::Table;

/// What a branch may have, and what its commits have counted. See the [module](self).
#[derive(Debug)]
pub(crate) struct Limit {
    /// In places; `u64::MAX` for none.
    most: AtomicU64,
    counted: AtomicI64,
    /// Blocks of reservations that are being decided.
    asked: AtomicU64,
}

impl Default for Limit {
    fn default() -> Self {
        let (counted, asked) = (AtomicI64::new(0), AtomicU64::new(0));
        Self { most: AtomicU64::new(u64::MAX), counted, asked }
    }
}

impl Limit {
    /// Takes limit and count from the record of the branch. No commit of it is under way.
    pub(crate) fn load(&self, table: &Table, record: &Record) {
        self.counted.store(table.line(record) as i64, Ordering::SeqCst);
        let most = if record.limit == 0 { u64::MAX } else { record.limit };
        self.most.store(most, Ordering::SeqCst);
    }

    /// Counts places that were taken, and given up if there are fewer.
    pub(super) fn count(&self, places: i64) {
        self.counted.fetch_add(places, Ordering::SeqCst);
    }

    fn most(&self) -> Option<u64> {
        Some(self.most.load(Ordering::Relaxed)).filter(|most| *most != u64::MAX)
    }
}

impl Pending {
    /// Returns how many places more the branch has than at its last commit, about: nodes are
    /// counted that were copied, and not those that are new.
    pub(super) fn growth(&self) -> i64 {
        (self.allocs.len() + self.dirty_nodes) as i64 - self.frees.len() as i64
    }
}

/// Blocks that a reservation asks for, until it is decided.
#[derive(Debug)]
pub(super) struct Asked<'l> {
    limit: &'l Limit,
    blocks: u64,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.limit.asked.fetch_sub(self.blocks, Ordering::SeqCst);
    }
}

impl Inner {
    /// Returns how many places the branch may still get, if it has a limit.
    pub(crate) fn left(&self) -> Option<u64> {
        let most = self.limit.most()?;
        let has = {
            let pending = self.pending.lock();
            self.limit.counted.load(Ordering::SeqCst) + pending.growth()
        };
        let reserved = self.held.promised() / self.cost();
        Some(most.saturating_sub(u64::try_from(has).unwrap_or(0)).saturating_sub(reserved))
    }

    /// Enters a reservation of blocks until it is promised, or given up. `None` if the branch has
    /// no limit.
    ///
    /// # Errors
    /// [`Error::Limit`] if it is above the limit, even after a checkpoint.
    pub(super) fn ask(&self, blocks: u64) -> Result<Option<Asked<'_>>, Error> {
        if self.limit.most().is_none() {
            return Ok(None);
        }
        self.limit.asked.fetch_add(blocks, Ordering::SeqCst);
        let asked = Asked { limit: &self.limit, blocks };
        let fits =
            || self.left().is_none_or(|left| self.limit.asked.load(Ordering::SeqCst) <= left);
        if fits() || self.recount()? && fits() { Ok(Some(asked)) } else { Err(Error::Limit) }
    }

    /// Makes the places free that the branch has given up, and counts what it has. Returns whether
    /// that was done.
    #[cold]
    fn recount(&self) -> Result<bool, Error> {
        self.settle()?;
        let state = self.shared.state.lock();
        let Some(record) = state.table.get(self.node()) else { return Ok(false) };
        self.limit.load(&state.table, record);
        Ok(true)
    }
}
