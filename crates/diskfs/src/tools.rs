//! Programs over a whole volume: making, checking, repairing, showing and rescuing one.

pub mod check;
pub mod dump;
pub mod identity;
pub mod mkfs;
mod moment;
pub mod rescue;
mod stopped;
pub mod value;
