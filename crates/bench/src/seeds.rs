//! The seeds' own tables, and a run that sets ours beside them.
//!
//! What the seeds say is quoted as numbers only. Their machines had 8 to 80 CPUs and this one has
//! what it has: so what can be compared is which way a patch moves a figure, and not by how much.

use std::time::Duration;

use crate::fault::Result;
use crate::plan::Plan;
use crate::report::{CaseName, CaseResult, Compared, Comparison, Report, SCHEMA};
use crate::run::{Watch, run};
use crate::stats::Verdict;
use crate::table::{self, number};
use crate::targets::TargetSpec;
use crate::worker::Interrupt;
use crate::workloads;

/// A table of a seed, and the workloads that repeat its experiment.
pub struct SeedTable {
    /// The number of the document.
    pub seed: &'static str,
    /// What it is about.
    pub title: &'static str,
    /// On what it was measured, and what else was different.
    pub machine: &'static str,
    /// The names of its columns.
    pub columns: &'static [&'static str],
    /// Its rows.
    pub rows: &'static [&'static [&'static str]],
    /// The workloads that repeat it.
    pub workloads: &'static [&'static str],
    /// The patches that it is about, by our names; `all` where it is about all of them.
    pub before: &'static [&'static str],
    /// What of ours stands beside it.
    pub beside: Beside,
}

/// What of a run stands beside a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    /// Rates in memory, before and after, and those of mounted directories.
    Memory,
    /// Rates on volumes, before and after.
    Volumes,
    /// On volumes, what became of one class of locks, in the run of the table above.
    Locks(&'static str),
    /// Transactions in a second on volumes, before and after, in the run of the tables above.
    Transactions,
}

/// Where Linux has a tmpfs.
pub const TMPFS: &str = "/dev/shm";

/// What seed 003 measured on.
const CHINNERS: &str = "virtual machines with 16 and 32 CPUs, XFS; a machine's transactions are of another run than \
                        its files. Ours is a volume in an image, in the kernel's tmpfs.";

/// What seed 003 measured.
const CREATE_AND_REMOVE: &[&str] = &["create-many", "remove-many"];

/// The patches of seed 003.
const ALL_OF_003: &[&str] =
    &["read-mostly", "active-trans", "cil-counters", "cil-lists", "busy-extents"];

/// The tables, in the order of the report.
pub const TABLES: &[SeedTable] = &[
    SeedTable {
        seed: "004",
        title: "open, close, create and unlink; slides 30 to 32",
        machine: "1 to 8 CPUs, kernel 2.6.31. The slides are graphs of total time without numbers; this is \
                  what their text says. Renames and the stat of a deep name are ours.",
        columns: &["experiment", "with vfs-scale"],
        rows: &[
            &["open and close, separate directories", "seems perfectly scalable"],
            &["create and unlink", "seems perfectly scalable"],
            &["lookup with a common directory", "less scalable, due to d_lock"],
            &["one thread", "worse in some cases, better in others"],
        ],
        workloads: &[
            "open-close-same-dir",
            "open-close-own-dir",
            "open-close-one-file",
            "create-unlink-same-dir",
            "create-unlink-own-dir",
            "stat-deep",
            "rename-same-dir",
            "rename-own-dir",
            "rename-cross-dir",
        ],
        before: &["all"],
        beside: Beside::Memory,
    },
    SeedTable {
        seed: "004",
        title: "closing lots of sockets; slide 33",
        machine: "a graph of total time without numbers, many processes.",
        columns: &["experiment", "with vfs-scale"],
        rows: &[&["close lots of sockets", "less time (a graph)"]],
        workloads: &["close-many"],
        before: &["all"],
        beside: Beside::Memory,
    },
    SeedTable {
        seed: "000",
        title: "AIM7's short mix before and after lockref, jobs per minute; also 004, slide 34",
        machine: "8 nodes with 80 CPUs, kernel 3.10-rc1, a RAM disk; whole processes, with the computing and the \
                  terminals that are left out here.",
        columns: &["nodes", "users", "before", "after", "change"],
        rows: &[
            &["8", "10-100", "1,546,813", "5,080,126", "+228.4%"],
            &["4", "10-100", "1,663,439", "4,703,083", "+182.7%"],
            &["2", "10-100", "2,545,389", "3,790,995", "+48.9%"],
            &["1", "10-100", "2,374,488", "2,394,846", "+0.9%"],
            &["8", "200-1000", "1,064,184", "7,391,382", "+594.6%"],
            &["4", "200-1000", "1,362,447", "7,325,475", "+437.7%"],
            &["2", "200-1000", "1,851,198", "4,539,511", "+145.2%"],
            &["1", "200-1000", "2,477,537", "2,457,513", "-0.8%"],
            &["8", "1100-2000", "1,056,243", "7,067,282", "+569.1%"],
            &["4", "1100-2000", "1,354,505", "6,930,437", "+411.7%"],
            &["2", "1100-2000", "1,735,881", "4,581,847", "+164.0%"],
            &["1", "1100-2000", "2,511,547", "2,496,594", "-0.6%"],
        ],
        workloads: &["aim-short"],
        before: &["lockref"],
        beside: Beside::Memory,
    },
    SeedTable {
        seed: "000",
        title: "find -size, cat of maps, git diff; and the path of an open file",
        machine: "80 CPUs, and a PC with 4. The path of an open file is ours: it is the call that the patches \
                  are about.",
        columns: &["experiment", "change with both patches"],
        rows: &[
            &["find $HOME -size 0b", "within a few percent"],
            &["cat /proc/*/maps /proc/*/numa_maps", "within a few percent"],
            &["git diff", "none"],
        ],
        workloads: &["find-size", "cat-maps", "git-diff", "d-path"],
        before: &["lockref", "seqrwlock"],
        beside: Beside::Memory,
    },
    SeedTable {
        seed: "002",
        title: "Oracle SLOB, MB/s of redo",
        machine: "80 CPUs, 1 TB of memory, kernel 3.8-rc3, the database on tmpfs.",
        columns: &["readers", "writers", "before", "after", "change"],
        rows: &[
            &["8", "64", "802", "903", "+12.6%"],
            &["32", "64", "798", "892", "+11.8%"],
            &["80", "64", "658", "714", "+8.5%"],
            &["128", "64", "748", "907", "+21.3%"],
        ],
        workloads: &["slob"],
        before: &["lockref", "seqrwlock"],
        beside: Beside::Memory,
    },
    SeedTable {
        seed: "001",
        title: "truncating by one byte, average time in seconds",
        machine: "48 CPUs, ext4 on a RAM disk. Ours is a volume in an image, in the kernel's tmpfs.",
        columns: &["processes", "before", "after", "change"],
        rows: &[
            &["1", "2.769", "2.750", "-0.6%"],
            &["2", "5.757", "5.669", "-1.5%"],
            &["4", "11.853", "8.311", "-29.9%"],
            &["10", "33.591", "20.162", "-40%"],
            &["20", "71.035", "55.854", "-21.4%"],
            &["40", "236.671", "174.543", "-26.3%"],
        ],
        workloads: &["orphan-truncate"],
        before: &["orphan"],
        beside: Beside::Volumes,
    },
    SeedTable {
        seed: "001",
        title: "the orphan list's lock, 10 processes, times in microseconds",
        machine: "the same. Of ours the round is as long before as after, and not the number of truncates; \
                  without the lock there is no row.",
        columns: &crate::table::LOCK_COLUMNS_OF_A_CASE,
        rows: &[
            &[
                "before",
                "7089335",
                "7089335",
                "9.07",
                "3504220.69",
                "1473754546.28",
                "207.88",
                "14487647",
                "16381236",
                "0.16",
                "211.62",
                "79738146.84",
                "4.87",
            ],
            &[
                "after",
                "2547868",
                "2547868",
                "9.18",
                "8218.64",
                "547550185.12",
                "214.91",
                "7994533",
                "8191236",
                "0.16",
                "203.81",
                "30660307.81",
                "3.74",
            ],
        ],
        workloads: &["orphan-truncate"],
        before: &["orphan"],
        beside: Beside::Locks("s_orphan_lock"),
    },
    SeedTable {
        seed: "003",
        title: "50 million files created and removed, before and after the count of active transactions is per CPU",
        machine: CHINNERS,
        columns: &["machine", "work", "before", "after"],
        rows: &[
            &["A", "create", "246k/s", "384k/s"],
            &["B", "create", "225k/s", "223k/s"],
            &["A", "remove", "8m30s", "3m09s"],
            &["B", "remove", "5m02s", "4m51s"],
            &["A", "transactions", "250k/s", "600k/s"],
        ],
        workloads: CREATE_AND_REMOVE,
        before: &["active-trans"],
        beside: Beside::Volumes,
    },
    SeedTable {
        seed: "003",
        title: "the same, before and after the CIL's counters are per CPU",
        machine: CHINNERS,
        columns: &["ways", "work", "before", "after"],
        rows: &[
            &["32", "create", "472k/s +/- 9k", "533k/s +/- 28k"],
            &["32", "remove", "3m06s", "2m34s"],
        ],
        workloads: CREATE_AND_REMOVE,
        before: &["cil-counters"],
        beside: Beside::Volumes,
    },
    SeedTable {
        seed: "003",
        title: "the same, before and after the CIL's lists, and those of busy extents, are per CPU",
        machine: CHINNERS,
        columns: &["patch", "work", "before", "after"],
        rows: &[
            &["lists", "create", "533k/s +/- 28k", "523k/s +/- 14k"],
            &["lists", "remove", "2m34s", "2m00s"],
            &["busy extents", "create", "523k/s +/- 14k", "535k/s +/- 24k"],
            &["busy extents", "remove", "2m00s", "1m51s"],
            &["busy extents", "transactions", "", "1.12M/s"],
        ],
        workloads: CREATE_AND_REMOVE,
        before: &["cil-lists", "busy-extents"],
        beside: Beside::Volumes,
    },
    SeedTable {
        seed: "003",
        title: "the same, before and after all of these patches",
        machine: CHINNERS,
        columns: &["machine", "work", "before", "after"],
        rows: &[
            &["A, 16 ways", "create", "245k/s", "492k/s"],
            &["A, 16 ways", "remove", "150k/s", "420k/s"],
        ],
        workloads: CREATE_AND_REMOVE,
        before: ALL_OF_003,
        beside: Beside::Volumes,
    },
    SeedTable {
        seed: "003",
        title: "the same, transactions in a second, before and after each of these patches",
        machine: CHINNERS,
        columns: &["patch", "before", "after"],
        rows: &[
            &["active transactions, machine A", "250k/s", "600k/s"],
            &["all up to busy extents, 32 ways", "", "1.12M/s"],
        ],
        workloads: CREATE_AND_REMOVE,
        before: ALL_OF_003,
        beside: Beside::Transactions,
    },
];

/// The columns of [`ours`].
pub const OUR_COLUMNS: [&str; 6] = ["workload", "workers", "before", "after", "change", "verdict"];

/// The columns of [`ours`] where it tells of transactions.
const TRANSACTION_COLUMNS: [&str; 6] =
    ["workload", "workers", "without", "before, tx/s", "after, tx/s", "change"];

impl SeedTable {
    /// The columns of [`ours`].
    #[must_use]
    pub fn our_columns(&self) -> &'static [&'static str] {
        match self.beside {
            Beside::Memory | Beside::Volumes => &OUR_COLUMNS,
            Beside::Locks(_) => &table::LOCK_COLUMNS_OF_A_CASE,
            Beside::Transactions => &TRANSACTION_COLUMNS,
        }
    }

    /// What the figures that are called `before` are without.
    pub(crate) fn note(&self) -> String {
        match (self.beside, self.before) {
            (Beside::Transactions, _) => "Ours before is without what the line names.".to_owned(),
            (_, ["all"]) => "Ours before is without any of the patches.".to_owned(),
            (_, patches) => format!("Ours before is without {}.", patches.join(" and ")),
        }
    }

    /// Whether it is about cases with these patches taken back.
    fn is_about(&self, before: &[String]) -> bool {
        self.before == ["all"] || before.iter().eq(self.before)
    }

    /// Whether one run serves both.
    fn shares_run(&self, other: &SeedTable) -> bool {
        let on_volumes = |table: &SeedTable| table.beside != Beside::Memory;
        self.workloads == other.workloads && on_volumes(self) == on_volumes(other)
    }
}

/// What this run has to say to a table. Of rates a row for each case that was measured before and after, and
/// for others a row with what there is.
pub fn ours(report: &Report, table: &SeedTable) -> Vec<Vec<String>> {
    let is_of = |result: &&CaseResult| table.workloads.contains(&result.case.workload.as_str());
    let results = report.results.iter().filter(is_of);
    match table.beside {
        Beside::Memory | Beside::Volumes => {}
        Beside::Locks(class) => {
            return results.filter_map(|result| lock_row(result, class)).collect();
        }
        Beside::Transactions => {
            let before = results.filter(|result| !result.case.before.is_empty());
            return before.filter_map(|result| transactions(report, result)).collect();
        }
    }
    let after = results.filter(|result| result.case.before.is_empty());
    after.map(|result| row(report, table, result)).collect()
}

/// What became of a class of locks in a case, or of the case if it has no such lock.
fn lock_row(result: &CaseResult, class: &str) -> Option<Vec<String>> {
    let locks = result.lockstat.as_ref()?;
    let name = if result.case.before.is_empty() { "after" } else { "before" };
    let name = format!("{name} x{}", result.case.threads);
    let cells = match locks.iter().find(|row| row.class == class) {
        Some(row) => table::lock_row(row),
        None => vec!["-".to_owned(); table::LOCK_COLUMNS_OF_A_CASE.len() - 1],
    };
    Some(std::iter::once(name).chain(cells).collect())
}

/// The transactions of a case without patches, and of the one that has them.
fn transactions(report: &Report, before: &CaseResult) -> Option<Vec<String>> {
    let with = CaseName { before: vec![], ..before.case.clone() };
    let after = report.results.iter().find(|result| result.case == with)?;
    let rate = |result: &CaseResult| Some(result.journal.as_ref()?.transactions_per_s.median);
    let (old, new) = (rate(before)?, rate(after)?);
    Some(vec![
        before.case.workload.clone(),
        format!("{} x{}", report.target_name(&with.target), with.threads),
        before.case.before.join(", "),
        number(old),
        number(new),
        change(new / old),
    ])
}

/// How far a ratio is from 1.
fn change(ratio: f64) -> String {
    format!("{:+.1}%", (ratio - 1.0) * 100.0)
}

fn row(report: &Report, table: &SeedTable, result: &CaseResult) -> Vec<String> {
    let case = &result.case;
    let of_patches = |ratio: &&Comparison| {
        let about = ratio.compared == Compared::Patches && table.is_about(&ratio.over.before);
        about && ratio.of == *case
    };
    let ratio = report.ratios.iter().find(of_patches);
    let before =
        report.results.iter().find(|other| ratio.is_some_and(|ratio| ratio.over == other.case));
    let factor = match &result.seed_rate {
        Some(seed) => seed.rate.median / result.ops_per_s.median,
        None => 1.0,
    };
    let mut workers = format!("{} x{}", report.target_name(&case.target), case.threads);
    if let Some(users) = case.users {
        workers += &format!(", {users} users");
    }
    let figure = |rate: f64| number(rate * factor);
    let mut row = vec![format!("{}, {}", case.workload, result.unit_of_rate()), workers];
    row.push(before.map_or("-".to_owned(), |other| figure(other.ops_per_s.median)));
    row.push(figure(result.ops_per_s.median));
    let Some(comparison) = ratio else {
        row.extend(["-".to_owned(), "nothing to take back".to_owned()]);
        return row;
    };
    let ratio = &comparison.ratio;
    let verdict = match ratio.verdict {
        Verdict::Faster | Verdict::Slower | Verdict::NoDifference => {
            let (low, high) = (change(ratio.low), change(ratio.high));
            format!("{} [{low} to {high}]", ratio.verdict.words())
        }
        other => other.words().to_owned(),
    };
    row.extend([change(ratio.median), verdict]);
    row
}

/// How the whole set is run.
#[derive(Clone, Debug)]
pub struct Seeds {
    /// Where; memory is where patches are taken back, and mounted directories stand beside it.
    pub targets: Vec<TargetSpec>,
    /// Shorter rounds and fewer files: for a look, not for figures.
    pub quick: bool,
}

/// One worker, as many as there are CPUs, and the powers of two between.
fn worker_counts(cpus: usize) -> Vec<usize> {
    let most = cpus.max(2);
    let mut counts: Vec<usize> =
        std::iter::successors(Some(1), |n| Some(n * 2)).take_while(|n| *n < most).collect();
    counts.push(most);
    counts
}

impl Seeds {
    /// Where the experiment of a table is made.
    fn targets_of(&self, table: &SeedTable) -> Vec<TargetSpec> {
        let volumes = table.beside != Beside::Memory;
        let fits = |target: &&TargetSpec| match target {
            TargetSpec::Memory => !volumes,
            TargetSpec::Volume(_) => volumes,
            // Beside a journal's figures the kernel's tmpfs says nothing; another file system may.
            TargetSpec::Path(dir) => !volumes || dir.as_os_str() != TMPFS,
        };
        self.targets.iter().filter(fits).cloned().collect()
    }

    /// The run that serves a table, and others like it; nothing where there is no target for it.
    fn plan(&self, table: &SeedTable) -> Result<Option<Plan>> {
        let targets = self.targets_of(table);
        if targets.is_empty() {
            return Ok(None);
        }
        let workloads =
            table.workloads.iter().map(|name| workloads::find(name)).collect::<Result<_>>()?;
        let mut plan = Plan::new(workloads, targets);
        plan.threads = worker_counts(crate::machine::Machine::this().cpus);
        if table.seed == "001" {
            plan.threads = vec![1, 2, 4, 10];
        }
        if plan.targets.iter().any(TargetSpec::is_library) {
            let served = TABLES.iter().filter(|other| other.shares_run(table));
            let names = |table: &SeedTable| table.before.iter().map(ToString::to_string).collect();
            plan.before = served.map(names).collect();
            // Two tables may be about the same.
            plan.before.dedup();
            plan.lockstat = table.beside != Beside::Memory;
        }
        plan.users = vec![10, 100, 1_000, 2_000];
        plan.slice = Duration::from_millis(120);
        if self.quick {
            plan.users = vec![10, 100];
            plan.rounds = crate::plan::ROUNDS_MIN;
            plan.slice = Duration::from_millis(10);
            plan.warm_up = Duration::from_millis(5);
            plan.files = 2_000;
            plan.database = 4 << 20;
        }
        Ok(Some(plan))
    }
}

impl Seeds {
    /// What is run, one after the other.
    fn plans(&self) -> Result<Vec<Plan>> {
        let first =
            |at: &usize| !TABLES[..*at].iter().any(|before| before.shares_run(&TABLES[*at]));
        let plans = (0..TABLES.len()).filter(first).map(|at| self.plan(&TABLES[at]));
        plans.filter_map(Result::transpose).collect()
    }

    /// About how long it takes; see [`Plan::estimate`].
    ///
    /// # Errors
    /// As [`run_seeds`].
    pub fn estimate(&self) -> Result<Duration> {
        Ok(self.plans()?.iter().map(Plan::estimate).sum())
    }
}

/// Passes on how far one part of several is.
struct Part<'a> {
    watch: &'a mut dyn Watch,
    done: f64,
    share: f64,
}

impl Watch for Part<'_> {
    fn at(&mut self, done: f64, next: &crate::report::CaseName) {
        self.watch.at(self.done + done * self.share, next);
    }
}

/// Runs every experiment of the seeds, one table after the other.
///
/// # Errors
/// As [`run`].
pub fn run_seeds(seeds: &Seeds, stop: &Interrupt, watch: &mut dyn Watch) -> Result<Report> {
    let mut whole: Option<Report> = None;
    let runs = seeds.plans()?;
    let all: usize = runs.iter().map(|plan| plan.workloads.len()).sum();
    let mut done = 0;
    for plan in &runs {
        if stop.is_raised() {
            break;
        }
        let share = |part: usize| part as f64 / all as f64;
        let mut part =
            Part { watch: &mut *watch, done: share(done), share: share(plan.workloads.len()) };
        let report = run(plan, stop, &mut part)?;
        done += plan.workloads.len();
        whole = Some(match whole {
            None => report,
            Some(before) => before.and(report),
        });
    }
    Ok(whole.unwrap_or_else(|| Report::empty(0)))
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
    fn and(mut self, other: Report) -> Report {
        self.seconds += other.seconds;
        self.interrupted |= other.interrupted;
        self.results.extend(other.results);
        self.ratios.extend(other.ratios);
        self.failures.extend(other.failures);
        self.skipped.extend(other.skipped);
        self
    }
}

#[cfg(test)]
mod tests;
