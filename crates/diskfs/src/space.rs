//! How many blocks are left, for everybody: who wants some asks here first, and is refused here.
//!
//! # Purpose
//!
//! A call that needs space fails at once when there is none, and nothing that was accepted fails
//! later. So blocks are counted before they are looked for: a transaction reserves the most that it may
//! use, a write to a file one block for each page that has none yet. What is not used is given back.
//!
//! # Invariants
//!
//! * What is left, what is reserved and what is used are together all blocks that files can have.
//!   Those of the groups' own trees are not among them.
//! * Whoever has blocks reserved finds as many in the groups: reserving comes before claiming, and
//!   what is unclaimed or freed is in a group before it is given back here.
//! * A part, the *pool*, is only for those who make space in the end: removing, and writing back what
//!   was accepted. So removing works on a full volume. What is given back fills the pool first.
//!
//! # Locks
//!
//! That of a [`Budget`], a leaf. Taking and giving touch memory of this CPU only, as long as the pool
//! is full.

use vfscale_sync::atomic::{AtomicU64, Ordering};
use vfscale_sync::cpu;
use vfscale_sync::percpu::Budget;

use crate::group::Totals;

/// The pool is a twentieth of the volume, within these bounds, in blocks.
const POOL_SHARE: u64 = 20;
const POOL_MIN: u64 = 64;
const POOL_MAX: u64 = 8192;

/// The blocks of an open volume that are neither used nor reserved. `Send` and `Sync`.
#[derive(Debug)]
pub struct Space {
    budget: Budget,
    pool: AtomicU64,
    pool_size: AtomicU64,
    /// Blocks of the volume that files can have at all.
    blocks: AtomicU64,
}

/// What `statfs` tells about blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceFigures {
    /// Blocks that files can have at all.
    pub blocks: u64,
    /// Those that are neither used nor reserved.
    pub free: u64,
    /// Those among them that anybody can have.
    pub available: u64,
}

impl Space {
    /// The space of a volume whose groups have these.
    #[must_use]
    pub fn new(totals: &Totals) -> Self {
        let available = totals.available.min(totals.blocks);
        let pool_size = pool_of(totals.blocks);
        let pool = pool_size.min(available);
        let total = totals.blocks - pool_size.min(totals.blocks);
        let budget = Budget::new(total, cpu::possible().max(1) as usize);
        // What the budget has beyond what is there is used. It has that much, for nobody else is here.
        let used = total.saturating_sub(available - pool);
        let is_taken = budget.take(used);
        debug_assert!(is_taken);
        Self {
            budget,
            pool: AtomicU64::new(pool),
            pool_size: AtomicU64::new(pool_size),
            blocks: AtomicU64::new(totals.blocks),
        }
    }

    /// Reserves `blocks` blocks; with `from_pool`, from the pool if there are not as many elsewhere.
    /// False, and nothing is reserved, if there are not as many.
    #[must_use]
    pub fn take(&self, blocks: u64, from_pool: bool) -> bool {
        if self.budget.take(blocks) {
            return true;
        }
        if !from_pool {
            return false;
        }
        // The whole pool, so that nobody else reckons with it, and back what is not needed.
        let pool = self.pool.swap(0, Ordering::AcqRel);
        let (of_pool, rest) = (pool.min(blocks), blocks.saturating_sub(pool));
        let is_taken = rest == 0 || self.budget.take(rest);
        let back = if is_taken { pool - of_pool } else { pool };
        self.pool.fetch_add(back, Ordering::AcqRel);
        is_taken
    }

    /// Gives back what was reserved and not used, or what was used and is free. The pool is filled first.
    pub fn give(&self, blocks: u64) {
        let mut rest = blocks;
        let mut pool = self.pool.load(Ordering::Relaxed);
        loop {
            let missing = self.pool_size.load(Ordering::Relaxed).saturating_sub(pool).min(rest);
            if missing == 0 {
                break;
            }
            let filled = pool + missing;
            match self.pool.compare_exchange(pool, filled, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => {
                    rest -= missing;
                    break;
                }
                Err(now) => pool = now,
            }
        }
        if rest > 0 {
            self.budget.give(rest);
        }
    }

    /// The volume has become larger by as many blocks that files can have.
    pub fn grow(&self, blocks: u64) {
        let all = self.blocks.fetch_add(blocks, Ordering::AcqRel) + blocks;
        let pool = pool_of(all);
        let more = pool.saturating_sub(self.pool_size.swap(pool, Ordering::AcqRel));
        // Growing never fails: more is left than before.
        let grown = self.budget.resize(self.budget.total() + blocks.saturating_sub(more));
        debug_assert!(grown.is_ok());
        self.give(more.min(blocks));
        let pool = self.pool.load(Ordering::Relaxed);
        let missing = self.pool_size.load(Ordering::Relaxed).saturating_sub(pool);
        if self.budget.take(missing) {
            self.give(missing);
        }
    }

    /// How much there is. What changes meanwhile may be seen or not.
    #[must_use]
    pub fn figures(&self) -> SpaceFigures {
        let available = self.budget.available();
        let free = available + self.pool.load(Ordering::Relaxed);
        SpaceFigures { blocks: self.blocks.load(Ordering::Relaxed), free, available }
    }
}

/// How many blocks of a volume are in the pool.
fn pool_of(blocks: u64) -> u64 {
    (blocks / POOL_SHARE).clamp(POOL_MIN, POOL_MAX)
}

#[cfg(test)]
mod tests;
