//! Errors.

pub(crate) mod error;
