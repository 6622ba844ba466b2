//! The wait for a lock's word: the thread spins, and then sleeps until the lock is released.

use crate::atomic::{AtomicU32, Ordering};
use crate::lock::park;
use crate::lock::stat::Waiting;
use crate::lock::wait::Spin;

/// Flag in every lock's word: a thread sleeps, or is about to. The thread that releases the lock
/// checks it, under the lock of the sleepers' queue if it is set.
pub(super) const PARKED: u32 = 2;

/// The outcome of a wait.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Got {
    /// `claim` took the lock.
    Claimed,
    /// The thread that released the lock passed it on to this thread.
    PassedOn,
}

/// Waits for a lock until `claim` takes it or its holder passes it on. The thread sleeps on `key`,
/// as one of `kind`, and only while the `held` bit is set in `word`.
pub(super) fn contend(
    word: &AtomicU32,
    held: u32,
    (key, kind): (usize, park::Token),
    waiting: &mut Waiting,
    claim: impl Fn() -> bool,
) -> Got {
    let mut spin = Spin::new();
    let mut lost = 0;
    while !claim() {
        if spin.spin() || !mark_parked(word, held) {
            continue;
        }
        waiting.park();
        let still_held = || word.load(Ordering::Relaxed) & (held | PARKED) == held | PARKED;
        match park::park(key, park::token(kind, lost), still_held) {
            Some(park::HANDOFF) => return Got::PassedOn,
            Some(_) => lost += 1,
            None => {}
        }
        spin = Spin::new();
    }
    Got::Claimed
}

/// Announces a sleeper on a held lock. Returns `false` if the lock is free, or its word changed.
fn mark_parked(word: &AtomicU32, held: u32) -> bool {
    let now = word.load(Ordering::Relaxed);
    let parked = now | PARKED;
    now & held != 0
        && (now == parked
            || word
                .compare_exchange_weak(now, parked, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok())
}
