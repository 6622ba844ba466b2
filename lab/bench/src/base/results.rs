//! The results of a run, as they are written to JSON.
//!
//! The schema consists of the fields of [`Report`] and of the types in it, by their names.
//! `docs/results/README.md` describes it for readers who don't know Rust. Fields may be added; none
//! is removed, renamed or given another meaning without a new [`SCHEMA`].

use serde::{Deserialize, Serialize};

use crate::base::machine::{self, Machine, Mount};
use crate::base::stats::{Ratio, Spread};

/// Name and version of the schema.
pub const SCHEMA: &str = "vfscale-bench/1";

/// All results of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// The schema, [`SCHEMA`].
    pub schema: String,
    /// The command line of the process that measured.
    #[serde(default)]
    pub command: String,
    /// Start of the run, in seconds since 1970.
    pub started: u64,
    /// Duration of the run, in seconds.
    pub seconds: f64,
    /// Whether it was stopped before its end; the results are of the rounds until then.
    pub interrupted: bool,
    /// A result for each case.
    pub results: Vec<CaseResult>,
    /// Comparisons of two cases.
    pub ratios: Vec<Comparison>,
    /// Failed cases, with the reason. They have no result.
    pub failures: Vec<Failed>,
    /// Cases that the target does not support, with the reason.
    pub skipped: Vec<Failed>,
    /// Counts of shared cache lines, from a run of the published experiments.
    #[serde(default)]
    pub counts: Vec<SharedLines>,
}

/// The cache lines that two CPUs share while they make an operation, each on its own objects: those
/// that both touch and one writes. No clock is involved. Recordings of one case may still differ,
/// for example by a thread that works in the background.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedLines {
    /// The workload.
    pub workload: String,
    /// The kind of target, `memory` or `volume`.
    pub target: String,
    /// Disabled patches.
    pub before: Vec<String>,
    /// Number of operations that were recorded of each CPU.
    pub operations: u64,
    /// The least number of shared lines of all recordings.
    pub lines: u64,
    /// How often one CPU touched shared lines, in the recording with the fewest touches.
    pub touches_min: u64,
    /// How often one CPU touched them, in the recording with the most touches.
    pub touches_max: u64,
}

/// The name of a case: the workload, the target, and how it was measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaseName {
    /// The workload.
    pub workload: String,
    /// The target, as the user named it.
    pub target: String,
    /// The number of workers.
    pub threads: usize,
    /// The number of users, for workloads that have them.
    pub users: Option<usize>,
    /// How many of the workers only read, if that was chosen.
    #[serde(default)]
    pub readers: Option<usize>,
    /// Disabled patches.
    pub before: Vec<String>,
}

/// A case that has no result.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Failed {
    /// The case.
    #[serde(flatten)]
    pub case: CaseName,
    /// The reason, in words.
    pub reason: String,
}

/// The result of a case.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CaseResult {
    /// The case.
    #[serde(flatten)]
    pub case: CaseName,
    /// The document whose experiment the workload repeats.
    #[serde(rename = "seed")]
    pub source: String,
    /// The counted unit.
    pub unit: String,
    /// Operations per second of all workers together.
    pub ops_per_s: Spread,
    /// The rate in the unit of the document, if that is another.
    #[serde(rename = "seed_rate")]
    pub source_rate: Option<SourceRate>,
    /// The range of the rounds over their median.
    pub disagreement: f64,
    /// Operations per second of each round, in their order.
    pub rounds: Vec<f64>,
    /// Number of rounds that were discarded and repeated because the process did not get its CPUs.
    pub rounds_disturbed: usize,
    /// Share of its CPUs that the case got in the rounds that count.
    pub cpu: CpuShare,
    /// Times of single operations, if requested.
    pub latency_ns: Option<Latency>,
    /// Rates in the course of a fixed amount of work.
    pub over_time: Option<OverTime>,
    /// Work of a volume's journal during the rounds.
    pub journal: Option<JournalWork>,
    /// Lock statistics of a separate round, if requested; most contended classes first.
    pub lockstat: Option<Vec<LockRow>>,
    /// The work of that round.
    #[serde(default)]
    pub lockstat_round: Option<LockRound>,
    /// Whether every check of the file system passed. Cases that fail one have no result.
    pub verified: bool,
    /// Whether workers were processes.
    pub processes: bool,
    /// Whether each worker was pinned to a CPU.
    pub pinned: bool,
    /// Number of pretended CPUs.
    pub cpus_pretended: Option<usize>,
    /// Whether each worker had a working directory of its own. Where the system forbids that,
    /// relative paths began at a descriptor.
    pub own_cwd: bool,
    /// The machine.
    pub machine: Machine,
    /// The kernel.
    pub kernel: String,
    /// The mount options of the target, `memory` for memory.
    pub mount_options: String,
    /// The mount of a directory.
    pub mount: Option<Mount>,
    /// The commit that the program was built from, or its version.
    pub commit: String,
    /// Seed of the random numbers.
    pub random_seed: u64,
}

/// A rate in a document's own unit.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SourceRate {
    /// The unit.
    pub unit: String,
    /// The rate.
    #[serde(flatten)]
    pub rate: Spread,
}

/// Share of its CPUs that a case got.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct CpuShare {
    /// The smallest share of any worker in any round, from 0 to 1: 1 less the share of time for
    /// which it was ready and waited, less the share that the host or a limit took.
    pub min: f64,
    /// The median over the rounds of the smallest share of any worker.
    pub median: f64,
    /// Mean number of CPUs busy with the workers while they worked: below the number of workers if
    /// they slept, for example for a lock or a disk.
    pub used: f64,
    /// The part of `used` that the kernel took for them.
    #[serde(default)]
    pub system: f64,
    /// The largest share that the host or a limit took in a round.
    pub stolen_max: f64,
}

/// Times of single operations, in nanoseconds.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Latency {
    /// Requested operations per second; `None` if each began when the previous one ended.
    pub rate: Option<f64>,
    /// Number of timed operations.
    pub count: u64,
    /// The median.
    pub p50: u64,
    /// The 90th percentile.
    pub p90: u64,
    /// The 99th percentile.
    pub p99: u64,
    /// The 99.9th percentile.
    pub p999: u64,
    /// The longest.
    pub max: u64,
}

/// Change of a rate in the course of a fixed amount of work.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct OverTime {
    /// Length of the intervals, in milliseconds.
    pub interval_ms: u64,
    /// Mean rate of the intervals of all rounds, in operations per second.
    pub mean: f64,
    /// Standard deviation of these rates.
    pub deviation: f64,
}

/// Work of a journal in the rounds that count.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JournalWork {
    /// Transactions committed per second.
    pub transactions_per_s: Spread,
    /// Transactions per operation, over all rounds.
    pub transactions_per_op: f64,
    /// Transactions of 1,000 that waited for log space, for memory or for a push of the CIL, over
    /// all rounds.
    pub waited_per_1000: f64,
    /// Durable checkpoints, at most the latest 64 of each round.
    pub checkpoints: Vec<Checkpoint>,
}

/// Use of the log by a checkpoint, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Sequence number.
    pub sequence: u64,
    /// Number of items in it.
    pub items: u64,
    /// Bytes that its transactions transferred from their reservations.
    pub reserved: u64,
    /// Bytes that it used.
    pub used: u64,
    /// Bytes that were returned, with those of zeros that need not be logged.
    pub returned: u64,
}

/// The work of a round with lock statistics.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LockRound {
    /// Number of operations.
    pub operations: u64,
    /// Share of the workers' time for which they waited for locks, from 0 to 1. Waits of threads in
    /// the background count as well. Recording makes locks slower, and so this share larger.
    pub waiting: f64,
}

/// Statistics of a class of locks, with the columns of the kernel's `lock_stat`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LockRow {
    /// The class.
    pub class: String,
    /// Contentions where the holder was on another CPU.
    pub con_bounces: u64,
    /// Acquisitions that waited.
    pub contentions: u64,
    /// Waiting times.
    pub wait_us: LockMicros,
    /// Acquisitions on another CPU than the previous one.
    pub acq_bounces: u64,
    /// All acquisitions.
    pub acquisitions: u64,
    /// Holding times.
    pub hold_us: LockMicros,
}

/// Waiting or holding times, in microseconds.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct LockMicros {
    /// The shortest.
    pub min: f64,
    /// The longest.
    pub max: f64,
    /// The sum.
    pub total: f64,
    /// The mean.
    pub avg: f64,
}

/// The difference of two compared cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Compared {
    /// All patches over some disabled.
    Patches,
    /// More workers over the first number of workers.
    Threads,
    /// Another target over the first.
    Targets,
}

/// A comparison of two cases, round by round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Comparison {
    /// The difference of the cases.
    pub compared: Compared,
    /// The compared case.
    pub of: CaseName,
    /// The case that it is compared with.
    pub over: CaseName,
    /// Throughput of `of` over that of `over`.
    #[serde(flatten)]
    pub ratio: Ratio,
}

impl CaseResult {
    /// Returns the unit of the rate: that of the document, or the counted unit per second.
    pub(crate) fn unit_of_rate(&self) -> String {
        self.source_rate
            .as_ref()
            .map_or_else(|| format!("{}/s", self.unit), |rate| rate.unit.clone())
    }
}

impl Report {
    /// Creates a report without results.
    pub(crate) fn empty(started: u64) -> Report {
        Report {
            schema: SCHEMA.to_owned(),
            command: machine::command(),
            started,
            seconds: 0.0,
            interrupted: false,
            results: vec![],
            ratios: vec![],
            failures: vec![],
            skipped: vec![],
            counts: vec![],
        }
    }

    /// Appends the results of another report.
    pub(crate) fn and(mut self, other: Report) -> Report {
        self.seconds += other.seconds;
        self.interrupted |= other.interrupted;
        self.results.extend(other.results);
        self.ratios.extend(other.ratios);
        self.failures.extend(other.failures);
        self.skipped.extend(other.skipped);
        self.counts.extend(other.counts);
        self
    }

    /// Renders the report as JSON, with a newline at the end.
    pub fn to_json(&self) -> String {
        // Numbers and strings only, which JSON can always represent.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    /// Returns a short name for a target: the type of its file system, or the last name of its
    /// path, if no other target has that. All volumes are called `volume`, since the names of
    /// temporary images mean nothing to a reader; so with the mounts that are made for a run.
    pub(crate) fn target_name(&self, target: &str) -> String {
        match target.split_once(':') {
            Some(("volume", _)) => return "volume".to_owned(),
            Some(("mount", "memory")) => return "mount, memory".to_owned(),
            Some(("mount", _)) => return "mount, volume".to_owned(),
            _ => {}
        }
        fn mounted(result: &CaseResult) -> Option<(&str, &str)> {
            Some((&result.case.target, &result.mount.as_ref()?.fs_type))
        }
        fn last_name<'a>((target, _): (&'a str, &'a str)) -> &'a str {
            target.rsplit('/').next().unwrap_or(target)
        }
        let all = || self.results.iter().filter_map(mounted);
        let own = all().find(|(name, _)| *name == target);
        let is_alone = |of: &dyn for<'a> Fn((&'a str, &'a str)) -> &'a str, own| {
            all().all(|other| of(other) != of(own) || other.0 == target)
        };
        match own {
            Some(own) if is_alone(&|(_, fs_type)| fs_type, own) => own.1.to_owned(),
            Some(own) if is_alone(&last_name, own) => last_name(own).to_owned(),
            _ => target.to_owned(),
        }
    }

    /// Returns whether every requested case has a result.
    pub fn is_complete(&self) -> bool {
        !self.interrupted && self.failures.is_empty() && !self.results.is_empty()
    }
}
