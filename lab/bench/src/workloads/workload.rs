//! The traits of a workload, and the parameters of a case.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::base::error::Outcome;
use crate::measure::work::Work;
use crate::targets::Calls;

/// Parameters common to all workers of a case.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Scene {
    /// Number of workers.
    pub workers: usize,
    /// How many of the workers only read, the last ones; `None` for every other one.
    pub readers: Option<usize>,
    /// Number of users, for workloads that have users; otherwise 0.
    pub users: usize,
    /// Number of files of each worker, for workloads that create many or use random ones.
    pub files: u64,
    /// Size of a database in bytes.
    pub database: u64,
    /// Number of bytes of each call, for workloads that have none of their own; at least 8.
    pub io_size: usize,
    /// A tree to copy instead of generating one.
    pub tree: Option<PathBuf>,
    /// Seed of the random numbers.
    pub random_seed: u64,
}

/// An experiment.
pub(crate) trait Workload {
    /// The work of a worker.
    type Work<C: Calls>: Work + 'static;

    /// Creates the files of a case.
    fn prepare<C: Calls>(&self, calls: &mut C, scene: &Scene) -> Outcome<()>;

    /// Creates the work of one worker, numbered from 0.
    fn work<C: Calls>(&self, calls: C, scene: &Scene, worker: usize) -> Outcome<Self::Work<C>>;

    /// Checks the whole tree after the last round.
    fn inspect<C: Calls>(&self, calls: &mut C, scene: &Scene) -> Outcome<()>;
}

/// The files on which the workers of a workload operate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Each worker's own names, all in one directory.
    Same,
    /// Each worker's own directory.
    Own,
    /// One file, or two directories, shared by all workers.
    Shared,
}
