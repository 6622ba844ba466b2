//! Comparisons with the kernel's tmpfs.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;
mod faults;
mod inode_flags;
mod tmpfs;
