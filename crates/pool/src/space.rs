//! Places: which are taken, and what is promised of the others.

pub(crate) mod bitmaps;
pub(crate) mod reservations;
