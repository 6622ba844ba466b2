//! Tests that count the locks or the memory of the whole process, so each runs alone in it
//! ([`vfscale_harness::alone`]).

#![cfg(not(any(loom, shuttle)))]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;
mod no_locks;
mod scaling;
mod scaling_volumes;
mod spread;
