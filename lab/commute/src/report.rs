//! Results of many cases: how many are free of conflicts, and the lines the others conflict on.

pub mod exceptions;
pub mod page;
pub mod picture;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Instant;

use serde::Serialize;
use vfscale_bench::table::Columns;

use crate::case::{CallKind, Case};
use crate::runner::{self, Runner};
use crate::trace::owner::{NamedConflict, Owner};

/// Result of many cases.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Patches that the file system was built without.
    pub before: Vec<String>,
    /// Target: `memory`, `volume` or `branches`.
    pub target: String,
    /// Whether all structures that are sharded under contention were sharded beforehand.
    pub promoted: bool,
    /// Seed of the cases.
    pub seed: u64,
    /// Number of cases that were run.
    pub cases: usize,
    /// Number of cases without a conflict.
    pub free: usize,
    /// Duration in seconds.
    pub seconds: f64,
    /// Cases that could not be run, with the reason.
    pub failed: Vec<(String, String)>,
    /// Number of instructions whose accesses could not be recorded.
    pub not_understood: u64,
    /// Number of cases with a system call.
    pub with_system_calls: usize,
    /// Results by pair of calls.
    pub pairs: Vec<Pair>,
    /// Owners of conflicting lines, those with most cases first.
    pub owners: Vec<OwnerSummary>,
    /// The cases with conflicts.
    pub conflicting: Vec<runner::CaseResult>,
}

/// Result of a pair of calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Pair {
    /// The two calls, in their order.
    pub calls: [String; 2],
    /// Number of their cases.
    pub cases: usize,
    /// Number of their cases without a conflict.
    pub free: usize,
}

/// Cases that conflict on one owner.
#[derive(Clone, Debug, Serialize)]
pub struct OwnerSummary {
    /// The owner of the lines.
    pub owner: Owner,
    /// Number of cases.
    pub cases: usize,
    /// Number of cases without any other conflict.
    pub alone: usize,
    /// One of the conflicts.
    pub example: NamedConflict,
    /// Name of the case that has it.
    pub example_case: String,
}

/// Options of a run.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Names of the patches that are disabled.
    pub before: Vec<String>,
    /// Seed of the cases, for the record.
    pub seed: u64,
    /// Options of the runner.
    pub options: runner::Options,
}

/// Runs cases. `at` gets the number of finished cases and may return `false` to stop.
///
/// # Errors
/// If the system has no memory or threads.
pub fn run(
    cases: &[Case],
    plan: &Plan,
    mut at: impl FnMut(usize) -> bool,
) -> std::io::Result<Report> {
    let start = Instant::now();
    let mut runner = Runner::new(plan.options)?;
    let mut report = Report {
        before: plan.before.clone(),
        target: format!("{:?}", plan.options.target).to_lowercase(),
        promoted: plan.options.promoted,
        seed: plan.seed,
        cases: 0,
        free: 0,
        seconds: 0.0,
        failed: Vec::new(),
        not_understood: 0,
        with_system_calls: 0,
        pairs: Vec::new(),
        owners: Vec::new(),
        conflicting: Vec::new(),
    };
    let mut pairs: BTreeMap<(CallKind, CallKind), (usize, usize)> = BTreeMap::new();
    for (done, case) in cases.iter().enumerate() {
        if !at(done) {
            break;
        }
        match settled(&mut runner, case) {
            Ok(result) => {
                let pair = pairs.entry(case.pair).or_default();
                let free = result.conflicts.is_empty();
                pair.0 += 1;
                pair.1 += usize::from(free);
                report.add(result);
            }
            Err(e) => report.failed.push((case.name.clone(), e.to_string())),
        }
    }
    let pair = |((a, b), (cases, free)): ((CallKind, CallKind), (usize, usize))| Pair {
        calls: [a.name(), b.name()],
        cases,
        free,
    };
    report.pairs = pairs.into_iter().map(pair).collect();
    report.owners = owners(&report.conflicting);
    report.seconds = start.elapsed().as_secs_f64();
    Ok(report)
}

/// Runs a case, up to three times if it conflicts, to rule out chance (see the page of [`runner`]).
fn settled(runner: &mut Runner, case: &Case) -> std::io::Result<runner::CaseResult> {
    let result = runner.run(case)?;
    if result.conflicts.is_empty() {
        return Ok(result);
    }
    let again = runner.run(case)?;
    if again.conflicts.is_empty() { runner.run(case) } else { Ok(again) }
}

fn owners(conflicting: &[runner::CaseResult]) -> Vec<OwnerSummary> {
    let mut owners: BTreeMap<Owner, OwnerSummary> = BTreeMap::new();
    for result in conflicting {
        let mut here: Vec<&NamedConflict> = result.conflicts.iter().collect();
        here.sort_by(|a, b| a.owner.cmp(&b.owner));
        here.dedup_by(|a, b| a.owner == b.owner);
        let alone = here.len() == 1;
        for found in here {
            let entry = owners.entry(found.owner.clone()).or_insert_with(|| OwnerSummary {
                owner: found.owner.clone(),
                cases: 0,
                alone: 0,
                example: found.clone(),
                example_case: result.name.clone(),
            });
            entry.cases += 1;
            entry.alone += usize::from(alone);
        }
    }
    let mut owners: Vec<OwnerSummary> = owners.into_values().collect();
    owners.sort_by_key(|of| std::cmp::Reverse(of.cases));
    owners
}

impl Report {
    fn add(&mut self, result: runner::CaseResult) {
        self.cases += 1;
        self.not_understood += result.not_understood;
        self.with_system_calls += usize::from(result.system_calls > 0);
        if result.conflicts.is_empty() {
            self.free += 1;
        } else {
            self.conflicting.push(result);
        }
    }

    /// Returns the calls in the order of rows and columns.
    #[must_use]
    pub fn calls(&self) -> Vec<&str> {
        let mut calls: Vec<&str> = Vec::new();
        for call in self.pairs.iter().flat_map(|pair| &pair.calls) {
            if !calls.contains(&call.as_str()) {
                calls.push(call);
            }
        }
        calls
    }

    /// Returns the result of two calls, in either order.
    #[must_use]
    pub fn pair(&self, a: &str, b: &str) -> Option<&Pair> {
        let is = |pair: &&Pair| {
            let [x, y] = &pair.calls;
            (x == a && y == b) || (x == b && y == a)
        };
        self.pairs.iter().find(is)
    }

    /// Formats the report as JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        // None of the fields can fail to serialize.
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    /// Summarizes in a sentence how many cases were run and how many are free.
    #[must_use]
    pub fn summary(&self) -> String {
        let before = match self.before.as_slice() {
            [] => String::new(),
            before => format!(", before {}", before.join("+")),
        };
        let when = if self.promoted { "after promotion" } else { "before promotion" };
        let share = 100.0 * self.free as f64 / self.cases.max(1) as f64;
        format!(
            "{} of {} commuting cases are free of conflicts ({share:.1} %), {}, {when}{before}; seed {}, {:.0} s",
            self.free, self.cases, self.target, self.seed, self.seconds
        )
    }

    /// Formats the report for a terminal: the triangle with the number of conflicting cases, or `.`
    /// for none, and then the owners.
    #[must_use]
    pub fn render(&self) -> String {
        let calls = self.calls();
        let mut lines = vec![vec![String::new()]];
        lines[0].extend((1..=calls.len()).map(|n| n.to_string()));
        for (row, a) in calls.iter().enumerate() {
            let mut line = vec![format!("{:>2} {a}", row + 1)];
            line.extend(calls[..=row].iter().map(|b| match self.pair(a, b) {
                None => String::new(),
                Some(pair) if pair.free == pair.cases => ".".to_owned(),
                Some(pair) => (pair.cases - pair.free).to_string(),
            }));
            lines.push(line);
        }
        let mut text = Columns(lines).render();
        // Writing to a string can't fail, here and below.
        let _ = writeln!(text, "\n{}", self.summary());
        for of in &self.owners {
            let (cases, alone) = (of.cases, of.alone);
            let _ = writeln!(text, "\n{}: {cases} cases, alone in {alone}", of.owner);
            let same = if of.example.same_bytes { "" } else { ", but other bytes of the line" };
            let _ = writeln!(text, "    {}{same}", of.example.first);
            let _ = writeln!(text, "    {}", of.example.second);
            let _ = writeln!(text, "    such as {}", of.example_case);
        }
        if self.not_understood + self.with_system_calls as u64 > 0 {
            let _ = writeln!(
                text,
                "\nnot recorded: {} instructions; the inside of system calls in {} cases",
                self.not_understood, self.with_system_calls
            );
        }
        for (case, reason) in &self.failed {
            let _ = writeln!(text, "failed: {case}: {reason}");
        }
        text
    }
}

#[cfg(test)]
mod tests;
