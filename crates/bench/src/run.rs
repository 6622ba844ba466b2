//! Runs: what is measured, by which workers, and in which order.

pub mod plan;
mod published;
mod rounds;
pub(crate) mod team;

pub use published::{Seeds, TMPFS, run_seeds};
pub use rounds::{Watch, run};
pub use team::{Failure, serve_process};
