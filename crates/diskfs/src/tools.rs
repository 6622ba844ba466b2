//! Programs that work on a whole volume: create, check, repair, show and rescue one.

pub mod check;
pub mod dump;
pub mod identity;
pub mod mkfs;
mod moment;
pub mod rescue;
mod stopped;
pub mod value;
