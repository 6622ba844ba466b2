//! Tests of the library that do not depend on other tests in their process.

#![cfg(not(any(loom, shuttle)))]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod bad_input;
mod cited_patches;
mod common;
mod discards;
#[path = "../holes_common/mod.rs"]
mod holes_common;
mod hotplug;
mod inode_flags;
mod limits;
mod linux_rules;
mod noatime;
mod overwrite;
mod parsers;
mod pipes;
mod procfs;
mod seals;
mod shared_cache;
mod shared_subtrees;
mod sockets;
mod space;
mod std_names;
mod transfer;
mod trees;
mod volumes;
mod watching;
