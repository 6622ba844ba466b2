//! The frame of a workload: the scene of a case, and the steps that prepare and check it.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::base::error::Outcome;
use crate::measure::work::Work;
use crate::targets::Calls;

/// What all workers of a case agree on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Scene {
    /// How many workers there are.
    pub workers: usize,
    /// Users, for workloads that have them; 0 for others.
    pub users: usize,
    /// Files that each worker makes, for workloads that make many.
    pub files: u64,
    /// Bytes of a database.
    pub database: u64,
    /// A tree to work on instead of a made-up one.
    pub tree: Option<PathBuf>,
    /// Where random numbers start.
    pub random_seed: u64,
}

/// A kind of experiment.
pub(crate) trait Workload {
    /// What its workers do.
    type Work<C: Calls>: Work + 'static;

    /// Makes the files of a case.
    fn prepare<C: Calls>(&self, calls: &mut C, scene: &Scene) -> Outcome<()>;

    /// The work of one worker, from 0.
    fn work<C: Calls>(&self, calls: C, scene: &Scene, worker: usize) -> Outcome<Self::Work<C>>;

    /// Checks the whole tree after the last round.
    fn inspect<C: Calls>(&self, calls: &mut C, scene: &Scene) -> Outcome<()>;
}

/// Where the workers of a workload meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// All in one directory, on names of their own.
    Same,
    /// Each in a directory of its own.
    Own,
    /// All on one file, or between two directories that all share.
    Shared,
}
