//! Results as tables for a terminal.

use std::fmt::Write;

use vfscale::block::calendar;
use vfscale_vfs::lockstat;

use crate::base::results::{
    CaseName, CaseResult, Checkpoint, Compared, Comparison, LockMicros, LockRow, Report,
};
use crate::base::stats::Verdict;
use crate::workloads;

/// Lines of columns, each as wide as its widest field. The first column is aligned left, the others
/// right.
pub struct Columns(pub Vec<Vec<String>>);

impl Columns {
    /// Renders the lines as text.
    pub fn render(&self) -> String {
        let count = self.0.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let fields = self.0.iter().filter_map(|line| line.get(column));
            fields.map(|field| field.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..count).map(width).collect();
        let mut text = String::new();
        for line in &self.0 {
            let mut row = String::new();
            for (column, (field, width)) in line.iter().zip(&widths).enumerate() {
                // Writing to a string can't fail.
                let _ = match column {
                    0 => write!(row, "{field:<width$}"),
                    _ => write!(row, "  {field:>width$}"),
                };
            }
            text += row.trim_end();
            text.push('\n');
        }
        text
    }
}

/// Formats a number with three significant digits, and separated thousands: `1,234,567` or `0.123`.
pub fn number(value: f64) -> String {
    if !value.is_finite() {
        return "-".to_owned();
    }
    if value.abs() >= 1_000.0 {
        return grouped(value.round() as i64);
    }
    let digits = match value.abs() {
        0.0 | 100.0.. => 0,
        10.0.. => 1,
        1.0.. => 2,
        _ => 3,
    };
    format!("{value:.digits$}")
}

fn grouped(value: i64) -> String {
    let digits = value.unsigned_abs().to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if value < 0 { format!("-{text}") } else { text }
}

/// Formats seconds since 1970 as date and time in UTC.
pub(crate) fn date(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = calendar::date(i64::try_from(days).unwrap_or(i64::MAX));
    let (hour, minute) = (second / 3_600, second / 60 % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02} UTC")
}

/// Returns the workers of a case: `x2`, or the readers and writers if these were chosen.
pub(crate) fn workers(case: &CaseName) -> String {
    match case.readers {
        Some(readers) => format!("{readers} readers {} writers", case.threads - readers),
        None => format!("x{}", case.threads),
    }
}

/// Returns the label of a case in a table of its workload.
pub fn case_label(case: &CaseName) -> String {
    let mut label = format!("{} {}", case.target, workers(case));
    if let Some(users) = case.users {
        label += &format!(" {users} users");
    }
    if !case.before.is_empty() {
        label += &format!(" before {}", case.before.join("+"));
    }
    label
}

fn percent(share: f64) -> String {
    format!("{:.0}%", share * 100.0)
}

pub(crate) fn row(result: &CaseResult) -> Vec<String> {
    let rate = &result.ops_per_s;
    let slots = result.cpus_pretended.map_or(String::new(), |cpus| format!(", {cpus} CPUs"));
    let mut row = vec![
        format!("  {}{slots}", case_label(&result.case)),
        number(rate.median),
        number(rate.min),
        number(rate.max),
        percent(result.disagreement),
        percent(result.cpu.min),
    ];
    row.push(match &result.source_rate {
        Some(rate) => format!("{} {}", number(rate.rate.median), rate.unit),
        None => format!("{} ns", number(1e9 * result.case.threads as f64 / rate.median)),
    });
    if let Some(latency) = &result.latency_ns {
        let times = [latency.p50, latency.p99, latency.p999, latency.max];
        row.push(times.map(|nanos| number(nanos as f64)).join(" / "));
    }
    if let Some(time) = &result.over_time {
        row.push(format!("{} +/- {}", number(time.mean), number(time.deviation)));
    }
    row
}

pub(crate) fn header(results: &[&CaseResult]) -> Vec<String> {
    let unit = results.first().map_or("", |result| result.unit.as_str());
    let mut header = vec![
        "  case".to_owned(),
        format!("{unit}/s"),
        "min".to_owned(),
        "max".to_owned(),
        "range".to_owned(),
        "cpu".to_owned(),
        "each".to_owned(),
    ];
    if results.iter().any(|result| result.latency_ns.is_some()) {
        header.push("ns: p50 / p99 / p99.9 / max".to_owned());
    }
    if results.iter().any(|result| result.over_time.is_some()) {
        header.push("over time".to_owned());
    }
    header
}

pub(crate) fn comparison(of: &Comparison) -> [String; 4] {
    let users = of.of.users.map_or(String::new(), |users| format!(", {users} users"));
    let (target, team) = (&of.of.target, workers(&of.of));
    let what = match of.compared {
        Compared::Patches => format!("{target} {team} after / before{users}"),
        Compared::Threads => format!("{target} {team} / x{}{users}", of.over.threads),
        Compared::Targets => format!("{target} / {} {team}{users}", of.over.target),
    };
    let ratio = &of.ratio;
    let verdict = match ratio.verdict {
        Verdict::Unsteady => {
            format!("{} by {}", ratio.verdict.words(), percent(ratio.disagreement))
        }
        verdict => verdict.words().to_owned(),
    };
    [
        format!("  {what}"),
        format!("{:.2}", ratio.median),
        format!("[{:.2}..{:.2}]", ratio.low, ratio.high),
        verdict,
    ]
}

/// Number of lock classes that are shown; the JSON has all.
const CLASSES_SHOWN: usize = 8;

/// Formats the statistics of a lock class; times are in microseconds.
pub(crate) fn lock_row(row: &LockRow) -> Vec<String> {
    let times = |t: &LockMicros| [t.min, t.max, t.total, t.avg].map(|time| format!("{time:.2}"));
    let counts = |bounces: u64, all: u64| [bounces.to_string(), all.to_string()];
    let waits = counts(row.con_bounces, row.contentions).into_iter().chain(times(&row.wait_us));
    let holds = counts(row.acq_bounces, row.acquisitions).into_iter().chain(times(&row.hold_us));
    waits.chain(holds).collect()
}

/// Returns the header of [`lock_rows`].
pub(crate) fn lock_header() -> Vec<String> {
    ["  locks", "class"].into_iter().chain(lockstat::Row::COLUMNS).map(str::to_owned).collect()
}

/// Returns the lock statistics of the cases that have them.
pub(crate) fn lock_rows(results: &[&CaseResult]) -> Vec<Vec<String>> {
    let row = |result: &CaseResult, row: &LockRow| {
        let mut cells = vec![format!("  {}", case_label(&result.case)), row.class.clone()];
        cells.extend(lock_row(row));
        cells
    };
    let of = |result: &&CaseResult| {
        let rows = result.lockstat.iter().flatten().take(CLASSES_SHOWN);
        rows.map(|lock| row(result, lock)).collect::<Vec<_>>()
    };
    results.iter().flat_map(of).collect()
}

/// Returns the header of [`journal_rows`].
pub(crate) fn journal_header() -> Vec<String> {
    let of_transactions = ["  journal", "tx/s", "min", "max", "tx/op", "waited in 1,000"];
    let of_checkpoints = ["checkpoints", "items", "reserved", "used", "returned"];
    of_transactions.into_iter().chain(of_checkpoints).map(str::to_owned).collect()
}

/// Returns the work of the journal in each case that has one: transactions, and the mean items and
/// log bytes of a checkpoint.
pub(crate) fn journal_rows(results: &[&CaseResult]) -> Vec<Vec<String>> {
    let row = |result: &&CaseResult| {
        let work = result.journal.as_ref()?;
        let mean = |of: fn(&Checkpoint) -> u64| {
            let sum: u64 = work.checkpoints.iter().map(of).sum();
            number(sum as f64 / work.checkpoints.len() as f64)
        };
        let rate = &work.transactions_per_s;
        Some(vec![
            format!("  {}", case_label(&result.case)),
            number(rate.median),
            number(rate.min),
            number(rate.max),
            format!("{:.2}", work.transactions_per_op),
            format!("{:.2}", work.waited_per_1000),
            work.checkpoints.len().to_string(),
            mean(|checkpoint| checkpoint.items),
            mean(|checkpoint| checkpoint.reserved),
            mean(|checkpoint| checkpoint.used),
            mean(|checkpoint| checkpoint.returned),
        ])
    };
    results.iter().filter_map(row).collect()
}

/// Renders the whole report: for each workload tables of its cases, journals, locks and ratios.
pub fn render(report: &Report) -> String {
    let mut text = String::new();
    for workload in workloads::ALL {
        let results: Vec<&CaseResult> =
            report.results.iter().filter(|r| r.case.workload == workload.name).collect();
        if results.is_empty() {
            continue;
        }
        let _ = writeln!(text, "{} ({})", workload.name, workload.source);
        let mut lines = vec![header(&results)];
        lines.extend(results.iter().map(|result| row(result)));
        text += &Columns(lines).render();
        for (header, rows) in
            [(journal_header(), journal_rows(&results)), (lock_header(), lock_rows(&results))]
        {
            if !rows.is_empty() {
                text += &Columns(std::iter::once(header).chain(rows).collect()).render();
            }
        }
        let ratios = report.ratios.iter().filter(|r| r.of.workload == workload.name);
        text += &Columns(ratios.map(|ratio| comparison(ratio).into()).collect()).render();
        text.push('\n');
    }
    for (word, list) in [("failed", &report.failures), ("left out", &report.skipped)] {
        for failed in list {
            let case = case_label(&failed.case);
            let _ = writeln!(text, "{word}: {} on {case}: {}", failed.case.workload, failed.reason);
        }
    }
    if report.interrupted {
        text += "interrupted: the figures are of the rounds until then\n";
    }
    text
}

#[cfg(test)]
mod tests;
