//! Tests of devices.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod backing;
mod devices;
mod files;
#[cfg(feature = "rbd")]
mod rbd;
