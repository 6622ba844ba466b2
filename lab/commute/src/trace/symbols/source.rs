//! Reads the type and field that a source line works on from its text.
//!
//! The debugging information of ordinary builds has lines and function names but no types. If the
//! source is still at its build path, as in a checkout, its text supplies them.

use std::collections::HashMap;

/// Files that were read; `None` for a missing file.
#[derive(Default)]
pub(super) struct Sources(HashMap<String, Option<Vec<String>>>);

/// Facts about a line.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct LineFacts {
    /// The type whose `impl` contains the line.
    pub(super) this: Option<String>,
    /// The field that the line works on, as `Type.field`.
    pub(super) field: Option<String>,
}

impl Sources {
    /// Returns the facts about a line of a file.
    pub(super) fn at(&mut self, file: &str, line: u32) -> LineFacts {
        let read = || {
            let text = std::fs::read_to_string(file).ok()?;
            Some(text.lines().map(str::to_owned).collect())
        };
        let lines = self.0.entry(file.to_owned()).or_insert_with(read);
        let known = lines.as_ref().map(|lines| known(lines, (line as usize).wrapping_sub(1)));
        known.unwrap_or_default()
    }
}

fn known(lines: &[String], index: usize) -> LineFacts {
    let Some(line) = lines.get(index) else { return LineFacts::default() };
    let this = type_around(lines, index);
    let field = this.as_ref().and_then(|this| Some(format!("{this}.{}", field_in(line)?)));
    LineFacts { this, field }
}

/// Returns the type of the `impl` that contains a line.
fn type_around(lines: &[String], index: usize) -> Option<String> {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let mut depth = indent(&lines[index]);
    for start in (0..index).rev() {
        let line = &lines[start];
        // The bounds of an `impl` are indented as little as its first line.
        let is_within = matches!(line.trim(), "" | "where" | "{");
        if is_within || indent(line) >= depth {
            continue;
        }
        depth = indent(line);
        let head = line.trim_start().trim_start_matches("unsafe ");
        if head.starts_with("impl ") || head.starts_with("impl<") {
            return type_of(&lines[start..index]);
        }
    }
    None
}

/// Returns the type of an `impl`, given the lines from its head on.
fn type_of(lines: &[String]) -> Option<String> {
    let mut head = String::new();
    for line in lines {
        head += line;
        head.push(' ');
        if line.contains('{') {
            break;
        }
    }
    let mut depth = 0;
    let mut plain = String::new();
    for c in head.replace("->", "").chars().take_while(|c| *c != '{') {
        match c {
            '<' => depth += 1,
            '>' => depth -= 1,
            c if depth == 0 => plain.push(c),
            _ => {}
        }
    }
    let plain = plain.split(" where ").next()?;
    let name = plain.rsplit(" for ").next()?.trim().trim_start_matches("unsafe ");
    let name = name.trim_start_matches("impl").trim();
    Some(name.rsplit("::").next()?.to_owned())
}

/// Returns the path after the first `self.` of a line, without a method at its end.
fn field_in(line: &str) -> Option<String> {
    let path = &line[line.find("self.")? + "self.".len()..];
    let end = path.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '.'));
    let (path, rest) = path.split_at(end.unwrap_or(path.len()));
    let path = match rest.starts_with('(') {
        true => path.rsplit_once('.').map(|(fields, _)| fields)?,
        false => path,
    };
    let path = path.trim_end_matches('.');
    (!path.is_empty()).then(|| path.to_owned())
}

#[cfg(test)]
mod tests;
