//! The error of the crate, the classes of its locks, and maps by numbers.

pub mod fault;
pub(crate) mod numbers;
pub mod open_error;
pub mod ranks;
