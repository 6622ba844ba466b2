//! Tests of the program over its standard input and output, on images.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod branches;
mod client;
mod hostile;
mod mounted;
