//! What came out of a run, as it is written to JSON.
//!
//! The schema is the fields of [`Report`] and of what it holds, by their names. `docs/BENCH.md` describes
//! it for those who don't read Rust. Fields may be added; none is taken away, renamed or given another
//! meaning without another [`SCHEMA`].

use serde::{Deserialize, Serialize};

use crate::base::machine::{Machine, Mount};
use crate::base::stats::{Ratio, Spread};

/// The name of the schema, and its version.
pub const SCHEMA: &str = "vfscale-bench/1";

/// Everything that came out of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: String,
    /// When it began, in seconds since 1970.
    pub started: u64,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// Whether it was stopped before its end; the results are of the rounds until then.
    pub interrupted: bool,
    /// A result for each case.
    pub results: Vec<CaseResult>,
    /// Comparisons of two cases.
    pub ratios: Vec<Comparison>,
    /// Cases that failed, with the reason. They have no result.
    pub failures: Vec<Failed>,
    /// Cases that the target has no means for, with the reason.
    pub skipped: Vec<Failed>,
}

/// Which case: what was measured, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaseName {
    /// The workload.
    pub workload: String,
    /// The target, as it was named.
    pub target: String,
    /// The number of workers.
    pub threads: usize,
    /// The number of users, for workloads that have them.
    pub users: Option<usize>,
    /// Patches that were taken back.
    pub before: Vec<String>,
}

/// A case that has no result.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Failed {
    /// Which.
    #[serde(flatten)]
    pub case: CaseName,
    /// Why.
    pub reason: String,
}

/// The result of a case.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CaseResult {
    /// Which case.
    #[serde(flatten)]
    pub case: CaseName,
    /// The number of the document that the workload comes from.
    pub seed: String,
    /// What is counted.
    pub unit: String,
    /// Operations in a second, of all workers together.
    pub ops_per_s: Spread,
    /// The same in the unit of the document, where that is another.
    pub seed_rate: Option<SeedRate>,
    /// The range of the rounds over their median.
    pub disagreement: f64,
    /// Operations in a second of each round, in their order.
    pub rounds: Vec<f64>,
    /// Rounds that were thrown away and made again, because the process did not get its CPUs.
    pub rounds_disturbed: usize,
    /// How much of its CPUs it got in the rounds that count.
    pub cpu: CpuShare,
    /// The time of single operations, if it was asked for.
    pub latency_ns: Option<Latency>,
    /// How steady work of a fixed amount was while it lasted.
    pub over_time: Option<OverTime>,
    /// What the journal did meanwhile; volumes have one.
    pub journal: Option<JournalWork>,
    /// What happened to locks in a round of its own, if it was asked for; most contended first.
    pub lockstat: Option<Vec<LockRow>>,
    /// Whether every check of what the file system did was passed. Cases that fail one have no result.
    pub verified: bool,
    /// Whether workers were processes.
    pub processes: bool,
    /// Whether each was kept on a CPU.
    pub pinned: bool,
    /// CPUs that were pretended.
    pub cpus_pretended: Option<usize>,
    /// Whether relative paths began at a working directory of each worker's own. Where the system does
    /// not allow that, they began at a descriptor.
    pub own_cwd: bool,
    /// The machine.
    pub machine: Machine,
    /// The kernel.
    pub kernel: String,
    /// The options that the target is mounted with, `memory` for memory.
    pub mount_options: String,
    /// The mount, if it is one.
    pub mount: Option<Mount>,
    /// The commit that the program was built from, or its version.
    pub commit: String,
    /// Where random numbers started.
    pub random_seed: u64,
}

/// A rate in a document's own unit.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SeedRate {
    /// The unit.
    pub unit: String,
    /// The rate.
    #[serde(flatten)]
    pub rate: Spread,
}

/// How much of its CPUs a case got.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct CpuShare {
    /// The smallest share of any worker in any round: 1 less the time that it was ready and had to wait,
    /// less what the host or a limit took away. From 0 to 1.
    pub min: f64,
    /// The median over the rounds of the smallest of the workers.
    pub median: f64,
    /// CPUs busy with the workers, of the time that they worked: below the number of workers where they
    /// slept, such as for a lock or a disk.
    pub used: f64,
    /// The largest share that the host or a limit took away in a round.
    pub stolen_max: f64,
}

/// Nanoseconds of single operations.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Latency {
    /// Operations in a second that were asked for; none if they followed each other at once.
    pub rate: Option<f64>,
    /// How many were timed.
    pub count: u64,
    /// The median.
    pub p50: u64,
    /// 90 % took at most this.
    pub p90: u64,
    /// 99 %.
    pub p99: u64,
    /// 99.9 %.
    pub p999: u64,
    /// The longest.
    pub max: u64,
}

/// How a rate changed while a fixed amount of work was done.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct OverTime {
    /// The length of the intervals, in milliseconds.
    pub interval_ms: u64,
    /// The mean of the rates of the intervals of all rounds, in operations per second.
    pub mean: f64,
    /// Their standard deviation.
    pub deviation: f64,
}

/// What a journal did in the rounds that count.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JournalWork {
    /// Transactions committed in a second.
    pub transactions_per_s: Spread,
    /// Transactions for each operation, over all rounds.
    pub transactions_per_op: f64,
    /// Checkpoints that became durable; at most the latest 64 of each round.
    pub checkpoints: Vec<Checkpoint>,
}

/// What a checkpoint needed of the log, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Its number.
    pub sequence: u64,
    /// Items in it.
    pub items: u64,
    /// What its transactions gave of their reservations.
    pub reserved: u64,
    /// What it took.
    pub used: u64,
    /// What was given back.
    pub returned: u64,
}

/// A class of locks, with the columns of the kernel's `lock_stat`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LockRow {
    /// The class.
    pub class: String,
    /// Contentions where the holder was on another CPU.
    pub con_bounces: u64,
    /// How often somebody had to wait.
    pub contentions: u64,
    /// Times of waiting.
    pub wait_us: LockMicros,
    /// Acquisitions on another CPU than the one before.
    pub acq_bounces: u64,
    /// How often it was taken.
    pub acquisitions: u64,
    /// Times of holding.
    pub hold_us: LockMicros,
}

/// Microseconds.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct LockMicros {
    /// The shortest.
    pub min: f64,
    /// The longest.
    pub max: f64,
    /// All together.
    pub total: f64,
    /// The mean.
    pub avg: f64,
}

/// What two cases differ in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Compared {
    /// With all patches over without some.
    Patches,
    /// More workers over the first number of them.
    Threads,
    /// Another target over the first.
    Targets,
}

/// Two cases, round by round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Comparison {
    /// What they differ in.
    pub compared: Compared,
    /// The one.
    pub of: CaseName,
    /// The other, which is 1.
    pub over: CaseName,
    /// How many times the throughput of the other the one had.
    #[serde(flatten)]
    pub ratio: Ratio,
}

impl CaseResult {
    /// In what its rate is told: the document's unit, or what is counted, in a second.
    pub(crate) fn unit_of_rate(&self) -> String {
        self.seed_rate.as_ref().map_or_else(|| format!("{}/s", self.unit), |rate| rate.unit.clone())
    }
}

impl Report {
    /// Nothing yet.
    pub(crate) fn empty(started: u64) -> Report {
        Report {
            schema: SCHEMA.to_owned(),
            started,
            seconds: 0.0,
            interrupted: false,
            results: vec![],
            ratios: vec![],
            failures: vec![],
            skipped: vec![],
        }
    }

    /// This, and then another.
    pub(crate) fn and(mut self, other: Report) -> Report {
        self.seconds += other.seconds;
        self.interrupted |= other.interrupted;
        self.results.extend(other.results);
        self.ratios.extend(other.ratios);
        self.failures.extend(other.failures);
        self.skipped.extend(other.skipped);
        self
    }

    /// As JSON, with a newline at the end.
    pub fn to_json(&self) -> String {
        // Numbers and strings only: there is nothing that JSON could not hold.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    /// What a target is called beside others: by its file system, where no other one has that; an
    /// image that a run has made says nothing to a reader.
    pub(crate) fn target_name(&self, target: &str) -> String {
        if target.starts_with("volume:") {
            return "volume".to_owned();
        }
        fn mounted(result: &CaseResult) -> Option<(&str, &str)> {
            Some((&result.case.target, &result.mount.as_ref()?.fs_type))
        }
        let all = || self.results.iter().filter_map(mounted);
        let own = all().find(|(name, _)| *name == target);
        let is_alone =
            |(_, fs): &(&str, &str)| all().all(|(name, other)| other != *fs || name == target);
        own.filter(is_alone).map_or(target, |(_, fs)| fs).to_owned()
    }

    /// Whether everything that was asked for has a result.
    pub fn is_complete(&self) -> bool {
        !self.interrupted && self.failures.is_empty() && !self.results.is_empty()
    }
}
