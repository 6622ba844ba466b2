//! How work is measured: the work itself, the loop that takes its time, and the CPU it runs on.

pub(crate) mod player;
pub(crate) mod seat;
pub(crate) mod work;
