//! What is to be measured, and how.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use vfscale::{PATCHES, Patch, Scaling};

use crate::base::error::{Error, Result};
use crate::base::results::CaseName;
use crate::targets::TargetSpec;
use crate::workloads::{Description, Kind};

/// Fewer rounds than this say nothing about how far rounds disagree.
pub const ROUNDS_MIN: usize = 5;

/// How far rounds may disagree for a verdict, where nothing else is said.
pub const DISAGREEMENT_MAX: f64 = 0.3;

/// Making and checking the files of cases is taken for this share of the time that rounds take.
const MAKING_SHARE: f64 = 0.5;

/// The name that stands for all patches.
const ALL_PATCHES: &str = "all";

/// What takes the time of single operations.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pace {
    /// One after the other.
    Closed,
    /// So many operations in a second, of all workers together, begun at fixed times.
    Rate(f64),
}

/// A run; see the fields. [`Plan::new`] has the defaults.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The workloads, in order.
    pub workloads: Vec<&'static Description>,
    /// The targets, measured in turn. Ratios are over the first.
    pub targets: Vec<TargetSpec>,
    /// Numbers of workers. Ratios are over the first.
    pub threads: Vec<usize>,
    /// Whether workers are processes.
    pub processes: bool,
    /// How a worker process is started; it is to call [`serve_process`](crate::serve_process). With
    /// an empty one there are no worker processes.
    pub worker_command: Vec<std::ffi::OsString>,
    /// Whether each worker is kept on a CPU.
    pub pinned: bool,
    /// Settings with patches taken back, each all of its at once, in cases beside those that have them.
    pub before: Vec<Vec<String>>,
    /// CPUs to pretend there were, to the library.
    pub cpus: Option<usize>,
    /// Rounds that count, at least [`ROUNDS_MIN`].
    pub rounds: usize,
    /// How long a case works in a round, unless its amount of work is fixed.
    pub slice: Duration,
    /// How long a case works before anything counts.
    pub warm_up: Duration,
    /// The share of its CPUs that a case must get for a round to count, from 0 to 1. A round that gets less
    /// is made again, at most twice.
    pub share_min: f64,
    /// How far rounds may disagree (range over median) for a verdict.
    pub disagreement_max: f64,
    /// Whether the time of single operations is taken as well, and how.
    pub latency: Option<Pace>,
    /// Whether cases of the library make one round more with lock statistics on.
    pub lockstat: bool,
    /// Numbers of users, for workloads that have them. Each is a case.
    pub users: Vec<usize>,
    /// Files that each worker makes, for workloads that make many.
    pub files: u64,
    /// Bytes of a database, for workloads that have one.
    pub database: u64,
    /// A tree to work on instead of a made-up one.
    pub tree: Option<PathBuf>,
    /// Where random numbers start.
    pub random_seed: u64,
}

impl Plan {
    /// These workloads on these targets, with one worker.
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
            files: 20_000,
            database: 16 << 20,
            tree: None,
            random_seed: 1,
        }
    }

    /// Checks what goes together, and writes out `all` of the patches.
    ///
    /// # Errors
    /// Says what does not go together, and what would.
    pub fn check(&mut self) -> Result<()> {
        let usage = |text: String| Err(Error::Usage(text));
        if self.workloads.is_empty() {
            return usage("name at least one workload; --list describes them".to_owned());
        }
        if self.targets.is_empty() || self.threads.is_empty() {
            return usage("there must be a target and a number of threads".to_owned());
        }
        if let Some(n) = self.threads.iter().find(|n| **n == 0 || **n > 4096) {
            return usage(format!("--threads {n}: from 1 to 4096 can be had"));
        }
        if self.users.is_empty() || self.users.iter().any(|n| *n == 0 || *n > 100_000) {
            return usage("--users: from 1 to 100000 can be had".to_owned());
        }
        if self.files == 0 {
            return usage("--files 0: there must be something to make".to_owned());
        }
        if self.rounds < ROUNDS_MIN {
            let n = self.rounds;
            return usage(format!(
                "--rounds {n}: at least {ROUNDS_MIN} are needed to see how far they disagree"
            ));
        }
        let library = self.targets.iter().any(TargetSpec::is_library);
        if !library && !self.before.is_empty() {
            let why =
                "only `memory` and `volume:FILE` can take patches back; add `--target memory`";
            return usage(format!("--before: {why}"));
        }
        if !library && self.lockstat {
            let why = "only `memory` and `volume:FILE` have locks that can be looked at";
            return usage(format!("--lockstat: {why}"));
        }
        if !library && self.cpus.is_some() {
            return usage(
                "--cpus: only `memory` and `volume:FILE` can pretend; others have the kernel's CPUs"
                    .to_owned(),
            );
        }
        if library && self.processes {
            let why =
                "the library belongs to one process; use threads, or targets of the kind path:DIR";
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

    /// All cases of a workload, each with the number of its target.
    pub(crate) fn cases(&self, workload: &Description) -> Vec<(usize, CaseName)> {
        let users = match workload.kind {
            Kind::AimShort => self.users.iter().copied().map(Some).collect(),
            _ => vec![None],
        };
        let mut cases = Vec::new();
        for (target, spec) in self.targets.iter().enumerate() {
            let settings: Vec<_> = std::iter::once(vec![]).chain(self.before_of(spec)).collect();
            let of_target = self.threads.iter().flat_map(|threads| {
                let of_setting = |before: &Vec<String>, users: &Option<usize>| CaseName {
                    workload: workload.name.to_owned(),
                    target: spec.to_string(),
                    threads: *threads,
                    users: *users,
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

    /// About how long it takes if no round has to be made again: the rounds, and half as long for making and
    /// checking what cases work on. A fixed amount of work is taken for as long as a round.
    #[must_use]
    pub fn estimate(&self) -> Duration {
        let look = |wanted: bool, slices: u32| self.slice * if wanted { slices } else { 0 };
        let rounds = self.warm_up + self.slice * self.rounds as u32;
        let each = rounds + look(self.latency.is_some(), 2);
        let of_case = |(target, _): &(usize, CaseName)| {
            each + look(self.lockstat && self.targets[*target].is_library(), 1)
        };
        let cases = self.workloads.iter().flat_map(|workload| self.cases(workload));
        cases.map(|case| of_case(&case)).sum::<Duration>().mul_f64(1.0 + MAKING_SHARE)
    }

    /// The settings with patches taken back that differ for a target, as far as they make a difference to it.
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

    /// How the library is set up without these patches.
    pub(crate) fn scaling(&self, before: &[String]) -> Result<Scaling> {
        let all = self.cpus.map_or_else(Scaling::default, Scaling::with_slots);
        before.iter().try_fold(all, |scaling, name| scaling.and_before(name)).map_err(|e| {
            Error::Usage(format!("--before: {e}; `{ALL_PATCHES}` takes all of them back"))
        })
    }
}
