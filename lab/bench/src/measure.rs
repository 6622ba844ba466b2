//! Measurement of one worker: its work, the loop that takes the time, and the CPU it runs on.

pub(crate) mod player;
pub(crate) mod seat;
pub(crate) mod work;

pub use player::{Act, Player, Sample, Timing};
pub use seat::Seat;
pub use work::Work;
