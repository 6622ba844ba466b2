//! Results as a terminal shows them.

use std::fmt::Write;

use crate::report::{CaseName, CaseResult, Compared, Comparison, Report};
use crate::stats::Verdict;
use crate::workloads;

/// Lines of columns, each as wide as its widest field. The first column is flush left, the others flush
/// right.
pub struct Columns(pub Vec<Vec<String>>);

impl Columns {
    /// As text.
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

/// A number with three figures that count, and thousands apart: `1,234,567` or `0.123`.
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

/// How a case is called in a table of its workload.
pub fn case_label(case: &CaseName) -> String {
    let mut label = format!("{} x{}", case.target, case.threads);
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
    let mut row = vec![
        format!("  {}", case_label(&result.case)),
        number(rate.median),
        number(rate.min),
        number(rate.max),
        percent(result.disagreement),
        percent(result.cpu.min),
    ];
    row.push(match &result.seed_rate {
        Some(seed) => format!("{} {}", number(seed.rate.median), seed.unit),
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

pub(crate) fn comparison(of: &Comparison) -> Vec<String> {
    let users = of.of.users.map_or(String::new(), |users| format!(", {users} users"));
    let (target, threads) = (&of.of.target, of.of.threads);
    let what = match of.compared {
        Compared::Patches => format!("{target} x{threads} after / before{users}"),
        Compared::Threads => format!("{target} x{threads} / x{}{users}", of.over.threads),
        Compared::Targets => format!("{target} / {} x{threads}{users}", of.over.target),
    };
    let ratio = &of.ratio;
    let verdict = match ratio.verdict {
        Verdict::Unsteady => {
            format!("{} by {}", ratio.verdict.words(), percent(ratio.disagreement))
        }
        verdict => verdict.words().to_owned(),
    };
    vec![
        format!("  {what}"),
        format!("{:.2}", ratio.median),
        format!("[{:.2}..{:.2}]", ratio.low, ratio.high),
        verdict,
    ]
}

/// The whole report: for each workload a table of its cases and one of the ratios.
pub fn render(report: &Report) -> String {
    let mut text = String::new();
    for workload in workloads::ALL {
        let results: Vec<&CaseResult> =
            report.results.iter().filter(|r| r.case.workload == workload.name).collect();
        if results.is_empty() {
            continue;
        }
        let _ = writeln!(text, "{} (seed {})", workload.name, workload.seed);
        let mut lines = vec![header(&results)];
        lines.extend(results.iter().map(|result| row(result)));
        text += &Columns(lines).render();
        let ratios = report.ratios.iter().filter(|r| r.of.workload == workload.name);
        text += &Columns(ratios.map(comparison).collect()).render();
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
#[path = "table_tests.rs"]
mod tests;
