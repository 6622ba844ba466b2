//! Random schedules of volumes.

#![cfg(shuttle)]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod cache;
mod credits;
mod cuts;
mod names;
mod stops;
mod volume;
mod volumes;
