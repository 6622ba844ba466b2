//! Waiting in tests, and a limit of time for each test.
//!
//! # Purpose
//!
//! Tests wait for other threads and processes here and nowhere else, so that each wait has a limit
//! and a name: [`wait_until`] for what has to come, [`stays`] for what must not. [`pause`] is the
//! time that a slow party of a test takes. `scripts/test` starts test programs by the program
//! `limited` of this crate, which ends one whose test hangs, and names the test.
//!
//! # Invariants
//!
//! * This crate uses no other, so that the tests of every crate may use it.
//! * `crates/tidy` refuses `thread::sleep` in tests outside of this crate.

use std::fmt::Display;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

pub mod limit;

/// The longest wait for a state: long enough for a machine with many other loads.
pub const LIMIT: Duration = Duration::from_secs(60);

const POLL: Duration = Duration::from_millis(1);

/// Excludes the other tests of the process that call it, until the result is dropped: for what all
/// threads of a process share, such as its memory or the counters of its locks.
pub fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Blocks until something is so, for at most [`LIMIT`].
///
/// # Panics
/// If it does not come; the message has `what`, and the caller's line.
#[track_caller]
pub fn wait_until(what: impl Display, is_so: impl FnMut() -> bool) {
    assert!(comes(LIMIT, is_so), "in vain: {what}");
}

/// Blocks until something is so, for at most a time; returns whether it came.
pub fn comes(limit: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    while !is_so() {
        if begun.elapsed() >= limit {
            return false;
        }
        thread::sleep(POLL);
    }
    true
}

/// Blocks for a time in which something has to stay so. It fails only if a rule is broken: a slow
/// machine lets it pass.
///
/// # Panics
/// If it does not stay so; the message has `what`, and the caller's line.
#[track_caller]
pub fn stays(what: impl Display, time: Duration, mut is_so: impl FnMut() -> bool) {
    assert!(!comes(time, || !is_so()) && is_so(), "no longer: {what}");
}

/// Blocks for a time: what a slow party of a test takes, such as a device, or a tick of a clock. No
/// test relies on another thread's progress in that time.
pub fn pause(time: Duration) {
    thread::sleep(time);
}

#[cfg(test)]
mod tests;
