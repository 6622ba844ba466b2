//! Errors, and faults that tests plant.

pub(crate) mod error;
pub(crate) mod plant;
