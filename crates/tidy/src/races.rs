//! The tables that `scripts/races` prints, made from the comments of the tests.
//!
//! A paragraph of a test's documentation that begins with `Race:` names a race that the test
//! watches, and the text after it, up to the next such paragraph, says why the race does not
//! happen. One that begins with `Seam:` names a place where one piece of code hands over to
//! another, and the parties that can meet there:
//!
//! ```text
//! /// Race: The last close against unlink.
//! ///
//! /// The name owns one reference. ...
//! ///
//! /// Seam: sharded count / its collection; parties: a holder, a removal, a walk.
//! #[test]
//! fn last_close_against_unlink() { ... }
//! ```
//!
//! [`page`] makes both tables.

use std::collections::BTreeMap;

/// A test, with the races and seams that its comment names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Test {
    /// Path of the file from the root of the repository.
    pub path: String,
    /// Name of the function.
    pub name: String,
    /// Each race, and whether the comment says why it does not happen.
    pub races: Vec<(String, bool)>,
    /// Each seam with its parties.
    pub seams: Vec<(String, String)>,
}

/// Returns the tests of a Rust file, in order.
pub fn tests(path: &str, text: &str) -> Vec<Test> {
    let mut found = Vec::new();
    let mut comment: Vec<&str> = Vec::new();
    let mut is_test = false;
    let mut is_attribute = false;
    for line in text.lines().map(str::trim) {
        if is_attribute || line.starts_with("#[") {
            is_test |= line == "#[test]";
            is_attribute = !line.ends_with(']');
        } else if let Some(text) = line.strip_prefix("///") {
            comment.push(text.trim());
        } else {
            if let (Some(name), true) = (function(line), is_test) {
                found.push(Test::new(path, name, &comment));
            }
            comment.clear();
            is_test = false;
        }
    }
    found
}

/// Returns the name of the function that a line defines.
fn function(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("pub ").unwrap_or(line).strip_prefix("fn ")?;
    rest.split(['(', '<']).next()
}

impl Test {
    fn new(path: &str, name: &str, comment: &[&str]) -> Test {
        let (path, name) = (path.to_owned(), name.to_owned());
        let mut this = Test { path, name, races: Vec::new(), seams: Vec::new() };
        for paragraph in paragraphs(comment) {
            if let Some(race) = paragraph.strip_prefix("Race: ") {
                this.races.push((race.trim_end_matches('.').to_owned(), false));
            } else if let Some(seam) = paragraph.strip_prefix("Seam: ") {
                let (seam, parties) = seam.split_once("; parties: ").unwrap_or((seam, ""));
                this.seams.push((seam.to_owned(), parties.trim_end_matches('.').to_owned()));
            } else if let Some((_, is_explained)) = this.races.last_mut() {
                *is_explained = true;
            }
        }
        this
    }
}

/// Returns the paragraphs of a comment, each as one line.
fn paragraphs(comment: &[&str]) -> Vec<String> {
    let mut all = vec![String::new()];
    for line in comment {
        if line.is_empty() || line.starts_with("Race: ") || line.starts_with("Seam: ") {
            all.push(String::new());
        }
        if let Some(last) = all.last_mut().filter(|_| !line.is_empty()) {
            *last = format!("{last} {line}").trim().to_owned();
        }
    }
    all.retain(|paragraph| !paragraph.is_empty());
    all
}

/// Returns the tables of seams and of races, as Markdown.
pub fn page(tests: &[Test]) -> String {
    let mut page = "## Seams\n\n".to_owned();
    page += "| seam | parties | tests |\n| --- | --- | --- |\n";
    let mut seams = BTreeMap::<_, Vec<_>>::new();
    for test in tests {
        for (seam, parties) in &test.seams {
            seams.entry((seam, parties)).or_default().push((test, false));
        }
    }
    for ((seam, parties), tests) in seams {
        page += &format!("| {seam} | {parties} | {} |\n", spans(tests));
    }
    let mut races = BTreeMap::<_, Vec<_>>::new();
    for test in tests {
        for (race, is_explained) in &test.races {
            races.entry(race).or_default().push((test, *is_explained));
        }
    }
    let mut sections = BTreeMap::<_, String>::new();
    for (race, tests) in races {
        let first = tests.iter().find(|(_, is_explained)| *is_explained).unwrap_or(&tests[0]);
        let area = first.0.path.split('/').nth(1).unwrap_or_default();
        let row = format!("| {race} | {} |\n", spans(tests));
        *sections.entry(area).or_default() += &row;
    }
    for (area, rows) in sections {
        page += &format!("\n## Races in {area}\n\n| race | tests |\n| --- | --- |\n{rows}");
    }
    page
}

/// Lists tests as code spans: first those whose comment says why the race does not happen. A file
/// is named once.
fn spans(mut tests: Vec<(&Test, bool)>) -> String {
    tests.sort_by_key(|(test, is_explained)| (!is_explained, &test.path));
    let mut text = String::new();
    let mut former = "";
    for (test, _) in tests {
        let gap = if text.is_empty() { "" } else { ", " };
        let path = if former == test.path { "" } else { &test.path };
        text += &format!("{gap}`{path}::{}`", test.name);
        former = &test.path;
    }
    text
}

#[cfg(test)]
mod tests;
