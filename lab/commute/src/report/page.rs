//! A self-contained HTML page: the triangle, the owners of conflicting lines, and every conflicting
//! case.

use std::fmt::Write;
use std::io;
use std::path::Path;

use vfscale_bench::html::{STYLE, escape, put_table};

use crate::report::Report;
use crate::report::picture;

/// Renders the page.
#[must_use]
pub fn render(report: &Report) -> String {
    let mut page = String::new();
    // Writing to a string can't fail, here and below.
    let _ = write!(
        page,
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>vfscale bench commute</title>\n<style>{STYLE}</style></head><body>\n\
         <h1>Calls that commute, and the cache lines they conflict on</h1>\n<p>{}.</p>\n\
         <p class=\"note\">A number is that of cases in which one call writes a line that the other \
         touches.</p>\n",
        escape(&report.summary())
    );
    page += &picture::svg(report);
    page.push_str("<h2>Owners</h2>\n");
    let owners = report.owners.iter().map(|of| {
        let example = &of.example;
        let (first, second) = (example.first.to_string(), example.second.to_string());
        vec![of.owner.to_string(), of.cases.to_string(), of.alone.to_string(), first, second]
    });
    put_table(&mut page, ["owner", "cases", "alone", "one call", "the other"], owners);
    page.push_str("<h2>Cases</h2>\n");
    let cases = report.conflicting.iter().map(|result| {
        let mut owners: Vec<String> =
            result.conflicts.iter().map(|c| c.owner.to_string()).collect();
        owners.sort();
        owners.dedup();
        vec![result.name.clone(), result.conflicts.len().to_string(), owners.join("; ")]
    });
    put_table(&mut page, ["case", "lines", "owners"], cases);
    page + "</body></html>\n"
}

/// Writes `commute.html`, `commute.svg` and `commute.json` to a directory.
///
/// # Errors
/// If a file can't be written.
pub fn write_all(report: &Report, dir: &Path) -> io::Result<()> {
    std::fs::write(dir.join("commute.html"), render(report))?;
    std::fs::write(dir.join("commute.svg"), picture::svg(report))?;
    std::fs::write(dir.join("commute.json"), report.to_json())
}
