//! Results as a Markdown document, as the files in `docs/results` are.
//!
//! It begins with the command, the time, the commit, the machine and the mounts. A run of the
//! published experiments then shows each published table and our figures below it. Any other run
//! shows a table for each number of workers, with a line for each workload and a column for each
//! target, and tables of the ratios of targets, for more workers, and for patches.

use std::fmt::Write;

use super::beside::{SLOWER_COLUMNS, SlowerRows, ours};
use super::table::{self, number};
use crate::base::results::{CaseName, CaseResult, Compared, Comparison, Report};
use crate::base::stats::Verdict;
use crate::published::{PublishedTable, TABLES};
use crate::run::plan::DISAGREEMENT_MAX;
use crate::workloads;

/// Appends a table. The first column and those that `text` names are aligned left, the others
/// right. Writing to a string can't fail, here and below.
fn put_table<'a>(
    page: &mut String,
    columns: impl IntoIterator<Item = &'a str>,
    text: &[&str],
    rows: impl IntoIterator<Item = Vec<String>>,
) {
    let columns: Vec<&str> = columns.into_iter().map(str::trim).collect();
    let line = |page: &mut String, cells: &mut dyn Iterator<Item = &str>| {
        let escaped = cells.map(|cell| cell.trim().replace('|', "\\|"));
        let _ = writeln!(page, "| {} |", escaped.collect::<Vec<_>>().join(" | "));
    };
    page.push('\n');
    line(page, &mut columns.iter().copied());
    let is_text = |at: usize| at == 0 || text.contains(&columns[at]);
    let rules = (0..columns.len()).map(|at| if is_text(at) { "---" } else { "---:" });
    line(page, &mut rules.collect::<Vec<_>>().into_iter());
    for row in rows {
        line(page, &mut row.iter().map(String::as_str));
    }
}

fn head(page: &mut String, report: &Report, published: bool) {
    let title = if published { "`vfscale bench published`" } else { "`vfscale bench`" };
    let _ = writeln!(page, "# {title}\n");
    let _ = writeln!(page, "```sh\n{}\n```\n", report.command);
    let _ = write!(page, "{}, {:.0} seconds", table::date(report.started), report.seconds);
    if let Some(result) = report.results.first() {
        let machine = &result.machine;
        let _ = write!(
            page,
            ", commit `{}`, {} CPUs of {}, {:.0} GiB of memory, {}. Medians of {} rounds",
            result.commit,
            machine.cpus,
            machine.cpu,
            machine.memory as f64 / f64::from(1 << 30),
            result.kernel,
            result.rounds.len()
        );
    }
    page.push_str(if report.interrupted { ". Interrupted.\n" } else { ".\n" });
    let mut mounts: Vec<String> = Vec::new();
    for result in &report.results {
        let Some(mount) = &result.mount else { continue };
        let line = format!("{}: {}", report.target_name(&result.case.target), mount.options);
        if !mounts.contains(&line) {
            mounts.push(line);
        }
    }
    if !mounts.is_empty() {
        page.push('\n');
    }
    for mount in mounts {
        let _ = writeln!(page, "* {mount}");
    }
}

fn put_published(page: &mut String, report: &Report, table: &PublishedTable) {
    let ours = ours(report, table);
    if ours.is_empty() {
        return;
    }
    let _ = writeln!(page, "\n## {}: {}\n", table.source, table.title);
    let _ = writeln!(page, "There: {} {}", table.machine, table.note());
    let rows = table.rows.iter().map(|row| row.iter().map(|field| (*field).to_owned()).collect());
    put_table(page, table.columns.iter().copied(), table.columns, rows);
    page.push_str("\nHere:\n");
    let columns = table.our_columns().iter().copied();
    put_table(page, columns, &["workers", "without", "verdict"], ours);
}

/// Appends the rows that are slower with patches than without, if any row has a verdict.
fn put_slower(page: &mut String, report: &Report) {
    let slower = SlowerRows::of(report);
    if slower.compared == 0 {
        return;
    }
    let _ = writeln!(page, "\n## Rows that are slower\n\n{}", slower.note());
    if !slower.rows.is_empty() {
        put_table(page, SLOWER_COLUMNS, &["workers", "without", "known price"], slower.rows);
    }
}

/// Appends the work of the volumes' logs, for each workload with a volume.
fn put_journals(page: &mut String, report: &Report) {
    for workload in workloads::ALL {
        let of_workload = |result: &&CaseResult| result.case.workload == workload.name;
        let results: Vec<&CaseResult> = report.results.iter().filter(of_workload).collect();
        let mut rows = table::journal_rows(&results);
        if rows.is_empty() {
            continue;
        }
        let cases = results.iter().filter(|result| result.journal.is_some());
        for (row, result) in rows.iter_mut().zip(cases) {
            row[0] = case_name(report, &result.case);
        }
        let _ = writeln!(page, "\n## The log of a volume: {}", workload.name);
        put_table(page, table::journal_header().iter().map(String::as_str), &[], rows);
    }
}

/// Returns the label of a case among the cases of its workload.
fn case_name(report: &Report, case: &CaseName) -> String {
    table::case_label(&CaseName { target: report.target_name(&case.target), ..case.clone() })
}

/// Returns the name of a workload with its number of users.
fn work_of(case: &CaseName) -> String {
    let users = case.users.map_or(String::new(), |users| format!(", {users} users"));
    format!("{}{users}", case.workload)
}

/// Returns the distinct items, in the order of their first occurrence.
fn distinct<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut some = Vec::new();
    all.for_each(|one| {
        if !some.contains(&one) {
            some.push(one);
        }
    });
    some
}

/// Appends the cases with all patches: a table for each number of workers, with a column for each
/// target.
fn put_targets(page: &mut String, report: &Report) {
    let all = || report.results.iter().filter(|result| result.case.before.is_empty());
    let targets = distinct(all().map(|result| &result.case.target));
    let names: Vec<String> = targets.iter().map(|target| report.target_name(target)).collect();
    for threads in distinct(all().map(|result| result.case.threads)) {
        let as_many = || all().filter(|result| result.case.threads == threads);
        let plural = if threads == 1 { "" } else { "s" };
        let _ = writeln!(page, "\n## {threads} worker{plural}, in a second");
        let row = |work: String| {
            let of_work = || as_many().filter(|result| work_of(&result.case) == work);
            let cell = |target: &&String| {
                let found = of_work().find(|result| result.case.target == **target);
                found.map_or_else(|| "-".to_owned(), figure)
            };
            let unit = of_work().next().map_or(String::new(), |result| result.unit_of_rate());
            [work.clone(), unit].into_iter().chain(targets.iter().map(cell)).collect()
        };
        let columns = ["workload", "of"].into_iter().chain(names.iter().map(String::as_str));
        let rows = distinct(as_many().map(|result| work_of(&result.case))).into_iter().map(row);
        put_table(page, columns, &["of"], rows);
    }
    let _ = writeln!(page, "\n~: rounds disagree by more than {:.0} %.", DISAGREEMENT_MAX * 100.0);
}

/// Formats a rate in the document's unit, marked if its rounds disagree.
fn figure(result: &CaseResult) -> String {
    let rate = result.source_rate.as_ref().map_or(result.ops_per_s, |rate| rate.rate);
    let mark = if result.disagreement > DISAGREEMENT_MAX { "~" } else { "" };
    format!("{mark}{}", number(rate.median))
}

/// Formats a ratio with its interval, marked if there is no verdict.
fn ratio_cell(found: Option<&Comparison>) -> String {
    let Some(found) = found else { return "-".to_owned() };
    let ratio = &found.ratio;
    let says = !matches!(ratio.verdict, Verdict::Unsteady | Verdict::Starved);
    let mark = if says { "" } else { "~" };
    // A small ratio has two significant figures as well.
    let places = if ratio.median < 0.1 { 4 } else { 2 };
    let [median, low, high] =
        [ratio.median, ratio.low, ratio.high].map(|value| format!("{value:.places$}"));
    format!("{mark}{median} [{low}..{high}]")
}

/// Appends a table of these ratios, with a row for each workload and a column for each target.
fn put_ratios<'r, R: Iterator<Item = &'r Comparison>>(
    page: &mut String,
    report: &Report,
    targets: &[&String],
    ratios: impl Fn() -> R,
) {
    let names: Vec<String> = targets.iter().map(|target| report.target_name(target)).collect();
    let row = |work: String| {
        let of_work = || ratios().filter(|ratio| work_of(&ratio.of) == work);
        let cell =
            |target: &&String| ratio_cell(of_work().find(|ratio| ratio.of.target == **target));
        std::iter::once(work.clone()).chain(targets.iter().map(cell)).collect()
    };
    let columns = std::iter::once("workload").chain(names.iter().map(String::as_str));
    let rows = distinct(ratios().map(|ratio| work_of(&ratio.of))).into_iter().map(row);
    put_table(page, columns, &[], rows);
}

/// Appends the ratios of the other targets over the first, with a column for each.
fn put_over_first(page: &mut String, report: &Report) {
    let all = || report.ratios.iter().filter(|ratio| ratio.compared == Compared::Targets);
    let targets = distinct(all().map(|ratio| &ratio.of.target));
    for (threads, over) in distinct(all().map(|ratio| (ratio.of.threads, &ratio.over.target))) {
        let as_many = || all().filter(|ratio| ratio.of.threads == threads);
        let plural = if threads == 1 { "" } else { "s" };
        let over = report.target_name(over);
        let _ = writeln!(page, "\n## {threads} worker{plural}, over {over}");
        put_ratios(page, report, &targets, as_many);
    }
}

/// Appends the ratios of more workers, with a column for each target.
fn put_threads(page: &mut String, report: &Report) {
    let all = || report.ratios.iter().filter(|ratio| ratio.compared == Compared::Threads);
    let targets = distinct(all().map(|ratio| &ratio.of.target));
    for (threads, over) in distinct(all().map(|ratio| (ratio.of.threads, ratio.over.threads))) {
        let as_many = || all().filter(|r| (r.of.threads, r.over.threads) == (threads, over));
        let _ = writeln!(page, "\n## {threads} workers over {over}");
        put_ratios(page, report, &targets, as_many);
    }
}

/// Appends the ratios of patches, with a line for each case.
fn put_patches(page: &mut String, report: &Report) {
    let all = report.ratios.iter().filter(|ratio| ratio.compared == Compared::Patches);
    let rows: Vec<Vec<String>> = all
        .map(|ratio| {
            let [_, median, interval, verdict] = table::comparison(ratio);
            let case = CaseName { users: None, before: vec![], ..ratio.of.clone() };
            let without = ratio.over.before.join(", ");
            let (work, case) = (work_of(&ratio.of), case_name(report, &case));
            vec![work, case, without, median, interval, verdict]
        })
        .collect();
    if !rows.is_empty() {
        page.push_str("\n## With patches over without\n");
        let columns = ["workload", "case", "without", "ratio", "95 %", "verdict"];
        put_table(page, columns, &["case", "without", "verdict"], rows);
    }
}

/// Renders the document. With `published` it consists of the published tables and our figures.
#[must_use]
pub fn render(report: &Report, published: bool) -> String {
    let mut page = String::new();
    head(&mut page, report, published);
    if published {
        for table in TABLES {
            put_published(&mut page, report, table);
        }
        put_slower(&mut page, report);
        put_journals(&mut page, report);
    } else {
        put_targets(&mut page, report);
        put_over_first(&mut page, report);
        put_threads(&mut page, report);
        put_patches(&mut page, report);
    }
    for (word, list) in [("Failed", &report.failures), ("Left out", &report.skipped)] {
        for (at, failed) in list.iter().enumerate() {
            let gap = if at == 0 { "\n" } else { "" };
            let (work, case) = (&failed.case.workload, case_name(report, &failed.case));
            let _ = writeln!(page, "{gap}* {word}: {work} on {case}: {}", failed.reason);
        }
    }
    page
}

#[cfg(test)]
mod tests;
