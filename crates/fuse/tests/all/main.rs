//! Tests of mounts.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod budgets;
#[path = "../common/mod.rs"]
mod common;
mod data;
mod descriptor;
mod direct;
mod idmap;
mod inode_flags;
mod locks;
mod mapped;
mod names;
mod overlay;
mod permissions;
mod polling;
mod times;
mod writeback;
mod xattrs;
