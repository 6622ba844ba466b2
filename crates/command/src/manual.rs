//! Manual pages and shell completions, generated from the definition of a command line.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::Command;
use clap_complete::{Shell, generate};

mod asking;
mod page;

/// A command that has manual pages.
#[derive(Clone, Copy, Debug)]
pub struct Manual<'a> {
    /// The definition of its command line.
    pub command: &'a Command,
    /// The section of the manual: 1 for the commands of all users, 8 for an administrator's.
    pub section: u8,
    /// Names of pages that are not written, as `vfscale-bench`: another program's.
    pub without: &'a [&'a str],
    /// Pages that each page of the command refers to, as `vfscale(7)`.
    pub see_also: &'a [&'a str],
    /// Options after `-o`, each with its description: a section of the pages of commands that have
    /// `-o`.
    pub options: &'a [(String, &'a str)],
}

/// A file or directory that could not be written.
#[derive(Debug)]
pub struct WriteError {
    /// The file or directory.
    pub path: PathBuf,
    /// The reason.
    pub error: io::Error,
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot write {}: {}", self.path.display(), self.error)
    }
}

impl std::error::Error for WriteError {}

/// Where completions for a shell belong below `share`, and the name of a command's file there.
type Place = (Shell, &'static str, fn(&str) -> String);

const PLACES: [Place; 3] = [
    (Shell::Bash, "bash-completion/completions", |name| name.to_owned()),
    (Shell::Zsh, "zsh/site-functions", |name| format!("_{name}")),
    (Shell::Fish, "fish/vendor_completions.d", |name| format!("{name}.fish")),
];

/// The hidden subcommand that prints the words that only the program knows.
const COMPLETE: &str = "complete";

/// Writes the pages of commands, one for each command and subcommand that is not hidden, and the
/// completions of the first command, which ask its subcommand `complete` first if it has one.
/// `share` is laid out as `/usr/share`; missing directories are made.
///
/// # Errors
/// Returns the first file or directory that could not be written.
pub fn write(share: &Path, manuals: &[Manual<'_>]) -> Result<(), WriteError> {
    for manual in manuals {
        let dir = share.join(format!("man/man{}", manual.section));
        for (name, command) in pages(manual.command, manual.without) {
            let section = manual.section.to_string();
            let path = dir.join(format!("{name}.{section}"));
            let page = page::page(command, &section, manual.see_also, manual.options);
            let page = page.map_err(|error| WriteError { path: path.clone(), error })?;
            put(path, &page)?;
        }
    }
    let Some(first) = manuals.first() else { return Ok(()) };
    let mut command = without_hidden(first.command);
    let name = command.get_name().to_owned();
    for (shell, dir, file) in PLACES {
        let mut script = Vec::new();
        generate(shell, &mut command, &name, &mut script);
        if first.command.find_subcommand(COMPLETE).is_some() {
            script = asking::script(shell, script, &command);
        }
        put(share.join(dir).join(file(&name)), &script)?;
    }
    Ok(())
}

/// Writes a file, in a directory that is made if missing.
///
/// # Errors
/// Names the file.
pub fn put(path: PathBuf, text: &[u8]) -> Result<(), WriteError> {
    let made = path.parent().map_or(Ok(()), fs::create_dir_all);
    made.and_then(|()| fs::write(&path, text)).map_err(|error| WriteError { path, error })
}

/// Returns a command and all its subcommands that are not hidden, each with the name of its page,
/// which becomes the name of the command too.
fn pages(command: &Command, without: &[&str]) -> Vec<(String, Command)> {
    let mut pages = Vec::new();
    // The command line has blanks where the name of the page has hyphens.
    let mut pending = vec![(command.get_name().to_owned(), command.get_name().to_owned(), command)];
    while let Some((name, typed, command)) = pending.pop() {
        if without.contains(&&*name) {
            continue;
        }
        for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
            let word = below.get_name();
            if word != "help" {
                pending.push((format!("{name}-{word}"), format!("{typed} {word}"), below));
            }
        }
        let version = env!("CARGO_PKG_VERSION");
        let named = command.clone().name(name.clone()).bin_name(typed).version(version);
        pages.push((name, named));
    }
    pages
}

/// Returns a command without its hidden subcommands, which a completion would offer.
fn without_hidden(command: &Command) -> Command {
    let shown = command.get_subcommands().filter(|below| !below.is_hide_set()).cloned();
    let mut bare = Command::new(command.get_name().to_owned());
    bare = bare.args(command.get_arguments().cloned()).subcommands(shown);
    bare.version(env!("CARGO_PKG_VERSION"))
}

#[cfg(test)]
mod tests;
