//! The count of free blocks of a volume: space is reserved, or refused, here.
//!
//! # Purpose
//!
//! A call that needs space fails immediately when there is none, and nothing that was accepted
//! fails later. So blocks are counted before they are searched for: a transaction reserves the most
//! that it may use, a write to a file one block for each page that has none yet. What is not used
//! is given back.
//!
//! # Invariants
//!
//! * Free, reserved and used blocks together are all blocks that files can have. Blocks of the
//!   groups' own trees are not among them.
//! * A thread that has reserved blocks finds as many in the groups: reserving precedes claiming,
//!   and unclaimed or freed blocks are in a group before they are given back here.
//! * Blocks that a transaction has freed count as *coming* from before its commit until they are
//!   given back here, and so do blocks that are being discarded. Hence a thread that finds nothing
//!   coming finds the blocks that were coming before.
//! * A reserve, the *pool*, serves only operations that free space in the end: removing, and
//!   writeback of accepted data. Hence removing works on a full volume. Blocks that are given back
//!   fill the pool first.
//!
//! # How long the pool lasts
//!
//! Space allocated by `fallocate` can be written on a full volume, so the conversion of unwritten
//! extents must never lack blocks for trees. A conversion in the middle of an extent splits it, and
//! each further record may split a leaf, so a random write into every block could take more than
//! any pool has. Therefore, as the pool gets low, extents are no longer split wherever a write
//! ends, but only at multiples of a [grain](Space::grain): the blocks between are written as zeros.
//! The coarse grain is eight times the volume over the pool, and an extent can be split only at as
//! many offsets as the volume has grains: an eighth of the pool. An extent is split once at each
//! offset. The worst cost of a split is a leaf, and a block above it: a quarter of the pool at
//! most, of the half that is left when the grain becomes coarse. The rest is for transactions under
//! way, which reserve a few blocks each, and for the tree blocks of pages that were accepted before
//! the volume was full: the number of these pages is limited by the data cache, and a leaf covers
//! at least 84 of them.
//!
//! In the worst case a write of 4 KiB writes 32 MiB of zeros, once for each 32 MiB. It writes none
//! while three quarters of the pool are left, and at most 1 MiB (less on small volumes) while at
//! least half is left.
//!
//! # Locks
//!
//! The lock of a [`Budget`], a leaf. Taking and giving touch memory of this CPU only, as long as
//! the pool is full.

use vfscale_sync::atomic::{AtomicU64, Ordering};
use vfscale_sync::cpu;
use vfscale_sync::percpu::{Budget, CachePadded, PerCpuCounter};

use crate::alloc::Totals;

/// The pool is a twentieth of the volume, within these bounds, in blocks; of a large volume it is a
/// thousandth.
const POOL_SHARE: u64 = 20;
const POOL_MIN: u64 = 64;
const POOL_MAX: u64 = 8192;
const POOL_LARGE_SHARE: u64 = 1024;

/// The coarse grain divides the volume into as many grains as an eighth of the pool has blocks.
const GRAINS_SHARE: u64 = 8;
/// Factor by which the grain is finer at first.
const FINER: u64 = 32;

/// The blocks of an open volume that are neither used nor reserved. `Send` and `Sync`.
///
/// The fields that threads read when they free or give back blocks, and the fields that are written
/// when the pool has given blocks away, are on different cache lines (Chinner 2020, patch 1),
/// unless the packed layout from before that patch is chosen.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct Space {
    read: ReadMostly,
    packed: SpaceWritten,
    spread: CachePadded<SpaceWritten>,
    budget: Budget,
    coming: Coming,
}

/// Blocks that transactions have freed: the total ever freed, and the total given back. Both counts
/// only grow, so a thread that reads `given` before `freed` misses no block that was freed earlier.
#[derive(Debug)]
struct Coming {
    freed: PerCpuCounter,
    given: PerCpuCounter,
}

impl Coming {
    /// Returns the number of blocks that are not back yet; more if some are freed or given back
    /// during the call.
    fn blocks(&self) -> u64 {
        let given = self.given.sum();
        u64::try_from(self.freed.sum().wrapping_sub(given)).unwrap_or(0)
    }
}

/// Fields that are written only when the volume grows.
#[derive(Debug)]
#[repr(C)]
struct ReadMostly {
    pool_size: AtomicU64,
    /// Number of blocks of the volume that files can have.
    blocks: AtomicU64,
    is_spread: bool,
}

#[derive(Debug, Default)]
#[repr(C)]
struct SpaceWritten {
    pool: AtomicU64,
}

#[cfg(not(any(loom, shuttle)))]
const _: () = {
    use std::mem::offset_of;
    // Packed: one line of 64 bytes. Spread: no pair of lines has fields of both kinds.
    assert!(offset_of!(Space, packed) + size_of::<SpaceWritten>() <= 64);
    assert!(offset_of!(Space, spread) == 128 && offset_of!(Space, budget) >= 256);
};

/// The block counts that `statfs` reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceFigures {
    /// Number of blocks that files can have.
    pub blocks: u64,
    /// Number of blocks that are neither used nor reserved.
    pub free: u64,
    /// Number of free blocks that are not part of the pool.
    pub available: u64,
    /// Number of blocks that become free once the transactions that freed them are durable.
    pub coming: u64,
    /// Number of coming blocks that fill the pool first.
    missing: u64,
}

impl SpaceFigures {
    /// Returns the figures after all coming blocks, and `more` others, have been given back.
    #[must_use]
    pub fn settled(self, more: u64) -> Self {
        let coming = self.coming.saturating_add(more);
        let free = self.free.saturating_add(coming).min(self.blocks);
        let available = self.available.saturating_add(coming.saturating_sub(self.missing));
        let missing = self.missing.saturating_sub(coming);
        Self { free, available: available.min(free), coming: 0, missing, ..self }
    }
}

impl Space {
    /// Creates the space of a volume whose groups have these totals; packed, or with the written
    /// fields on lines of their own (`is_spread`).
    #[must_use]
    pub fn new(totals: &Totals, is_spread: bool) -> Self {
        let available = totals.available.min(totals.blocks);
        let pool_size = pool_of(totals.blocks);
        let pool = pool_size.min(available);
        let total = totals.blocks - pool_size.min(totals.blocks);
        let budget = Budget::new(total, cpu::most_slots() as usize);
        // The budget's excess over the available blocks is in use. The take succeeds: no other
        // thread has access yet.
        let used = total.saturating_sub(available - pool);
        let is_taken = budget.take(used);
        debug_assert!(is_taken);
        let (pool_size, blocks) = (AtomicU64::new(pool_size), AtomicU64::new(totals.blocks));
        let read = ReadMostly { pool_size, blocks, is_spread };
        let (packed, spread) = (SpaceWritten::default(), CachePadded::new(SpaceWritten::default()));
        let counter = || PerCpuCounter::new(cpu::most_slots() as usize);
        let coming = Coming { freed: counter(), given: counter() };
        let space = Self { read, packed, spread, budget, coming };
        space.pool().store(pool, Ordering::Relaxed);
        space
    }

    /// Returns the blocks left in the pool, from the cache line in use.
    fn pool(&self) -> &AtomicU64 {
        if self.read.is_spread { &self.spread.pool } else { &self.packed.pool }
    }

    /// Reserves `blocks` blocks; with `from_pool`, from the pool if the budget has fewer. Returns
    /// false and reserves nothing if both have fewer.
    #[must_use]
    pub fn take(&self, blocks: u64, from_pool: bool) -> bool {
        if self.budget.take(blocks) {
            return true;
        }
        if !from_pool {
            return false;
        }
        let mut pool = self.pool().load(Ordering::Relaxed);
        loop {
            let of_pool = pool.min(blocks);
            let rest = blocks - of_pool;
            // The budget first: a request that fails has hidden no block of the pool from others.
            if rest > 0 && !self.budget.take(rest) {
                return false;
            }
            let left = pool - of_pool;
            match self.pool().compare_exchange(pool, left, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => pool = now,
            }
            self.budget.give(rest);
        }
    }

    /// Gives back blocks that were reserved and not used, or that were used and are now free. The
    /// pool is filled first.
    pub fn give(&self, blocks: u64) {
        let mut rest = blocks;
        let mut pool = self.pool().load(Ordering::Relaxed);
        loop {
            let missing =
                self.read.pool_size.load(Ordering::Relaxed).saturating_sub(pool).min(rest);
            if missing == 0 {
                break;
            }
            let filled = pool + missing;
            match self.pool().compare_exchange(pool, filled, Ordering::AcqRel, Ordering::Relaxed) {
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

    /// Takes free blocks away, which can't be used any more; fewer if the others are reserved.
    pub fn withdraw(&self, mut blocks: u64) {
        // Others take and give at the same time.
        while blocks > 0 {
            let SpaceFigures { free, available, .. } = self.figures();
            let from_pool = available == 0;
            let some = blocks.min(if from_pool { free } else { available });
            if some == 0 {
                return;
            }
            if self.take(some, from_pool) {
                blocks -= some;
            }
        }
    }

    /// Notes that a transaction which is about to be committed has freed `blocks` blocks. They
    /// [come back](Self::come_back) when it is durable. Less than none are blocks that were
    /// expected, and don't.
    pub fn expect(&self, blocks: i64) {
        self.coming.freed.add(blocks);
    }

    /// Reserves free blocks for a moment, after which the caller lets them
    /// [come back](Self::come_back). They count as coming, so a thread that lacks space waits for
    /// them. Returns false and reserves nothing if there are fewer.
    #[must_use]
    pub fn borrow(&self, blocks: u64) -> bool {
        // Before `take`: see `Coming`.
        self.expect(blocks as i64);
        let is_taken = self.take(blocks, false);
        if !is_taken {
            self.coming.given.add(blocks as i64);
        }
        is_taken
    }

    /// Gives back what was [expected](Self::expect).
    pub fn come_back(&self, blocks: u64) {
        self.give(blocks);
        // After `give`: see `Coming`.
        self.coming.given.add(blocks as i64);
    }

    /// Returns whether freed blocks have not been given back yet. Covers all frees before the call,
    /// and maybe some that happen during it.
    #[must_use]
    pub fn is_coming(&self) -> bool {
        self.coming.blocks() > 0
    }

    /// Returns the number of blocks, a power of two, at whose multiples unwritten extents may be
    /// split: 1 as long as there is enough for any tree. See the [module](self).
    #[must_use]
    pub fn grain(&self) -> u64 {
        let size = self.read.pool_size.load(Ordering::Relaxed);
        let pool = self.pool().load(Ordering::Relaxed);
        if pool >= size - size / 4 {
            return 1;
        }
        let coarse = grain_of(self.read.blocks.load(Ordering::Relaxed), size);
        if pool >= size / 2 { (coarse / FINER).max(1) } else { coarse }
    }

    /// Adds `blocks` blocks that files can have, after the volume has grown.
    pub fn grow(&self, blocks: u64) {
        let all = self.read.blocks.fetch_add(blocks, Ordering::AcqRel) + blocks;
        let pool = pool_of(all);
        let more = pool.saturating_sub(self.read.pool_size.swap(pool, Ordering::AcqRel));
        // Growing never fails: more is left than before.
        let grown = self.budget.resize(self.budget.total() + blocks.saturating_sub(more));
        debug_assert!(grown.is_ok());
        self.give(more.min(blocks));
        let pool = self.pool().load(Ordering::Relaxed);
        let missing = self.read.pool_size.load(Ordering::Relaxed).saturating_sub(pool);
        if self.budget.take(missing) {
            self.give(missing);
        }
    }

    /// Returns the figures. Changes that are made during the call may be seen or not.
    #[must_use]
    pub fn figures(&self) -> SpaceFigures {
        // First: blocks that come back during the call are rather counted twice than not at all.
        let coming = self.coming.blocks();
        let available = self.budget.available();
        let pool = self.pool().load(Ordering::Relaxed);
        let missing = self.read.pool_size.load(Ordering::Relaxed).saturating_sub(pool);
        let (free, blocks) = (available + pool, self.read.blocks.load(Ordering::Relaxed));
        SpaceFigures { blocks, free, available, coming, missing }
    }
}

/// Returns the size of the pool of a volume with `blocks` blocks.
fn pool_of(blocks: u64) -> u64 {
    let most = POOL_MAX.max(blocks.div_ceil(POOL_LARGE_SHARE));
    (blocks / POOL_SHARE).clamp(POOL_MIN, most)
}

/// Returns the coarse grain of a volume with this pool.
fn grain_of(blocks: u64, pool: u64) -> u64 {
    blocks.saturating_mul(GRAINS_SHARE).div_ceil(pool.max(1)).next_power_of_two()
}

#[cfg(test)]
mod tests;
