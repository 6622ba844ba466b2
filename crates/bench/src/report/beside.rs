//! Our figures, for comparison with published tables.

use super::table::{self, number};
use crate::base::results::{CaseName, CaseResult, Compared, Comparison, Report};
use crate::base::stats::Verdict;
use crate::published::{LOCK_COLUMNS_OF_A_CASE, OurFigures, PublishedTable};

/// Columns of [`ours`].
pub const OUR_COLUMNS: [&str; 6] = ["workload", "workers", "before", "after", "change", "verdict"];

/// Columns of [`ours`] for transactions.
const TRANSACTION_COLUMNS: [&str; 6] =
    ["workload", "workers", "without", "before, tx/s", "after, tx/s", "change"];

impl PublishedTable {
    /// Returns the columns of our figures.
    #[must_use]
    pub fn our_columns(&self) -> &'static [&'static str] {
        match self.figures {
            OurFigures::Memory | OurFigures::Volumes => &OUR_COLUMNS,
            OurFigures::Locks(_) => &LOCK_COLUMNS_OF_A_CASE,
            OurFigures::Transactions => &TRANSACTION_COLUMNS,
        }
    }

    /// Returns a sentence that names the patches missing in the figures called `before`.
    pub(crate) fn note(&self) -> String {
        match (self.figures, self.before) {
            (OurFigures::Transactions, _) => {
                "Ours before is without what the line names.".to_owned()
            }
            (_, ["all"]) => "Ours before is without any of the patches.".to_owned(),
            (_, patches) => format!("Ours before is without {}.", patches.join(" and ")),
        }
    }

    /// Returns whether the table measures cases with exactly these patches disabled.
    pub(crate) fn is_about(&self, before: &[String]) -> bool {
        self.before == ["all"] || before.iter().eq(self.before)
    }
}

/// Returns the rows of our figures for a published table. Rates have a row for each case, with the
/// rate without the patches if that was measured.
pub fn ours(report: &Report, table: &PublishedTable) -> Vec<Vec<String>> {
    let is_of = |result: &&CaseResult| table.workloads.contains(&result.case.workload.as_str());
    let results = report.results.iter().filter(is_of);
    match table.figures {
        OurFigures::Memory | OurFigures::Volumes => {}
        OurFigures::Locks(class) => {
            return results.filter_map(|result| lock_row(result, class)).collect();
        }
        OurFigures::Transactions => {
            let before = results.filter(|result| !result.case.before.is_empty());
            return before.filter_map(|result| transactions(report, result)).collect();
        }
    }
    let after = results.filter(|result| result.case.before.is_empty());
    after.map(|result| row(report, table, result)).collect()
}

/// Returns the statistics of a lock class in a case, or dashes if the case has no such lock.
fn lock_row(result: &CaseResult, class: &str) -> Option<Vec<String>> {
    let locks = result.lockstat.as_ref()?;
    let name = if result.case.before.is_empty() { "after" } else { "before" };
    let name = format!("{name} x{}", result.case.threads);
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
        format!("{} x{}", report.target_name(&with.target), with.threads),
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
    let of_patches = |ratio: &&Comparison| {
        let about = ratio.compared == Compared::Patches && table.is_about(&ratio.over.before);
        about && ratio.of == *case
    };
    let ratio = report.ratios.iter().find(of_patches);
    let before =
        report.results.iter().find(|other| ratio.is_some_and(|ratio| ratio.over == other.case));
    let factor = match &result.source_rate {
        Some(rate) => rate.rate.median / result.ops_per_s.median,
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
