//! The lowest module of the crate: errors, results, statistics, clock and machine.

pub(crate) mod clock;
pub(crate) mod error;
pub(crate) mod interrupt;
pub mod machine;
pub mod results;
pub mod stats;
pub(crate) mod sys;
