//! Random schedules of the VFS on drivers for tests.

#![cfg(shuttle)]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod kept;
mod locks;
mod lookup;
mod mounts;
#[path = "../numbers/mod.rs"]
mod numbers;
#[path = "../tables/mod.rs"]
mod tables;
