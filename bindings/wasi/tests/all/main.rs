//! Tests of both hosts by guests, on memory, volumes and branches.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod asynchronous;
mod branches;
mod confined;
mod examples;
mod files;
mod handles;
mod limits;
mod puppet;
mod suite;
mod trees;
