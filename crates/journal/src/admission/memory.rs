//! The bound on the memory of items that are not written back.
//!
//! # Purpose
//!
//! An item stays in memory until it is written back, whatever the limits of its owner's caches. Log
//! space bounds the number of such items, but a large log has room for more than memory has: an
//! inode is logged in a hundred bytes and takes five times as many. So the memory has a bound of
//! its own ([`Options::memory_bytes`](crate::Options::memory_bytes)), in bytes that items report
//! ([`LogItem::memory_bytes`](crate::LogItem::memory_bytes)).
//!
//! # How it is bounded
//!
//! | structure | level | action |
//! | --- | --- | --- |
//! | the CIL | an eighth of the bound | it is pushed, as if it were full |
//! | | twice that | a transaction waits, before it begins, for the push to begin, holding nothing |
//! | the AIL | three eighths | the oldest items are written back, until a quarter is left |
//! | | half | a transaction waits before it begins, holding nothing |
//!
//! So the AIL as of when the last transaction was admitted, the checkpoint that is being written
//! and the CIL together take no more than the bound, plus the items that active transactions
//! change.
//!
//! # Why no thread waits for ever
//!
//! * A waiting thread has no transaction and no log space, and has not passed the freeze gate: a
//!   freeze does not wait for it. Its caller holds nothing that an active transaction needs;
//!   reserving log space requires that already.
//! * A transaction that has begun is not made to wait, nor one that rolls: it ends, and its pins
//!   end with it.
//! * While a thread waits the AIL push makes progress. It first pushes items that are pinned by
//!   the CIL to the log, with log space that transactions have given. It begins no transaction, and
//!   takes memory for one batch of items, which does not depend on the bound.
//! * Items that enter the AIL during that time are from the CIL and from active transactions, and
//!   no new transactions begin. So the AIL becomes empty, if it must.
//! * An insertion that exceeds the level queues the AIL push. If that has taken the last such
//!   request but not yet read how far the log is durable, its current round includes the item;
//!   otherwise the request starts its next round.
//! * A shutdown wakes all waiting threads.

/// The levels of memory, in bytes, at which the journal acts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Levels {
    /// Level from which on the CIL is pushed.
    pub(crate) cil: u64,
    /// Level above which items of the AIL are written back ...
    pub(crate) heavy: u64,
    /// ... until they take no more than this.
    pub(crate) light: u64,
    /// Level above which no transaction begins.
    pub(crate) crowded: u64,
}

impl Levels {
    /// Returns the levels for a bound in bytes; unreachable ones if there is no bound.
    pub(crate) fn of(bound: Option<u64>) -> Self {
        match bound.map(|bytes| bytes / 8) {
            Some(part) => {
                Self { cil: part.max(1), heavy: 3 * part, light: 2 * part, crowded: 4 * part }
            }
            None => Self { cil: u64::MAX, heavy: u64::MAX, light: u64::MAX, crowded: u64::MAX },
        }
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests;
