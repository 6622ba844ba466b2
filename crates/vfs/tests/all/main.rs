//! Tests of the VFS on drivers for tests, and comparisons with the kernel.

#![cfg(not(any(loom, shuttle)))]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod driver_errors;
mod icache;
mod kept;
mod linux_locks;
mod lookup;
#[path = "../numbers/mod.rs"]
mod numbers;
#[path = "../tables/mod.rs"]
mod tables;
