//! One self-contained page with every table and plot, readable on a phone as well as on paper.
//!
//! The page loads no script, font or picture. Tables wider than the screen scroll on their own;
//! plots shrink.

use std::fmt::Write;
use std::path::Path;

use super::beside::{SLOWER_COLUMNS, SlowerRows, ours};
use super::plot::{self, PlotError};
use super::{markdown, table};
use crate::base::results::{CaseResult, Report};
use crate::published::{PublishedTable, TABLES};
use crate::workloads;

/// Style sheet of pages.
pub const STYLE: &str = "\
:root{color-scheme:light}
body{margin:0 auto;padding:1rem;max-width:75rem;font:16px/1.45 system-ui,sans-serif;color:#1a1a1a;background:#fff}
h1{font-size:1.5rem}h2{font-size:1.2rem;margin-top:2.5rem;border-top:1px solid #ccc;padding-top:1rem}h3{font-size:1rem}
.scroll{overflow-x:auto}table{border-collapse:collapse;font-size:.85rem;font-variant-numeric:tabular-nums}
th,td{padding:.25rem .6rem;text-align:right;white-space:nowrap;border-bottom:1px solid #e3e3e3}
th:first-child,td:first-child{text-align:left}
.figures{display:flex;flex-wrap:wrap;gap:1rem 2.5rem}.figures>div{min-width:0;max-width:100%}
svg{max-width:100%;height:auto}.note{color:#555;font-size:.9rem}
";

/// Escapes text for HTML.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Appends a table with a header. Writing to a string can't fail, here and below.
pub fn put_table<'a>(
    page: &mut String,
    columns: impl IntoIterator<Item = &'a str>,
    rows: impl IntoIterator<Item = Vec<String>>,
) {
    page.push_str("<div class=\"scroll\"><table><thead><tr>");
    for column in columns {
        let _ = write!(page, "<th>{}</th>", escape(column.trim()));
    }
    page.push_str("</tr></thead><tbody>\n");
    for row in rows {
        page.push_str("<tr>");
        for field in row {
            let _ = write!(page, "<td>{}</td>", escape(field.trim()));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody></table></div>\n");
}

fn head(page: &mut String, title: &str, report: &Report) {
    let _ = write!(
        page,
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>{STYLE}</style></head><body>\n<h1>{title}</h1>\n"
    );
    let _ = write!(page, "<p>{}, {:.0} seconds.", table::date(report.started), report.seconds);
    if let Some(result) = report.results.first() {
        let machine = &result.machine;
        let _ = write!(
            page,
            " {} CPUs of {}, {:.1} GiB of memory, {}. vfscale {}.",
            machine.cpus,
            escape(&machine.cpu),
            machine.memory as f64 / f64::from(1 << 30),
            escape(&result.kernel),
            escape(&result.commit)
        );
    }
    page.push_str("</p>\n");
    let mut mounts: Vec<String> = report
        .results
        .iter()
        .filter_map(|r| {
            let mount = r.mount.as_ref()?;
            Some(format!("{}: {} ({})", r.case.target, mount.fs_type, mount.options))
        })
        .collect();
    mounts.dedup();
    mounts.sort();
    mounts.dedup();
    for mount in mounts {
        let _ = writeln!(page, "<p class=\"note\">{}</p>", escape(&mount));
    }
    if report.interrupted {
        page.push_str(
            "<p><strong>Interrupted: the figures are of the rounds until then.</strong></p>\n",
        );
    }
    page.push_str(
        "<p class=\"note\">Medians of rounds; in brackets the interval of 95 % of a ratio. <em>cpu</em> is the \
         smallest share of its CPU that a worker got. There is no verdict if rounds disagree, or if the process did \
         not get its CPUs. A ratio or change is the median of the rounds' ratios, which is not the ratio of their \
         medians.</p>\n",
    );
}

/// Appends a published table with our figures next to it, and the plots of its workloads that no
/// earlier table has.
fn put_published(
    page: &mut String,
    report: &Report,
    table: &PublishedTable,
    drawn: &mut Vec<&'static str>,
) -> Result<(), PlotError> {
    let ours = ours(report, table);
    if ours.is_empty() {
        return Ok(());
    }
    let _ = writeln!(page, "<h2>{}: {}</h2>", table.source, escape(table.title));
    let _ = writeln!(
        page,
        "<p class=\"note\">There: {} {}</p>",
        escape(table.machine),
        escape(&table.note())
    );
    page.push_str("<div class=\"beside\"><div><h3>Published</h3>");
    let rows = table.rows.iter().map(|row| row.iter().map(|field| (*field).to_owned()).collect());
    put_table(page, table.columns.iter().copied(), rows);
    page.push_str("</div><div><h3>Here</h3>");
    put_table(page, table.our_columns().iter().copied(), ours);
    page.push_str("</div></div>\n");
    let of_table = |workload: &&workloads::Description| table.workloads.contains(&workload.name);
    for workload in workloads::ALL.iter().filter(of_table) {
        if !drawn.contains(&workload.name)
            && let Some(svg) = plot::svg(report, workload)?
        {
            page.push_str(&svg);
            drawn.push(workload.name);
        }
    }
    Ok(())
}

/// Appends the rows that are slower with patches than without, if any row has a verdict.
fn put_slower(page: &mut String, report: &Report) {
    let slower = SlowerRows::of(report);
    if slower.compared == 0 {
        return;
    }
    let _ = writeln!(page, "<h2>Rows that are slower</h2>\n<p>{}</p>", escape(&slower.note()));
    if !slower.rows.is_empty() {
        put_table(page, SLOWER_COLUMNS, slower.rows);
    }
}

fn put_workload(
    page: &mut String,
    report: &Report,
    workload: &workloads::Description,
    is_drawn: bool,
) -> Result<(), PlotError> {
    let results: Vec<&CaseResult> =
        report.results.iter().filter(|r| r.case.workload == workload.name).collect();
    if results.is_empty() {
        return Ok(());
    }
    let _ = writeln!(page, "<h2 id=\"{0}\">{0}</h2>", workload.name);
    let _ = writeln!(page, "<p>An operation: {}.</p>", escape(workload.operation));
    if !is_drawn && let Some(svg) = plot::svg(report, workload)? {
        page.push_str(&svg);
    }
    let header = table::header(&results);
    let rows = results.iter().map(|result| table::row(result));
    put_table(page, header.iter().map(String::as_str), rows);
    for (header, rows) in [
        (table::journal_header(), table::journal_rows(&results)),
        (table::lock_header(), table::lock_rows(&results)),
    ] {
        if !rows.is_empty() {
            put_table(page, header.iter().map(String::as_str), rows);
        }
    }
    let ratios = report.ratios.iter().filter(|r| r.of.workload == workload.name);
    let ratios: Vec<_> = ratios.map(|ratio| table::comparison(ratio).into()).collect();
    if !ratios.is_empty() {
        put_table(page, ["ratio", "median", "95 %", "verdict"], ratios);
    }
    Ok(())
}

/// Renders the page. With `published` it begins with the published tables and our figures.
///
/// # Errors
/// Returns an error if a plot can't be drawn.
pub fn render(report: &Report, published: bool) -> Result<String, PlotError> {
    let mut page = String::new();
    head(&mut page, "vfscale bench", report);
    let mut drawn = Vec::new();
    if published {
        for table in TABLES {
            put_published(&mut page, report, table, &mut drawn)?;
        }
        put_slower(&mut page, report);
    }
    for workload in workloads::ALL {
        put_workload(&mut page, report, workload, drawn.contains(&workload.name))?;
    }
    for (title, list) in [("Failed", &report.failures), ("Left out", &report.skipped)] {
        if !list.is_empty() {
            let _ = writeln!(page, "<h2>{title}</h2>");
            let row = |failed: &crate::base::results::Failed| {
                let case = table::case_label(&failed.case);
                vec![failed.case.workload.clone(), case, failed.reason.clone()]
            };
            put_table(&mut page, ["workload", "case", "reason"], list.iter().map(row));
        }
    }
    page.push_str("</body></html>\n");
    Ok(page)
}

/// Writes a report to a directory, which is created if missing: `report.html`, `report.md`,
/// `results.json`, `plots/WORKLOAD.svg`.
///
/// # Errors
/// Returns an error if a file can't be written, or a plot can't be drawn.
pub fn write_all(report: &Report, published: bool, dir: &Path) -> Result<(), PlotError> {
    let failed = |path: &Path, e: std::io::Error| {
        PlotError::new(format!("cannot write {}: {e}", path.display()))
    };
    let plots = dir.join("plots");
    std::fs::create_dir_all(&plots).map_err(|e| failed(&plots, e))?;
    let page = render(report, published)?;
    let text = markdown::render(report, published);
    for (name, text) in
        [("report.html", page), ("report.md", text), ("results.json", report.to_json())]
    {
        let path = dir.join(name);
        std::fs::write(&path, text).map_err(|e| failed(&path, e))?;
    }
    plot::write_all(report, &plots).map(drop)
}

#[cfg(test)]
mod tests;
