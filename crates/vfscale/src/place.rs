//! The place where a volume lies: a device of its own, or a branch of a pool.

pub(crate) mod convert;
pub(crate) mod current;
pub(crate) mod devices;
pub(crate) mod lower;
pub(crate) mod places;
pub(crate) mod present;
pub(crate) mod shared;
mod still;
pub(crate) mod switch;
