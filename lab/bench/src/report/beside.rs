//! Our figures, for comparison with published tables.

use super::table::{self, number};
use crate::base::results::{CaseName, CaseResult, Compared, Comparison, Report, SharedLines};
use crate::base::stats::{Verdict, mean_and_deviation};
use crate::published::{LOCK_COLUMNS_OF_A_CASE, OurFigures, PublishedTable, TABLES, price_of};
use crate::targets::TargetSpec;

/// Columns of [`ours`].
pub const OUR_COLUMNS: [&str; 6] = ["workload", "workers", "before", "after", "change", "verdict"];

/// Columns of [`SlowerRows`].
pub const SLOWER_COLUMNS: [&str; 5] = ["workload", "workers", "without", "change", "known price"];

/// Columns of [`ours`] for transactions.
const TRANSACTION_COLUMNS: [&str; 6] =
    ["workload", "workers", "without", "before, tx/s", "after, tx/s", "change"];

/// Columns of [`ours`] for seconds.
const SECONDS_COLUMNS: [&str; 9] = [
    "workload",
    "workers",
    "before, s",
    "deviation",
    "after, s",
    "deviation",
    "change",
    "CPU time before, s",
    "after",
];

/// Columns of [`ours`] for shares of time in locks.
const WAITING_COLUMNS: [&str; 4] = ["workload", "workers", "before", "after"];

/// Columns of [`ours`] for the load of CPUs.
const LOAD_COLUMNS: [&str; 8] = [
    "readers",
    "writers",
    "system, before",
    "after",
    "user, before",
    "after",
    "waiting for locks, before",
    "after",
];

/// Columns of [`ours`] for shared lines.
const COUNT_COLUMNS: [&str; 11] = [
    "workload",
    "without",
    "lines before",
    "after",
    "touches before",
    "after",
    "waits for locks in 1,000 operations before",
    "after",
    "transactions of 1,000 that waited before",
    "after",
    "verdict by counting",
];

/// Columns of [`ours`] for numbers of slots.
const SLOTS_COLUMNS: [&str; 4] = ["workload", "CPUs", "time of each", "times that with the fewest"];

impl PublishedTable {
    /// Returns whether figures of a target are for this table.
    pub(crate) fn is_on(&self, target: &TargetSpec) -> bool {
        match target {
            TargetSpec::Memory => !self.on_volumes,
            TargetSpec::Volume(_) => self.on_volumes,
            TargetSpec::Mount(mount) => mount.image.is_some() == self.on_volumes,
            TargetSpec::Path(_) => true,
        }
    }

    /// Returns the columns of our figures.
    #[must_use]
    pub fn our_columns(&self) -> &'static [&'static str] {
        match self.figures {
            OurFigures::Rates => &OUR_COLUMNS,
            OurFigures::Seconds(_) => &SECONDS_COLUMNS,
            OurFigures::Locks(_) => &LOCK_COLUMNS_OF_A_CASE,
            OurFigures::Waiting => &WAITING_COLUMNS,
            OurFigures::Load => &LOAD_COLUMNS,
            OurFigures::Transactions => &TRANSACTION_COLUMNS,
            OurFigures::Counts => &COUNT_COLUMNS,
            OurFigures::Slots(_) => &SLOTS_COLUMNS,
        }
    }

    /// Returns a sentence that names the patches missing in the figures called `before`.
    pub(crate) fn note(&self) -> String {
        match (self.figures, self.before) {
            (OurFigures::Transactions | OurFigures::Counts, _) => {
                "Ours before is without what the line names.".to_owned()
            }
            (OurFigures::Slots(_), _) => "Ours has every patch.".to_owned(),
            (_, ["all"]) => "Ours before is without any of the patches.".to_owned(),
            (_, patches) => format!("Ours before is without {}.", patches.join(" and ")),
        }
    }

    /// Returns whether the table measures cases with exactly these patches disabled.
    pub(crate) fn is_about(&self, before: &[String]) -> bool {
        before.iter().eq(self.before) || (self.before == ["all"] && self.is_all(before))
    }

    /// Returns whether these are all patches that a target of the table has.
    fn is_all(&self, before: &[String]) -> bool {
        let of_table = |patch: &&vfscale::Patch| self.on_volumes || !patch.is_of_volumes();
        before.len() == vfscale::PATCHES.iter().filter(of_table).count()
    }
}

/// Returns the rows of our figures for a published table. Rates have a row for each case, with the
/// rate without the patches if that was measured.
pub fn ours(report: &Report, table: &PublishedTable) -> Vec<Vec<String>> {
    let is_of = |result: &&CaseResult| is_of(table, result);
    let results = || report.results.iter().filter(is_of);
    let after = || results().filter(|result| result.case.before.is_empty());
    let before = |after: &CaseResult| {
        let mut others = results().filter(|result| table.is_about(&result.case.before));
        others.find(|other| is_same_but_patches(&other.case, &after.case))
    };
    match table.figures {
        OurFigures::Rates => after().map(|result| row(report, table, result)).collect(),
        OurFigures::Seconds(operations) => {
            after().map(|result| seconds(report, result, before(result), operations)).collect()
        }
        OurFigures::Locks(class) => {
            results().filter_map(|result| lock_row(table, result, class)).collect()
        }
        OurFigures::Waiting => {
            after().filter_map(|result| waiting(report, result, before(result))).collect()
        }
        OurFigures::Load => after().filter_map(|result| load(result, before(result))).collect(),
        OurFigures::Transactions => {
            let before = results().filter(|result| !result.case.before.is_empty());
            before.filter_map(|result| transactions(report, result)).collect()
        }
        OurFigures::Counts => counts(report, table),
        OurFigures::Slots(_) => {
            let fewest = |result: &CaseResult| {
                results().find(|other| other.case.workload == result.case.workload)
            };
            results().filter_map(|result| slots(result, fewest(result)?)).collect()
        }
    }
}

/// Returns whether a result is shown next to a published table.
fn is_of(table: &PublishedTable, result: &CaseResult) -> bool {
    table.workloads.contains(&result.case.workload.as_str())
        && TargetSpec::parse(&result.case.target).is_ok_and(|target| table.is_on(&target))
        && matches!(table.figures, OurFigures::Slots(_)) == result.cpus_pretended.is_some()
}

/// Returns whether two cases differ in nothing but their patches.
fn is_same_but_patches(one: &CaseName, other: &CaseName) -> bool {
    CaseName { before: vec![], ..one.clone() } == CaseName { before: vec![], ..other.clone() }
}

/// Returns the workers of a case and its target.
fn workers_of(report: &Report, result: &CaseResult) -> String {
    let processes = if result.processes { " processes" } else { "" };
    let target = report.target_name(&result.case.target);
    format!("{target} {}{processes}", table::workers(&result.case))
}

/// Returns the workers of a case and its target, and the users.
fn workers_and_users_of(report: &Report, result: &CaseResult) -> String {
    let users = result.case.users.map_or(String::new(), |users| format!(", {users} users"));
    workers_of(report, result) + &users
}

/// Returns the ratio of a case to the same one without the patches that a table is about.
fn over_before<'r>(
    report: &'r Report,
    table: &PublishedTable,
    case: &CaseName,
) -> Option<&'r Comparison> {
    let of_patches = |ratio: &&Comparison| {
        let about = ratio.compared == Compared::Patches && table.is_about(&ratio.over.before);
        about && ratio.of == *case
    };
    report.ratios.iter().find(of_patches)
}

/// The rows of rates that are slower with patches than without.
pub struct SlowerRows {
    /// The rows, each with the price of a patch that is known for the workload.
    pub rows: Vec<Vec<String>>,
    /// Number of rows that have a verdict.
    pub compared: usize,
}

impl SlowerRows {
    /// Share of rows that are slower by chance where no patch changes anything: half of those whose
    /// interval of 95 % does not contain the truth.
    const BY_CHANCE: f64 = 0.025;

    /// Finds the rows in the tables of rates.
    pub fn of(report: &Report) -> SlowerRows {
        let mut seen: Vec<&Comparison> = Vec::new();
        let mut rows = Vec::new();
        for table in TABLES.iter().filter(|table| table.figures == OurFigures::Rates) {
            for result in report.results.iter().filter(|result| is_of(table, result)) {
                let Some(comparison) = over_before(report, table, &result.case) else { continue };
                let verdict = comparison.ratio.verdict;
                let has_verdict = !matches!(verdict, Verdict::Unsteady | Verdict::Starved);
                if !has_verdict || seen.iter().any(|other| std::ptr::eq(*other, comparison)) {
                    continue;
                }
                seen.push(comparison);
                if verdict == Verdict::Slower {
                    rows.push(slower_row(report, table, result, comparison));
                }
            }
        }
        SlowerRows { rows, compared: seen.len() }
    }

    /// Returns the sentences above the rows.
    pub fn note(&self) -> String {
        format!(
            "A row is slower if the whole interval of its change is below zero. Of {} rows with a \
             verdict {} are slower; about {:.0} would be by chance if no patch changed anything.",
            self.compared,
            self.rows.len(),
            self.compared as f64 * Self::BY_CHANCE
        )
    }
}

/// Returns a case that is slower with patches, and what is known about their price there.
fn slower_row(
    report: &Report,
    table: &PublishedTable,
    result: &CaseResult,
    comparison: &Comparison,
) -> Vec<String> {
    let case = &result.case;
    let price = price_of(&case.workload, &comparison.over.before).unwrap_or("none is known");
    vec![
        case.workload.clone(),
        workers_and_users_of(report, result),
        table.before.join(", "),
        change(comparison.ratio.median),
        price.to_owned(),
    ]
}

/// Returns the seconds in which each worker makes a number of operations, with and without patches,
/// and the CPU time of all workers.
fn seconds(
    report: &Report,
    after: &CaseResult,
    before: Option<&CaseResult>,
    operations: u64,
) -> Vec<String> {
    let all = operations as f64 * after.case.threads as f64;
    let of = |result: &CaseResult| {
        let rounds: Vec<f64> = result.rounds.iter().map(|rate| all / rate).collect();
        mean_and_deviation(&rounds)
    };
    let cells = |result: Option<&CaseResult>| match result.map(of) {
        Some((mean, deviation)) => [mean, deviation].map(number),
        None => ["-", "-"].map(str::to_owned),
    };
    let cpu = |result: Option<&CaseResult>| {
        let time = result.map(|result| result.cpu.used * of(result).0);
        time.map_or("-".to_owned(), number)
    };
    let mut row = vec![after.case.workload.clone(), workers_of(report, after)];
    row.extend(cells(before));
    row.extend(cells(Some(after)));
    row.push(before.map_or("-".to_owned(), |before| change(of(after).0 / of(before).0)));
    row.extend([cpu(before), cpu(Some(after))]);
    row
}

/// Formats a share in percent.
fn percent(share: f64) -> String {
    format!("{:.2}%", share * 100.0)
}

/// Returns the shares of time in locks, with and without patches; `None` if they were not measured.
fn waiting(
    report: &Report,
    after: &CaseResult,
    before: Option<&CaseResult>,
) -> Option<Vec<String>> {
    let share = |result: &CaseResult| Some(percent(result.lockstat_round?.waiting));
    let (old, new) = (share(before?)?, share(after)?);
    Some(vec![after.case.workload.clone(), workers_of(report, after), old, new])
}

/// Returns the load of CPUs, with and without patches; `None` if it was not measured.
fn load(after: &CaseResult, before: Option<&CaseResult>) -> Option<Vec<String>> {
    let readers = after.case.readers?;
    let before = before?;
    let cpus = |result: &CaseResult| result.machine.cpus.min(result.case.threads).max(1) as f64;
    let system = |result: &CaseResult| percent(result.cpu.system / cpus(result));
    let user = |result: &CaseResult| {
        percent((result.cpu.used - result.cpu.system).max(0.0) / cpus(result))
    };
    let locks = |result: &CaseResult| Some(percent(result.lockstat_round?.waiting));
    Some(vec![
        readers.to_string(),
        (after.case.threads - readers).to_string(),
        system(before),
        system(after),
        user(before),
        user(after),
        locks(before)?,
        locks(after)?,
    ])
}

/// Returns the counts of shared lines with and without patches, and the waits for locks.
fn counts(report: &Report, table: &PublishedTable) -> Vec<Vec<String>> {
    let is_of = |count: &&SharedLines| table.workloads.contains(&count.workload.as_str());
    let counts = || report.counts.iter().filter(is_of);
    let row = |before: &SharedLines| {
        let is_after =
            |other: &&SharedLines| other.workload == before.workload && other.before.is_empty();
        let after = counts().find(is_after)?;
        let cell = |waits: Option<f64>| waits.map_or("-".to_owned(), |waits| format!("{waits:.2}"));
        let waits = [lock_waits, log_waits].map(|of: fn(&CaseResult) -> Option<f64>| {
            [before, after].map(|count| cell(measured(report, table, count).and_then(of)))
        });
        let verdict = if after.touches_max < before.touches_min {
            "fewer touches of shared lines"
        } else if after.touches_min > before.touches_max {
            "more touches of shared lines"
        } else {
            "no difference beyond that of recordings"
        };
        let range = |count: &SharedLines| match (count.touches_min, count.touches_max) {
            (min, max) if min == max => min.to_string(),
            (min, max) => format!("{min} to {max}"),
        };
        let mut row = vec![before.workload.clone(), before.before.join(", ")];
        row.extend([before.lines.to_string(), after.lines.to_string()]);
        row.extend([range(before), range(after)]);
        row.extend(waits.into_iter().flatten());
        row.push(verdict.to_owned());
        Some(row)
    };
    counts().filter(|count| !count.before.is_empty()).filter_map(row).collect()
}

/// Returns the case of a count with the most workers.
fn measured<'r>(
    report: &'r Report,
    table: &PublishedTable,
    count: &SharedLines,
) -> Option<&'r CaseResult> {
    let is_of = |result: &&CaseResult| {
        result.case.workload == count.workload
            && result.case.before == count.before
            && TargetSpec::parse(&result.case.target).is_ok_and(|target| table.is_on(&target))
    };
    report.results.iter().filter(is_of).max_by_key(|result| result.case.threads)
}

/// Returns how often acquisitions waited in 1,000 operations; `None` without lock statistics.
fn lock_waits(result: &CaseResult) -> Option<f64> {
    let waited: u64 = result.lockstat.as_ref()?.iter().map(|row| row.contentions).sum();
    Some(1e3 * waited as f64 / result.lockstat_round?.operations.max(1) as f64)
}

/// Returns how many of 1,000 transactions waited for the log; `None` without a journal.
fn log_waits(result: &CaseResult) -> Option<f64> {
    Some(result.journal.as_ref()?.waited_per_1000)
}

/// Returns the time of an operation with structures for a number of CPUs, and its ratio to that
/// with the fewest.
fn slots(result: &CaseResult, fewest: &CaseResult) -> Option<Vec<String>> {
    let nanos = |result: &CaseResult| 1e9 * result.case.threads as f64 / result.ops_per_s.median;
    Some(vec![
        result.case.workload.clone(),
        result.cpus_pretended?.to_string(),
        format!("{} ns", number(nanos(result))),
        format!("{:.2}", nanos(result) / nanos(fewest)),
    ])
}

/// Returns the statistics of a lock class in a case, or dashes if the case has no such lock.
fn lock_row(table: &PublishedTable, result: &CaseResult, class: &str) -> Option<Vec<String>> {
    let locks = result.lockstat.as_ref()?;
    let name = if result.case.before.is_empty() { "after" } else { "before" };
    let mut name = format!("{name} x{}", result.case.threads);
    if table.workloads.len() > 1 {
        name = format!("{}, {name}", result.case.workload);
    }
    let cells = match locks.iter().find(|row| row.class == class) {
        Some(row) => table::lock_row(row),
        None => vec!["-".to_owned(); LOCK_COLUMNS_OF_A_CASE.len() - 1],
    };
    Some(std::iter::once(name).chain(cells).collect())
}

/// Returns the transaction rates of a case without patches, and of the one with all patches.
fn transactions(report: &Report, before: &CaseResult) -> Option<Vec<String>> {
    let with = CaseName { before: vec![], ..before.case.clone() };
    let after = report.results.iter().find(|result| result.case == with)?;
    let rate = |result: &CaseResult| Some(result.journal.as_ref()?.transactions_per_s.median);
    let (old, new) = (rate(before)?, rate(after)?);
    Some(vec![
        before.case.workload.clone(),
        workers_of(report, after),
        before.case.before.join(", "),
        number(old),
        number(new),
        change(new / old),
    ])
}

/// Formats a ratio as a change in percent.
fn change(ratio: f64) -> String {
    format!("{:+.1}%", (ratio - 1.0) * 100.0)
}

fn row(report: &Report, table: &PublishedTable, result: &CaseResult) -> Vec<String> {
    let case = &result.case;
    let ratio = over_before(report, table, case);
    let before =
        report.results.iter().find(|other| ratio.is_some_and(|ratio| ratio.over == other.case));
    let factor = match &result.source_rate {
        Some(rate) => rate.rate.median / result.ops_per_s.median,
        None => 1.0,
    };
    let workers = workers_and_users_of(report, result);
    let figure = |rate: f64| number(rate * factor);
    let mut row = vec![format!("{}, {}", case.workload, result.unit_of_rate()), workers];
    row.push(before.map_or("-".to_owned(), |other| figure(other.ops_per_s.median)));
    row.push(figure(result.ops_per_s.median));
    let Some(comparison) = ratio else {
        row.extend(["-".to_owned(), "no patches".to_owned()]);
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
