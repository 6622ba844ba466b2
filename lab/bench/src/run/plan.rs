//! Plans: the workloads and targets of a run, and how they are measured.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use vfscale::{PATCHES, Patch, Scaling};

use crate::base::error::{Error, Result};
use crate::base::machine::usable_cpus;
use crate::base::results::CaseName;
use crate::targets::TargetSpec;
use crate::workloads::{Description, Kind};

/// Minimum number of rounds: fewer do not show how far rounds disagree.
pub const ROUNDS_MIN: usize = 5;

/// Default bound on the disagreement of rounds that still gives a verdict.
pub const DISAGREEMENT_MAX: f64 = 0.3;

/// Estimated time for preparing and checking cases, as a share of the time of rounds.
const MAKING_SHARE: f64 = 0.5;

/// Workers of one CPU that a slice suffices for. With more of them, the scheduler runs too few of
/// them in it, or each too seldom, and rounds would disagree.
const WORKERS_PER_CPU: usize = 6;

/// The name for all patches together.
const ALL_PATCHES: &str = "all";

/// The pace at which single operations are timed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pace {
    /// One after the other.
    Closed,
    /// This many operations per second of all workers together, begun at fixed times.
    Rate(f64),
}

/// The plan of a run. [`Plan::new`] sets the defaults.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The workloads, in order.
    pub workloads: Vec<&'static Description>,
    /// The targets, measured alternately. Ratios are over the first.
    pub targets: Vec<TargetSpec>,
    /// Numbers of workers. Ratios are over the first.
    pub threads: Vec<usize>,
    /// Whether workers are processes.
    pub processes: bool,
    /// The command that starts a worker process, which must call
    /// [`serve_process`](crate::serve_process). If empty, worker processes are unavailable.
    pub worker_command: Vec<std::ffi::OsString>,
    /// Whether each worker is pinned to a CPU.
    pub pinned: bool,
    /// Sets of patches. Each set gives additional cases in which all its patches are disabled.
    pub before: Vec<Vec<String>>,
    /// Number of CPUs to pretend to the library.
    pub cpus: Option<usize>,
    /// Rounds that count, at least [`ROUNDS_MIN`].
    pub rounds: usize,
    /// Duration of a round, unless its amount of work is fixed; longer for cases with many workers
    /// for each CPU ([`slice_of`](Self::slice_of)).
    pub slice: Duration,
    /// Duration of the warm-up, which does not count.
    pub warm_up: Duration,
    /// The share of its CPUs that a case must get for a round to count, from 0 to 1. A round that
    /// gets less is repeated, at most twice.
    pub share_min: f64,
    /// Maximum disagreement of rounds (range over median) that still gives a verdict.
    pub disagreement_max: f64,
    /// The pace at which single operations are timed as well, if requested.
    pub latency: Option<Pace>,
    /// Whether cases of the library get one more round with lock statistics on.
    pub lockstat: bool,
    /// Numbers of users, for workloads that have users. Each number is a case.
    pub users: Vec<usize>,
    /// Numbers of readers and of writers of `slob`, each pair a case. If empty, every other one of
    /// the workers reads.
    pub mixes: Vec<(usize, usize)>,
    /// Number of files of each worker, for workloads that create many or use random ones.
    pub files: u64,
    /// Size of a database in bytes, for workloads that have one.
    pub database: u64,
    /// Number of bytes of each call of workloads that write and read pieces, a multiple of 1 KiB.
    pub io_size: usize,
    /// A tree to copy instead of making one up.
    pub tree: Option<PathBuf>,
    /// Seed of the random numbers.
    pub random_seed: u64,
}

impl Plan {
    /// Plans these workloads on these targets, with one worker.
    pub fn new(workloads: Vec<&'static Description>, targets: Vec<TargetSpec>) -> Plan {
        Plan {
            workloads,
            targets,
            threads: vec![1],
            processes: false,
            worker_command: vec![],
            pinned: true,
            before: vec![],
            cpus: None,
            rounds: 7,
            slice: Duration::from_millis(200),
            warm_up: Duration::from_millis(100),
            share_min: 0.9,
            disagreement_max: DISAGREEMENT_MAX,
            latency: None,
            lockstat: false,
            users: vec![10, 100],
            mixes: vec![],
            files: 20_000,
            database: 16 << 20,
            io_size: 4096,
            tree: None,
            random_seed: 1,
        }
    }

    /// Checks that the fields fit together, and replaces `all` by the names of the patches.
    ///
    /// # Errors
    /// Returns [`Error::Usage`], with advice, if fields contradict each other.
    pub fn check(&mut self) -> Result<()> {
        let usage = |text: String| Err(Error::Usage(text));
        if self.workloads.is_empty() {
            return usage("name at least one workload; --list describes them".to_owned());
        }
        if self.targets.is_empty() || self.threads.is_empty() {
            return usage("there must be a target and a number of threads".to_owned());
        }
        if let Some(n) = self.threads.iter().find(|n| **n == 0 || **n > 4096) {
            return usage(format!("--threads {n}: must be from 1 to 4096"));
        }
        if self.users.is_empty() || self.users.iter().any(|n| *n == 0 || *n > 100_000) {
            return usage("--users: must be from 1 to 100000".to_owned());
        }
        let too_many = |mix: &&(usize, usize)| !(1..=4096).contains(&mix.0.saturating_add(mix.1));
        if let Some((readers, writers)) = self.mixes.iter().find(too_many) {
            let why = "must be from 1 to 4096 together";
            return usage(format!("--mix {readers}:{writers}: {why}"));
        }
        if self.files == 0 {
            return usage("--files 0: must be at least 1".to_owned());
        }
        if self.io_size == 0 || !self.io_size.is_multiple_of(1024) {
            return usage(format!("--io-size: {} bytes is no multiple of 1 KiB", self.io_size));
        }
        if self.rounds < ROUNDS_MIN {
            let n = self.rounds;
            return usage(format!(
                "--rounds {n}: at least {ROUNDS_MIN} are needed to see how far they disagree"
            ));
        }
        let library = self.targets.iter().any(TargetSpec::is_library);
        if !library && !self.before.is_empty() {
            let why = "only `memory` and `volume:FILE` can disable patches; add `--target memory`";
            return usage(format!("--before: {why}"));
        }
        if !library && self.lockstat {
            let why = "only `memory` and `volume:FILE` have lock statistics";
            return usage(format!("--lockstat: {why}"));
        }
        if !library && self.cpus.is_some() {
            return usage("--cpus: only `memory` and `volume:FILE` can pretend CPUs".to_owned());
        }
        if library && self.processes {
            let why =
                "the library works in one process; use threads, or targets of the kind path:DIR";
            return usage(format!("--processes: {why}"));
        }
        if self.processes && self.worker_command.is_empty() {
            return usage("--processes: this program can't start worker processes".to_owned());
        }
        let of_some = |patch: &&Patch| self.targets.iter().any(|target| target.has_patch(patch));
        let all: Vec<_> =
            PATCHES.iter().filter(of_some).map(|patch| patch.name().to_owned()).collect();
        for before in &mut self.before {
            if before.iter().any(|name| name == ALL_PATCHES) {
                before.clone_from(&all);
            }
        }
        let of_none = |patch: &&Patch| !of_some(patch);
        for patch in PATCHES.iter().filter(of_none) {
            if self.before.iter().flatten().any(|name| name == patch.name()) {
                let why = "is about volumes; add `--target volume:FILE`";
                return usage(format!("--before: `{}` {why}", patch.name()));
            }
        }
        self.before.iter().try_for_each(|before| self.scaling(before).map(drop))
    }

    /// Returns all cases of a workload, each with the number of its target.
    pub(crate) fn cases(&self, workload: &Description) -> Vec<(usize, CaseName)> {
        let users = match workload.kind {
            Kind::Aim(_) => self.users.iter().copied().map(Some).collect(),
            _ => vec![None],
        };
        let teams: Vec<(usize, Option<usize>)> = match workload.kind {
            Kind::Slob if !self.mixes.is_empty() => {
                self.mixes.iter().map(|(read, write)| (read + write, Some(*read))).collect()
            }
            _ => self.threads.iter().map(|threads| (*threads, None)).collect(),
        };
        let mut cases = Vec::new();
        for (target, spec) in self.targets.iter().enumerate() {
            let settings: Vec<_> = std::iter::once(vec![]).chain(self.before_of(spec)).collect();
            let of_target = teams.iter().flat_map(|(threads, readers)| {
                let of_setting = |before: &Vec<String>, users: &Option<usize>| CaseName {
                    workload: workload.name.to_owned(),
                    target: spec.to_string(),
                    threads: *threads,
                    users: *users,
                    readers: *readers,
                    before: before.clone(),
                };
                let users = &users;
                settings.iter().flat_map(move |before| {
                    users.iter().map(move |users| (target, of_setting(before, users)))
                })
            });
            cases.extend(of_target);
        }
        cases
    }

    /// Returns the duration of a round with this many workers: the slice, times the workers of a
    /// CPU over six if there are more.
    #[must_use]
    pub fn slice_of(&self, workers: usize) -> Duration {
        let per_cpu = workers.div_ceil(usable_cpus().len().max(1));
        self.slice * (per_cpu / WORKERS_PER_CPU).max(1) as u32
    }

    /// Estimates the duration of the run without repeated rounds: the rounds, and half as long for
    /// preparing and checking cases. A fixed amount of work is estimated as one slice.
    #[must_use]
    pub fn estimate(&self) -> Duration {
        let of_case = |(target, name): &(usize, CaseName)| {
            let timed = if self.latency.is_some() { 2 } else { 0 };
            let of_locks = u32::from(self.lockstat && self.targets[*target].is_library());
            let slices = self.rounds as u32 + timed + of_locks;
            self.warm_up + self.slice_of(name.threads) * slices
        };
        let cases = self.workloads.iter().flat_map(|workload| self.cases(workload));
        cases.map(|case| of_case(&case)).sum::<Duration>().mul_f64(1.0 + MAKING_SHARE)
    }

    /// Returns the different sets of disabled patches for a target, without the patches that do not
    /// affect it.
    pub(crate) fn before_of(&self, target: &TargetSpec) -> Vec<Vec<String>> {
        let has = |name: &&String| {
            PATCHES.iter().any(|patch| patch.name() == name.as_str() && target.has_patch(patch))
        };
        let of = |before: &Vec<String>| before.iter().filter(has).cloned().collect::<Vec<_>>();
        let mut settings = Vec::new();
        for setting in self.before.iter().map(of) {
            if !setting.is_empty() && !settings.contains(&setting) {
                settings.push(setting);
            }
        }
        settings
    }

    /// Returns the scaling settings of the library without these patches.
    pub(crate) fn scaling(&self, before: &[String]) -> Result<Scaling> {
        let all = self.cpus.map_or_else(Scaling::default, Scaling::with_slots);
        before.iter().try_fold(all, |scaling, name| scaling.and_before(name)).map_err(|e| {
            Error::Usage(format!("--before: {e}; `{ALL_PATCHES}` disables all of them"))
        })
    }
}
