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
//! promised it; what is promised is written before the promise ends. Whoever looks adds up in the
//! same order: asked for, promised, written. So nothing that moves on meanwhile is missed; it may
//! count twice. Of two that do not fit together, the second one to enter sees the first one.
//!
//! The count and the limit change with the state of the pool locked. Between a capture and its
//! commit the count has what the branch noted, and then what the commit says.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use crate::disk::record::Record;
use crate::state::branch_table::Table;

/// How much a branch may have, and what its commits have counted. See the [module](self).
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

    /// Counts places that were taken; fewer than none were given up.
    pub(crate) fn count(&self, places: i64) {
        self.counted.fetch_add(places, Ordering::SeqCst);
    }

    /// Returns the limit; `None` if there is none.
    pub(crate) fn most(&self) -> Option<u64> {
        Some(self.most.load(Ordering::Relaxed)).filter(|most| *most != u64::MAX)
    }

    /// Returns how many places the branch has by its commits.
    pub(crate) fn counted(&self) -> i64 {
        self.counted.load(Ordering::SeqCst)
    }

    /// Enters a reservation of blocks, until it is promised or given up.
    pub(crate) fn ask(&self, blocks: u64) -> Asked<'_> {
        self.asked.fetch_add(blocks, Ordering::SeqCst);
        Asked { limit: self, blocks }
    }

    /// Returns how many blocks are asked for.
    pub(crate) fn asked(&self) -> u64 {
        self.asked.load(Ordering::SeqCst)
    }
}

/// Blocks that a reservation asks for, until it is decided.
#[derive(Debug)]
pub(crate) struct Asked<'l> {
    limit: &'l Limit,
    blocks: u64,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.limit.asked.fetch_sub(self.blocks, Ordering::SeqCst);
    }
}
