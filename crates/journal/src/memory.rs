//! How much memory may be taken by what is not home.
//!
//! # Purpose
//!
//! An item stays in memory until it is home, whatever its owner's caches are limited to. Log space bounds
//! how many such items there are, but a large log has room for more than memory has: an inode is logged
//! in a hundred bytes and takes five times as many. So the memory has a bound of its own
//! ([`Options::memory_bytes`](crate::Options::memory_bytes)), in what items say of themselves
//! ([`LogItem::memory_bytes`](crate::LogItem::memory_bytes)).
//!
//! # What is bounded how
//!
//! | what | from where on | what happens |
//! | --- | --- | --- |
//! | the CIL | an eighth of the bound | it is pushed, as when it is full |
//! | | twice that | a commit waits for the push to begin, holding nothing |
//! | the AIL | three eighths | the oldest items go home, until a quarter is left |
//! | | half | a transaction waits before it begins, holding nothing |
//!
//! What was in the AIL when somebody was last let in, the checkpoint on its way and the CIL are therefore
//! no more than the bound together, and what transactions under way change.
//!
//! # Why nobody waits for ever
//!
//! * Whoever waits has no transaction and no log space, and is not inside of the gate: a freeze does not
//!   wait for it. Its caller holds nothing that a transaction under way needs; that is so already for the
//!   sake of log space.
//! * A transaction that has begun is not made to wait, nor one that rolls: it ends, and with it its pins.
//! * While somebody waits the AIL's worker goes on: what is pinned by the CIL it pushes to the log first,
//!   with log space that transactions have given. It begins no transaction, and takes memory for one batch of
//!   items, which does not depend on the bound.
//! * What enters the AIL meanwhile comes from the CIL and from transactions under way, of which there come no
//!   more. So it gets empty, if it has to.
//! * An item that enters and is too much wakes the worker, after the worker has taken the last such wish and
//!   before it looks how far the log is durable, or after that and for the next time.
//! * A shutdown wakes whoever waits.

/// From how many bytes on what happens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Levels {
    /// The CIL is pushed.
    pub(crate) cil: u64,
    /// Items of the AIL are written home ...
    pub(crate) heavy: u64,
    /// ... until they take no more than this.
    pub(crate) light: u64,
    /// Nobody begins a transaction.
    pub(crate) crowded: u64,
}

impl Levels {
    /// Those of a bound in bytes; out of reach if there is none.
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
