//! Crashes and failing devices.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod ace;
mod below;
mod branch;
mod churn;
mod file_device;
mod generations;
mod harness;
mod late;
mod names;
mod passing;
mod replaced;
mod syncs;
mod volume;
