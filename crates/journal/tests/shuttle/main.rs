//! Random schedules of the journal.

#![cfg(shuttle)]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../common/mod.rs"]
mod common;
mod delayed;
mod journal;
