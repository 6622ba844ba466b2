//! A run of all published experiments.

use std::ffi::OsString;
use std::time::Duration;

use super::plan::{Plan, ROUNDS_MIN};
use super::rounds::{Watch, run};
use crate::base::error::Result;
use crate::base::interrupt::Interrupt;
use crate::base::machine::Machine;
use crate::base::results::{CaseName, Report};
use crate::published::{KARA, MIXES, OurFigures, PublishedTable, TABLES};
use crate::targets::TargetSpec;
use crate::workloads;

/// A directory that is a tmpfs on Linux.
pub const TMPFS: &str = "/dev/shm";

/// The plan of a run of all published experiments.
#[derive(Clone, Debug)]
pub struct PublishedRun {
    /// The targets. Patches are disabled in memory and on volumes; mounted directories are for
    /// comparison.
    pub targets: Vec<TargetSpec>,
    /// Whether to run shorter rounds with fewer files: for a preview, not for figures.
    pub quick: bool,
    /// The command that starts a worker process, as in [`Plan`]. With it, directories are measured
    /// by processes where the documents have them.
    pub worker_command: Vec<OsString>,
}

/// Returns whether the workers of a document's experiment were processes whose number counts.
fn is_of_processes(table: &PublishedTable) -> bool {
    table.source == KARA || table.workloads.contains(&"close-sockets")
}

/// Returns the numbers of workers: the powers of two below the number of CPUs, and that number.
fn worker_counts(cpus: usize) -> Vec<usize> {
    let most = cpus.max(2);
    let mut counts: Vec<usize> =
        std::iter::successors(Some(1), |n| Some(n * 2)).take_while(|n| *n < most).collect();
    counts.push(most);
    counts
}

/// Numbers of workers of [`KARA`].
const KARAS_WORKERS: [usize; 6] = [1, 2, 4, 10, 20, 40];

/// Number of runs of [`KARA`].
const KARAS_RUNS: usize = 10;

/// Returns whether one run gives the figures of both tables.
fn share_run(one: &PublishedTable, other: &PublishedTable) -> bool {
    one.workloads == other.workloads && one.on_volumes == other.on_volumes
}

/// Returns the numbers of CPUs for which a table's run makes structures; `None` is the machine's.
fn slots_of(table: &PublishedTable) -> Vec<Option<usize>> {
    match table.figures {
        OurFigures::Slots(slots) => slots.iter().copied().map(Some).collect(),
        _ => vec![None],
    }
}

impl PublishedRun {
    /// Returns the targets for the experiment of a table.
    fn targets_of(&self, table: &PublishedTable) -> Vec<TargetSpec> {
        let has_slots = matches!(table.figures, OurFigures::Slots(_));
        let fits = |target: &&TargetSpec| match target {
            _ if has_slots && !target.is_library() => false,
            // The kernel's tmpfs has no journal to compare with; another file system may have one.
            TargetSpec::Path(dir) => !table.on_volumes || dir.as_os_str() != TMPFS,
            _ => table.is_on(target),
        };
        self.targets.iter().filter(fits).cloned().collect()
    }

    /// Returns the plans of the runs for a table: one for each number of CPUs for which structures
    /// are made, and one more for directories that processes work in.
    fn plans_of(&self, table: &PublishedTable) -> Result<Vec<Plan>> {
        let mut plans = Vec::new();
        let targets = self.targets_of(table);
        let by_processes = is_of_processes(table) && !self.worker_command.is_empty();
        let (others, directories): (Vec<_>, Vec<_>) =
            targets.into_iter().partition(|target| target.is_library() || !by_processes);
        for cpus in slots_of(table) {
            plans.extend(self.plan(table, others.clone(), cpus)?);
        }
        if let Some(mut plan) = self.plan(table, directories, None)? {
            plan.processes = true;
            plans.push(plan);
        }
        Ok(plans)
    }

    /// Returns the plan of the run for a table, and for others that share it, with structures for
    /// this many CPUs; `None` without targets.
    fn plan(
        &self,
        table: &PublishedTable,
        targets: Vec<TargetSpec>,
        cpus: Option<usize>,
    ) -> Result<Option<Plan>> {
        if targets.is_empty() {
            return Ok(None);
        }
        let workloads =
            table.workloads.iter().map(|name| workloads::find(name)).collect::<Result<_>>()?;
        let mut plan = Plan::new(workloads, targets);
        plan.threads = worker_counts(Machine::this().cpus);
        plan.worker_command.clone_from(&self.worker_command);
        plan.cpus = cpus;
        if cpus.is_some() {
            plan.threads = vec![1];
        }
        if table.source == KARA {
            plan.threads = KARAS_WORKERS.to_vec();
            plan.rounds = KARAS_RUNS;
        }
        plan.mixes = MIXES.to_vec();
        if plan.targets.iter().any(TargetSpec::is_library) {
            let served = TABLES.iter().filter(|other| share_run(other, table));
            let names = |table: &&PublishedTable| -> Vec<String> {
                table.before.iter().map(ToString::to_string).collect()
            };
            let served: Vec<&PublishedTable> = served.collect();
            // Two tables may measure the same patches, and some measure none.
            for before in served.iter().map(names).filter(|all| !all.is_empty()) {
                if !plan.before.contains(&before) {
                    plan.before.push(before);
                }
            }
            let waits = |table: &&PublishedTable| {
                matches!(table.figures, OurFigures::Waiting | OurFigures::Load)
            };
            plan.lockstat = cpus.is_none() && (table.on_volumes || served.iter().any(waits));
        }
        // One number of each of the ranges in the table of many mixes.
        let is_of_mixes = plan.workloads.len() > 1;
        plan.users =
            if is_of_mixes { vec![100, 1_000, 2_000] } else { vec![10, 100, 1_000, 2_000] };
        plan.slice = Duration::from_millis(120);
        if self.quick {
            plan.users = vec![10, 100];
            plan.rounds = ROUNDS_MIN;
            plan.mixes.retain(|(readers, _)| *readers == 8 || *readers == 32);
            plan.slice = Duration::from_millis(10);
            plan.warm_up = Duration::from_millis(5);
            plan.files = 2_000;
            plan.database = 4 << 20;
        }
        Ok(Some(plan))
    }
}

impl PublishedRun {
    /// Returns the plans of all runs.
    fn plans(&self) -> Result<Vec<Plan>> {
        let first =
            |at: &usize| !TABLES[..*at].iter().any(|before| share_run(before, &TABLES[*at]));
        let mut plans = Vec::new();
        for at in (0..TABLES.len()).filter(first) {
            plans.extend(self.plans_of(&TABLES[at])?);
        }
        Ok(plans)
    }

    /// Estimates the duration of all runs; see [`Plan::estimate`].
    ///
    /// # Errors
    /// Returns an error if a table names an unknown workload.
    pub fn estimate(&self) -> Result<Duration> {
        Ok(self.plans()?.iter().map(Plan::estimate).sum())
    }
}

/// A watch that scales the progress of one run to that of all.
struct PartWatch<'a> {
    watch: &'a mut dyn Watch,
    done: f64,
    share: f64,
}

impl Watch for PartWatch<'_> {
    fn at(&mut self, done: f64, next: &CaseName) {
        self.watch.at(self.done + done * self.share, next);
    }
}

/// Runs all published experiments, one table after the other.
///
/// # Errors
/// Returns any error of [`run`].
pub fn run_published(
    all: &PublishedRun,
    stop: &Interrupt,
    watch: &mut dyn Watch,
) -> Result<Report> {
    let mut whole: Option<Report> = None;
    let runs = all.plans()?;
    let count: usize = runs.iter().map(|plan| plan.workloads.len()).sum();
    let mut done = 0;
    for plan in &runs {
        if stop.is_raised() {
            break;
        }
        let share = |part: usize| part as f64 / count as f64;
        let mut part =
            PartWatch { watch: &mut *watch, done: share(done), share: share(plan.workloads.len()) };
        let report = run(plan, stop, &mut part)?;
        done += plan.workloads.len();
        whole = Some(match whole {
            None => report,
            Some(before) => before.and(report),
        });
    }
    Ok(whole.unwrap_or_else(|| Report::empty(0)))
}

#[cfg(test)]
mod tests;
