//! The run of every published experiment.

use std::time::Duration;

use super::plan::{Plan, ROUNDS_MIN};
use super::rounds::{Watch, run};
use crate::base::error::Result;
use crate::base::interrupt::Interrupt;
use crate::base::machine::Machine;
use crate::base::results::{CaseName, Report};
use crate::published::{Beside, SeedTable, TABLES};
use crate::targets::TargetSpec;
use crate::workloads;

/// Where Linux has a tmpfs.
pub const TMPFS: &str = "/dev/shm";

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

/// Whether one run serves both tables.
fn share_run(one: &SeedTable, other: &SeedTable) -> bool {
    let on_volumes = |table: &SeedTable| table.beside != Beside::Memory;
    one.workloads == other.workloads && on_volumes(one) == on_volumes(other)
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
        plan.threads = worker_counts(Machine::this().cpus);
        if table.seed == "001" {
            plan.threads = vec![1, 2, 4, 10];
        }
        if plan.targets.iter().any(TargetSpec::is_library) {
            let served = TABLES.iter().filter(|other| share_run(other, table));
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
            plan.rounds = ROUNDS_MIN;
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
            |at: &usize| !TABLES[..*at].iter().any(|before| share_run(before, &TABLES[*at]));
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
    fn at(&mut self, done: f64, next: &CaseName) {
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

#[cfg(test)]
mod tests;
