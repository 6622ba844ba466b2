//! What every other room of the crate stands on.

pub(crate) mod clock;
pub(crate) mod error;
pub(crate) mod interrupt;
pub mod machine;
pub mod results;
pub mod stats;
pub(crate) mod sys;
