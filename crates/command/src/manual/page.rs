//! One manual page: what clap says of a command, in the sections that readers of manuals look for.

use std::collections::BTreeSet;
use std::io;

use clap::{Arg, Command};
use clap_mangen::Man;

/// Beginnings of a paragraph on the exit status.
const STATUS: [&str; 2] = ["Exits ", "The exit status "];
/// Beginnings of a paragraph of examples, which semicolons separate.
const EXAMPLES: [&str; 2] = ["Example: ", "Examples: "];
/// The exit status of a command that says nothing of it.
const USUAL_STATUS: &str = "0, done; 1, it failed; 2, the command line is invalid.";

/// Returns the page of a command.
///
/// The synopsis is the usage of the help. Paragraphs on the exit status, and of examples, become
/// sections of their own, and so do `options`, those after `-o`. "SEE ALSO" has the page of the
/// command above, pages that the description names, and `see_also`.
pub(super) fn page(
    mut command: Command,
    section: &str,
    see_also: &[&str],
    options: &[(String, &str)],
) -> io::Result<Vec<u8>> {
    let usage = command.render_usage().to_string();
    let typed = command.get_bin_name().unwrap_or_default().to_owned();
    let has_subcommands = command.has_subcommands();
    let about = command.get_long_about().or(command.get_about());
    let about = about.map(ToString::to_string).unwrap_or_default();
    let (status, rest) = taken_from(&about, &STATUS);
    let (examples, rest) = taken_from(&rest, &EXAMPLES);
    // The first paragraph is the name's.
    let description = rest.split_once("\n\n").map_or(&*rest, |(_, more)| more).to_owned();

    let has_list = |arg: &Arg| arg.get_short() == Some('o') && !options.is_empty();
    let list = command.get_arguments().find(|arg| has_list(arg)).map(|arg| arg.get_id().clone());
    if let Some(id) = &list {
        // The list of its help is a section.
        command = command.mut_arg(id, |arg| arg.long_help(None));
    }
    let man = Man::new(command.long_about(description)).section(section);
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    page.extend(synopsis(&usage, &typed).into_bytes());
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if list.is_some() {
        page.extend(options_section(options).into_bytes());
    }
    if has_subcommands {
        man.render_subcommands_section(&mut page)?;
    }
    let status = status.unwrap_or_else(|| USUAL_STATUS.to_owned());
    page.extend(format!(".SH \"EXIT STATUS\"\n{}\n", escaped(&status)).into_bytes());
    if let Some(examples) = examples {
        page.extend(examples_section(&examples).into_bytes());
    }
    page.extend(see_also_section(&typed, &about, see_also).into_bytes());
    man.render_version_section(&mut page)?;
    Ok(page)
}

/// Splits a text into the first paragraph that begins with one of `words`, and all others.
fn taken_from(text: &str, words: &[&str]) -> (Option<String>, String) {
    let (taken, rest): (Vec<&str>, Vec<&str>) =
        text.split("\n\n").partition(|part| words.iter().any(|word| part.starts_with(word)));
    (taken.first().map(ToString::to_string), rest.join("\n\n"))
}

/// Returns the section with the usage of the command `typed`, which may have several lines.
fn synopsis(usage: &str, typed: &str) -> String {
    let usage = usage.strip_prefix("Usage:").unwrap_or(usage);
    let mut text = ".SH SYNOPSIS\n.nf\n".to_owned();
    for line in usage.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let arguments = line.strip_prefix(typed).unwrap_or(line);
        text += &format!("\\fB{}\\fR{}\n", escaped(typed), escaped(arguments));
    }
    text + ".fi\n"
}

/// Returns the section with examples, each in a line as it is typed. A semicolon in quotes belongs
/// to its example.
fn examples_section(examples: &str) -> String {
    let examples = EXAMPLES.iter().find_map(|word| examples.strip_prefix(word)).unwrap_or(examples);
    let mut text = ".SH EXAMPLES\n.nf\n".to_owned();
    let (mut quoted, mut line) = (false, String::new());
    for letter in examples.chars().chain([';']) {
        quoted ^= letter == '\'';
        if letter == ';' && !quoted {
            text += &format!("{}\n", escaped(line.trim()));
            line.clear();
        } else {
            line.push(letter);
        }
    }
    text + ".fi\n"
}

/// Returns the section with the options after `-o`.
fn options_section(options: &[(String, &str)]) -> String {
    let mut text = ".SH \"MOUNT OPTIONS\"\n".to_owned();
    for (name, help) in options {
        text += &format!(".TP\n\\fB{}\\fR\n{}\n", escaped(name), escaped(help));
    }
    text
}

/// Returns the section with the pages that a reader may want next.
fn see_also_section(typed: &str, about: &str, see_also: &[&str]) -> String {
    let mut pages: BTreeSet<String> = see_also.iter().map(ToString::to_string).collect();
    if let Some((above, _)) = typed.rsplit_once(' ') {
        pages.insert(format!("{}(1)", above.replace(' ', "-")));
    }
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || "-._".contains(letter);
    for (at, _) in about.match_indices('(') {
        let name = about[..at].rsplit(|letter| !is_name(letter)).next().unwrap_or_default();
        let section = about[at + 1..].split(')').next().unwrap_or_default();
        if !name.is_empty() && section.len() == 1 && section.bytes().all(|b| b.is_ascii_digit()) {
            pages.insert(format!("{name}({section})"));
        }
    }
    let program = typed.split(' ').next().unwrap_or_default();
    for (at, named) in about.match_indices(&format!("`{program} ")) {
        let after = &about[at + named.len()..];
        let is_of_word = |letter: char| letter.is_ascii_lowercase() || letter == '-';
        let word = &after[..after.find(|letter| !is_of_word(letter)).unwrap_or(after.len())];
        if word.starts_with(|letter: char| letter != '-') {
            pages.insert(format!("{program}-{word}(1)"));
        }
    }
    let all: Vec<String> = pages.iter().map(|page| escaped(page)).collect();
    format!(".SH \"SEE ALSO\"\n{}\n", all.join(", "))
}

/// Returns a line in which nothing is a request or an escape of troff.
fn escaped(line: &str) -> String {
    let line = line.replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq");
    if line.starts_with('.') { format!("\\&{line}") } else { line }
}

#[cfg(test)]
mod tests;
