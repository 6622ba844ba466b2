//! Tests of reports.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod browser;
mod schema;
