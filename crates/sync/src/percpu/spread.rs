//! The bound on memory that structures take only because several CPUs use them.
//!
//! # Purpose
//!
//! A table into which several CPUs insert gets more buckets than its entries need, so these CPUs
//! seldom meet ([`table`](crate::rcu::table)); a count that they all change gets a part for each.
//! That costs kilobytes for each CPU of the machine. No caller requested this memory, and no file
//! system can charge it to the process that made the directory: the charge would depend on how
//! threads meet. So it has one bound, for the process. Where the bound is reached, structures are
//! not scaled further, which is slower and always correct.
//!
//! # Invariants
//!
//! * The bytes [taken](Reservation::take) and not yet given back never exceed [`BYTES_MAX`].
//! * An array that is freed after a grace period gives its bytes back when it is freed.
//!
//! The sum is on one line, written when a structure grows or is freed, and by no other call.

// The process's atomic, in models too: it outlives their executions.
use std::sync::atomic::{AtomicUsize, Ordering};

/// Maximum of the memory that all structures of the process take for being scaled, in bytes.
pub const BYTES_MAX: usize = 32 << 20;

static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// Returns the number of bytes taken now.
pub fn taken() -> usize {
    TAKEN.load(Ordering::Relaxed)
}

/// Returns whether `bytes` could be taken now. Only a hint.
pub(crate) fn has_room(bytes: usize) -> bool {
    bytes <= BYTES_MAX && taken() <= BYTES_MAX - bytes
}

/// Bytes that were taken, given back when this is dropped. Never blocks.
#[derive(Debug)]
#[must_use = "they are given back when this is dropped"]
pub struct Reservation {
    bytes: usize,
}

impl Reservation {
    /// Takes `bytes`; returns `None` if fewer are left.
    pub fn take(bytes: usize) -> Option<Reservation> {
        if !has_room(bytes) {
            return None;
        }
        // Relaxed: the number publishes no other data.
        let more = |taken: usize| taken.checked_add(bytes).filter(|sum| *sum <= BYTES_MAX);
        TAKEN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(Reservation { bytes })
    }

    /// Leaves them taken; the caller stores their number for [`give`].
    pub(crate) fn leak(self) {
        std::mem::forget(self);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        give(self.bytes);
    }
}

/// Gives back bytes that were [left taken](Reservation::leak).
pub(crate) fn give(bytes: usize) {
    let before = TAKEN.fetch_sub(bytes, Ordering::Relaxed);
    debug_assert!(before >= bytes, "more is given back than was taken");
}
