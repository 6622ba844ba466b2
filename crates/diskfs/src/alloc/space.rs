//! How many blocks are left, for everybody: who wants some asks here first, and is refused here.
//!
//! # Purpose
//!
//! A call that needs space fails at once when there is none, and nothing that was accepted fails
//! later. So blocks are counted before they are looked for: a transaction reserves the most that it
//! may use, a write to a file one block for each page that has none yet. What is not used is given
//! back.
//!
//! # Invariants
//!
//! * What is left, what is reserved and what is used are together all blocks that files can have.
//!   Those of the groups' own trees are not among them.
//! * Whoever has blocks reserved finds as many in the groups: reserving comes before claiming, and
//!   what is unclaimed or freed is in a group before it is given back here.
//! * What a transaction has freed counts as *coming* from before its commit until it is given here;
//!   so who finds that nothing is coming finds what has come.
//! * A part, the *pool*, is only for those who make space in the end: removing, and writing back
//!   what was accepted. So removing works on a full volume. What is given back fills the pool
//!   first.
//!
//! # What the pool lasts for
//!
//! Space that `fallocate` has taken can be written on a full volume, so converting unwritten
//! extents must never lack blocks for trees. A conversion in the middle of an extent splits it, and
//! each further record may split a leaf, so a random write into every block could take more than
//! any pool has. So as the pool gets low, extents are no longer split wherever a write ends, but
//! only at multiples of a [grain](Space::grain): what lies between is written as zeros. The coarse
//! grain is eight times the volume over the pool, and there are only as many places for a split as
//! the volume has grains: an eighth of the pool. An extent is split at each place once. The worst
//! that a split can cost is a leaf, and a block above it: a quarter of the pool at most, of the
//! half that is left when the grain becomes coarse. The rest is for transactions under way, which
//! reserve a few blocks each, and for the trees of pages that were accepted before the volume was
//! full: of these there are as many as the cache of data holds, of which a leaf takes 84 at least.
//!
//! At the worst a write of 4 KiB so writes 32 MiB of zeros, once for each 32 MiB. Until a quarter
//! of the pool is gone it writes none, and 1 MiB while the second quarter goes, or less on small
//! volumes.
//!
//! # Locks
//!
//! That of a [`Budget`], a leaf. Taking and giving touch memory of this CPU only, as long as the
//! pool is full.

use vfscale_sync::atomic::{AtomicU64, Ordering};
use vfscale_sync::cpu;
use vfscale_sync::percpu::{Apart, Budget, PerCpuCounter};

use crate::alloc::Totals;

/// The pool is a twentieth of the volume, within these bounds, in blocks; of a large volume it is a
/// thousandth.
const POOL_SHARE: u64 = 20;
const POOL_MIN: u64 = 64;
const POOL_MAX: u64 = 8192;
const POOL_LARGE_SHARE: u64 = 1024;

/// The coarse grain is as many blocks as make this share of the pool of all of the volume's grains.
const GRAINS_SHARE: u64 = 8;
/// How much finer the grain is at first.
const FINER: u64 = 32;

/// The blocks of an open volume that are neither used nor reserved. `Send` and `Sync`.
///
/// What whoever frees or gives back reads, and what is written when the pool has given blocks away,
/// are on different cache lines (seed 003, patch 1), unless they are to be packed as before that.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct Space {
    read: ReadMostly,
    packed: Written,
    spread: Apart<Written>,
    budget: Budget,
    coming: Coming,
}

/// Blocks that transactions have freed: all there ever were, and those that have been given back.
/// Two counts that only grow, so that who reads them one after the other never misses what is
/// between.
#[derive(Debug)]
struct Coming {
    freed: PerCpuCounter,
    given: PerCpuCounter,
}

impl Coming {
    /// Those that are not back yet; more if some come meanwhile.
    fn blocks(&self) -> u64 {
        let given = self.given.sum();
        u64::try_from(self.freed.sum().wrapping_sub(given)).unwrap_or(0)
    }
}

/// Written when the volume grows.
#[derive(Debug)]
#[repr(C)]
struct ReadMostly {
    pool_size: AtomicU64,
    /// Blocks of the volume that files can have at all.
    blocks: AtomicU64,
    is_spread: bool,
}

#[derive(Debug, Default)]
#[repr(C)]
struct Written {
    pool: AtomicU64,
}

#[cfg(not(any(loom, shuttle)))]
const _: () = {
    use std::mem::offset_of;
    // Before the patch: one line of 64 bytes. After it: no pair of lines has fields of both kinds.
    assert!(offset_of!(Space, packed) + size_of::<Written>() <= 64);
    assert!(offset_of!(Space, spread) == 128 && offset_of!(Space, budget) >= 256);
};

/// What `statfs` tells about blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceFigures {
    /// Blocks that files can have at all.
    pub blocks: u64,
    /// Those that are neither used nor reserved.
    pub free: u64,
    /// Those among them that anybody can have.
    pub available: u64,
    /// Those that are free as soon as the transactions that freed them are durable.
    pub coming: u64,
    /// How many of those that come go to the pool first.
    missing: u64,
}

impl SpaceFigures {
    /// What it comes to when all is back that is coming, and `more` blocks besides.
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
    /// The space of a volume whose groups have these; packed, or with what is written `is_spread`
    /// over lines of its own.
    #[must_use]
    pub fn new(totals: &Totals, is_spread: bool) -> Self {
        let available = totals.available.min(totals.blocks);
        let pool_size = pool_of(totals.blocks);
        let pool = pool_size.min(available);
        let total = totals.blocks - pool_size.min(totals.blocks);
        let budget = Budget::new(total, cpu::possible().max(1) as usize);
        // What the budget has beyond what is there is used. It has that much, for nobody else is
        // here.
        let used = total.saturating_sub(available - pool);
        let is_taken = budget.take(used);
        debug_assert!(is_taken);
        let (pool_size, blocks) = (AtomicU64::new(pool_size), AtomicU64::new(totals.blocks));
        let read = ReadMostly { pool_size, blocks, is_spread };
        let (packed, spread) = (Written::default(), Apart(Written::default()));
        let counter = || PerCpuCounter::new(cpu::possible().max(1) as usize);
        let coming = Coming { freed: counter(), given: counter() };
        let space = Self { read, packed, spread, budget, coming };
        space.pool().store(pool, Ordering::Relaxed);
        space
    }

    /// What is left of the pool, wherever that is.
    fn pool(&self) -> &AtomicU64 {
        if self.read.is_spread { &self.spread.pool } else { &self.packed.pool }
    }

    /// Reserves `blocks` blocks; with `from_pool`, from the pool if there are not as many
    /// elsewhere. False, and nothing is reserved, if there are not as many.
    #[must_use]
    pub fn take(&self, blocks: u64, from_pool: bool) -> bool {
        if self.budget.take(blocks) {
            return true;
        }
        if !from_pool {
            return false;
        }
        // The whole pool, so that nobody else reckons with it, and back what is not needed.
        let pool = self.pool().swap(0, Ordering::AcqRel);
        let (of_pool, rest) = (pool.min(blocks), blocks.saturating_sub(pool));
        let is_taken = rest == 0 || self.budget.take(rest);
        let back = if is_taken { pool - of_pool } else { pool };
        self.pool().fetch_add(back, Ordering::AcqRel);
        is_taken
    }

    /// Gives back what was reserved and not used, or what was used and is free. The pool is filled
    /// first.
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

    /// A transaction that is about to be committed has freed so many blocks. They [come
    /// back](Self::come_back) when it is durable.
    pub fn expect(&self, blocks: u64) {
        self.coming.freed.add(blocks as i64);
    }

    /// Gives back what was [expected](Self::expect).
    pub fn come_back(&self, blocks: u64) {
        self.give(blocks);
        // After that: see `Coming`.
        self.coming.given.add(blocks as i64);
    }

    /// Whether blocks are on their way back: all that were freed before the call and are not, and
    /// maybe such as come meanwhile.
    #[must_use]
    pub fn is_coming(&self) -> bool {
        self.coming.blocks() > 0
    }

    /// Unwritten extents are split at multiples of so many blocks only, a power of two: 1 as long
    /// as there is enough for any tree. See the [module](self).
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

    /// The volume has become larger by as many blocks that files can have.
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

    /// How much there is. What changes meanwhile may be seen or not.
    #[must_use]
    pub fn figures(&self) -> SpaceFigures {
        // First: what has come back meanwhile is rather counted twice than not at all.
        let coming = self.coming.blocks();
        let available = self.budget.available();
        let pool = self.pool().load(Ordering::Relaxed);
        let missing = self.read.pool_size.load(Ordering::Relaxed).saturating_sub(pool);
        let (free, blocks) = (available + pool, self.read.blocks.load(Ordering::Relaxed));
        SpaceFigures { blocks, free, available, coming, missing }
    }
}

/// How many blocks of a volume are in the pool.
fn pool_of(blocks: u64) -> u64 {
    let most = POOL_MAX.max(blocks.div_ceil(POOL_LARGE_SHARE));
    (blocks / POOL_SHARE).clamp(POOL_MIN, most)
}

/// The coarse grain of a volume with this pool.
fn grain_of(blocks: u64, pool: u64) -> u64 {
    blocks.saturating_mul(GRAINS_SHARE).div_ceil(pool.max(1)).next_power_of_two()
}

#[cfg(test)]
mod tests;
