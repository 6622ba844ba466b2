//! Runs: plans, teams of workers, and rounds.

mod instance;
pub mod plan;
mod published;
mod rounds;
pub(crate) mod team;

pub use published::{PublishedRun, TMPFS, run_published};
pub use rounds::{Watch, run};
pub use team::{Failure, Team, serve_process};
