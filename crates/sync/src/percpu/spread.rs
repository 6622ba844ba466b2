//! Memory that structures take for no other reason than that several CPUs use them, and its bound.
//!
//! # Purpose
//!
//! A table into which several CPUs insert gets more buckets than its entries need, so that these
//! CPUs seldom meet ([`table`](crate::rcu::table)); a count that they all change gets a part for
//! each. That costs kilobytes for each CPU of the machine, nobody asked for it, and no file system
//! can charge it to whoever made the directory: what is charged would change with how threads meet.
//! So it has one bound, for the process. Where it is reached, structures stay as they are, which is
//! slower and always right.
//!
//! # Invariants
//!
//! * What is [taken](Room::take) and not yet given back is never more than [`BYTES_MAX`].
//! * An array that is freed after a grace period is given back when it is freed.
//!
//! The sum is one line, written when something grows or goes, and by no other call.

// That of the process, in models too: it outlives their executions.
use std::sync::atomic::{AtomicUsize, Ordering};

/// The most that all structures of the process take together because several CPUs use them, in
/// bytes.
pub const BYTES_MAX: usize = 32 << 20;

static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// Bytes that are taken now.
#[must_use]
pub fn taken() -> usize {
    TAKEN.load(Ordering::Relaxed)
}

/// Whether so many bytes could be taken now. No more than a hint.
pub(crate) fn has_room(bytes: usize) -> bool {
    bytes <= BYTES_MAX && taken() <= BYTES_MAX - bytes
}

/// Bytes that were taken, given back when this is dropped. Never blocks.
#[derive(Debug)]
#[must_use = "they are given back when this is dropped"]
pub struct Room {
    bytes: usize,
}

impl Room {
    /// Takes `bytes`, or nothing if there are fewer.
    pub fn take(bytes: usize) -> Option<Room> {
        if !has_room(bytes) {
            return None;
        }
        // Relaxed: it is a number, and tells of nothing else.
        let more = |taken: usize| taken.checked_add(bytes).filter(|sum| *sum <= BYTES_MAX);
        TAKEN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(Room { bytes })
    }

    /// Leaves them taken, for whoever knows how many they were: [`give`].
    pub(crate) fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        give(self.bytes);
    }
}

/// Gives back what was [kept](Room::keep).
pub(crate) fn give(bytes: usize) {
    let before = TAKEN.fetch_sub(bytes, Ordering::Relaxed);
    debug_assert!(before >= bytes, "more is given back than was taken");
}
