//! Random interleavings: of the models of tables, which loom explores as well, of sections, slabs,
//! work items and the pool of their threads.

#![cfg(shuttle)]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[allow(dead_code, reason = "of the crate's own file")]
#[path = "../../src/caught.rs"]
mod caught;
mod pool;
mod sections;
mod slabs;
#[path = "../loom/table.rs"]
mod table;
mod thread;
mod work;
#[allow(dead_code, reason = "of the crate's own file")]
#[path = "../../src/worker.rs"]
mod worker;

// Of the crate, for `worker`.
use vfscale_sync::{atomic, cpu, fork, lock, lock_class};
