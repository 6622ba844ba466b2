//! Tests of pools: branches of a volume.

#![cfg(not(any(loom, shuttle)))]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;
mod counted;
mod cuts;
mod diffs;
mod fixed;
mod full;
mod given_back;
#[path = "../holes_common/mod.rs"]
mod holes_common;
mod ingests;
mod layers;
mod limit;
mod live;
mod many;
mod merges;
mod opened;
mod own_limit;
mod patches;
mod pools;
mod rebases;
mod space;
mod travels;
#[path = "../tree_common/mod.rs"]
mod tree_common;
mod verbs;
mod views;
mod watched;
