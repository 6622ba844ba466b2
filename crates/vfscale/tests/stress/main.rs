//! Many threads that change one tree at random, and the invariants that must hold.

#![cfg(not(any(loom, shuttle)))]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod everything;
mod tree;
mod volume;
