//! Random schedules of the library.

#![cfg(shuttle)]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;
mod evict;
mod growth;
mod mounts;
mod moves;
mod overwrite;
mod pipes;
mod readdir;
mod take_down;
mod times;
mod tree;
mod watching;
