//! Comparisons with the kernel's tmpfs, and of drivers with each other.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod backed;
mod common;
mod faults;
mod inode_flags;
#[path = "../../../vfs/tests/tables/mod.rs"]
mod tables;
mod tmpfs;
