//! Manual pages, generated from the definition of the command line.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use clap::{Command, CommandFactory};

use crate::args::Cli;
use crate::error::Failure;

/// Writes a page for the command and one for each of its subcommands to `dir`, which is created if
/// missing.
pub(crate) fn write(dir: &Path) -> Result<ExitCode, Failure> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        |error| Failure::Write(path, error)
    };
    fs::create_dir_all(dir).map_err(failed(dir))?;
    for (name, command) in pages(&Cli::command()) {
        let path = dir.join(format!("{name}.1"));
        let mut page = Vec::new();
        let rendered = clap_mangen::Man::new(command).render(&mut page);
        rendered.and_then(|()| fs::write(&path, page)).map_err(failed(&path))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the command and all its subcommands that are not hidden, each with the name of its page,
/// which becomes the name of the command too.
fn pages(command: &Command) -> Vec<(String, Command)> {
    let mut pages = Vec::new();
    let mut pending = vec![(command.get_name().to_owned(), command.clone())];
    while let Some((name, command)) = pending.pop() {
        let version = env!("CARGO_PKG_VERSION");
        for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
            if below.get_name() != "help" {
                pending.push((format!("{name}-{}", below.get_name()), below.clone()));
            }
        }
        // The command line has blanks where the name of the page has hyphens.
        let typed = name.replace('-', " ");
        pages.push((name.clone(), command.name(name).bin_name(typed).version(version)));
    }
    pages
}

#[cfg(test)]
mod tests;
