//! Tests of the journal with real threads, power failures and failing devices.

#![cfg(not(shuttle))]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../common/mod.rs"]
mod common;
mod crash;
mod faults;
mod stress;
