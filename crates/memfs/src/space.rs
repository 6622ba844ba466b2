//! The space of a file system: what is taken, and what is free but may still be read.
//!
//! # Purpose
//!
//! Everything a file system keeps in memory is charged against one [`Budget`], so that running out
//! of space is `ENOSPC` and never the end of the process. The difficulty is memory that has been
//! unlinked from a tree: its user thinks it is free, but readers may hold it until a grace period
//! has passed.
//!
//! * Giving it back only after the grace period would be exact, but a program that removes a file
//!   and writes another one would meet `ENOSPC` on a file system that is empty.
//! * Giving it back at once is what users expect, but a single reader that sleeps in its critical
//!   section holds all later grace periods up, and a loop of writes and truncates would fill the
//!   memory of the machine although the file system is never more than full.
//!
//! So both, with a bound: freed memory counts against a second budget, the *limbo*, until its grace
//! period is over. While the limbo has room, space is given back at once. When it is full, space is
//! given back after the grace period. Memory in use is therefore never more than the size of the
//! file system and of its limbo together, whatever readers do.
//!
//! # Invariants
//!
//! * Bytes of live memory <= `budget.used() + limbo.used()`.
//! * With nothing stored and no grace period under way both are zero.
//!
//! # Shared lines
//!
//! Both budgets keep an allowance for each CPU. Deferred work keeps the space alive through an
//! [`Arc`] of which each CPU has its own, so that two CPUs that free memory don't count on one
//! line.

use std::sync::Arc;

use vfscale_sync::percpu::{Budget, PerCpu};
use vfscale_sync::rcu;
use vfscale_sync::slot::Retired;

/// The smallest limbo: enough for a burst of small files.
const LIMBO_MIN: u64 = 4 << 20;

/// The share of the total size that may be in limbo besides.
const LIMBO_SHARE: u64 = 8;

/// There is not enough space left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoSpace;

struct Budgets {
    taken: Budget,
    limbo: Budget,
}

/// A CPU's own counted reference to the budgets, on a line of its own.
#[repr(align(128))]
struct Local(Arc<Budgets>);

/// The space of one file system. See the [module](self).
pub(crate) struct Space {
    budgets: Arc<Budgets>,
    locals: PerCpu<Arc<Local>>,
}

impl Space {
    /// `total` bytes, in per-CPU structures of `slots` slots.
    pub(crate) fn new(total: u64, slots: usize) -> Space {
        let limbo = (total / LIMBO_SHARE).max(LIMBO_MIN);
        let budgets = Arc::new(Budgets {
            taken: Budget::new(total, slots),
            limbo: Budget::new(limbo, slots),
        });
        let locals = PerCpu::new(slots, |_| Arc::new(Local(Arc::clone(&budgets))));
        Space { budgets, locals }
    }

    /// Takes `bytes`, or nothing if there are fewer.
    #[inline]
    pub(crate) fn take(&self, bytes: u64) -> Result<(), NoSpace> {
        if self.budgets.taken.take(bytes) { Ok(()) } else { Err(NoSpace) }
    }

    /// Gives back `bytes` for which there is no memory, or whose memory nobody can see.
    #[inline]
    pub(crate) fn give(&self, bytes: u64) {
        self.budgets.taken.give(bytes);
    }

    /// Gives back the `bytes` of memory that `retired` occupies.
    pub(crate) fn retire<L, N>(&self, retired: Retired<'_, L, N>, bytes: u64)
    where
        L: Send + Sync + 'static,
        N: Send + Sync + 'static,
    {
        if self.take_limbo(bytes) {
            self.give(bytes);
            self.retire_in_limbo(retired, bytes);
        } else {
            let local = Arc::clone(self.locals.this());
            retired.then(move || local.0.taken.give(bytes));
        }
    }

    /// Makes room for `bytes` in the limbo, for memory that is to be freed while its space stays
    /// taken. Follow with [`retire_in_limbo`](Self::retire_in_limbo).
    #[must_use]
    pub(crate) fn take_limbo(&self, bytes: u64) -> bool {
        self.budgets.limbo.take(bytes)
    }

    /// Frees `retired`, whose `bytes` are counted in the limbo already.
    pub(crate) fn retire_in_limbo<L, N>(&self, retired: Retired<'_, L, N>, bytes: u64)
    where
        L: Send + Sync + 'static,
        N: Send + Sync + 'static,
    {
        let local = Arc::clone(self.locals.this());
        retired.then(move || local.0.limbo.give(bytes));
    }

    /// Helps grace periods along if so much is in limbo that space is being held back. The caller
    /// holds no lock. Never waits.
    pub(crate) fn reclaim(&self) {
        const ROUNDS: u32 = 4;
        let limbo = &self.budgets.limbo;
        for _ in 0..ROUNDS {
            if limbo.used() <= limbo.total() / 2 {
                break;
            }
            rcu::pin().flush();
        }
    }

    /// The size in bytes.
    pub(crate) fn total(&self) -> u64 {
        self.budgets.taken.total()
    }

    /// Bytes taken; exact while nothing changes.
    pub(crate) fn used(&self) -> u64 {
        self.budgets.taken.used()
    }

    /// Bytes of freed memory that wait for a grace period and have been given back already.
    #[cfg(test)]
    pub(crate) fn limbo_used(&self) -> u64 {
        self.budgets.limbo.used()
    }

    /// The most bytes that may be in limbo.
    #[cfg(test)]
    pub(crate) fn limbo_total(&self) -> u64 {
        self.budgets.limbo.total()
    }
}
