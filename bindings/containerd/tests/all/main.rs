//! Tests of the program by the calls that containerd makes, as root on an ext4 of their own.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../../src/api.rs"]
#[allow(dead_code, reason = "the program uses the rest")]
mod api;
mod client;
mod crashes;
mod figures;
mod layers;
mod tree;
