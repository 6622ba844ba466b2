//! `vfscale complete`: the words that scripts of shells can't know, as the branches of an image.
//!
//! Prints a line for each word that the last one of a command line can become; nothing where the
//! shell knows better, as for files. Errors are not told: the user is still typing.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use clap::{Arg, Command, CommandFactory};
use vfscale_fuse::control::Connection;

use crate::args::Cli;
use crate::error::Failure;
use crate::files::place::Place;
use crate::output::written;
use crate::{device, elsewhere, mounts, options};

/// The names of values that are branches of the image.
const BRANCHES: [&str; 8] =
    ["BRANCH", "CHECKPOINT", "CHILD", "FROM", "PARENT", "NEWBASE", "A", "B"];
/// Commands whose value NAME is a branch that exists.
const OF_BRANCHES: [&str; 3] = ["delete", "rename", "rollback"];

/// Prints the words that the last one of `words` can become; they begin with the program.
pub(crate) fn complete(words: &[OsString]) -> Result<ExitCode, Failure> {
    let mut out = io::stdout().lock();
    let found = candidates(words, branches);
    written(found.iter().try_for_each(|word| writeln!(out, "{word}")))
}

/// Returns the names of the branches of an image; none if it has none, or can't be asked.
fn branches(image: &Path) -> Vec<String> {
    let asked = || {
        let dir = mounts::of(&mounts::table().ok()?, image).into_iter().next()?;
        elsewhere::ask(image, &dir, Connection::branches).ok()
    };
    let opened = device::pool(image).read_only(true).open().map(|pool| pool.branches());
    let found = opened.ok().or_else(asked).unwrap_or_default();
    found.into_iter().map(|info| info.name).collect()
}

/// A command line, as far as it was read.
struct Line {
    command: Command,
    /// The option that the next word is the value of.
    pending: Option<Arg>,
    /// Number of values that are no options.
    values: usize,
    image: Option<OsString>,
}

impl Line {
    fn read(&mut self, word: &OsStr) {
        let text = word.to_string_lossy();
        if self.pending.take().is_some() {
        } else if text.starts_with('-') && text.len() > 1 {
            self.pending = self.option(&text).filter(|_| !text.contains('='));
        } else if let Some(below) =
            self.command.find_subcommand(&*text).filter(|_| self.values == 0)
        {
            self.command = below.clone();
        } else {
            let is_image =
                |arg: &Arg| value_name(arg).is_some_and(|name| name.starts_with("IMAGE"));
            if self.positional().is_some_and(|arg| is_image(&arg)) {
                self.image = Some(Place::from(word.to_owned()).image.into());
            }
            self.values += 1;
        }
    }

    /// Returns the option of a word, if it has a value.
    fn option(&self, text: &str) -> Option<Arg> {
        let is_it = |arg: &&Arg| match text.strip_prefix("--") {
            Some(long) => arg.get_long() == long.split('=').next(),
            None => text.chars().last().is_some_and(|letter| arg.get_short() == Some(letter)),
        };
        let found = self.command.get_arguments().find(is_it)?;
        found.get_action().takes_values().then(|| found.clone())
    }

    /// Returns the argument that the next word is, if that is no option.
    fn positional(&self) -> Option<Arg> {
        let mut all = self.command.get_positionals();
        let found = all.nth(self.values);
        found.or_else(|| self.command.get_positionals().last()).cloned()
    }

    fn is_branch(&self, arg: &Arg) -> bool {
        let name = value_name(arg).unwrap_or_default();
        BRANCHES.contains(&name)
            || arg.get_long() == Some("branch")
            || name == "NAME" && OF_BRANCHES.contains(&self.command.get_name())
    }
}

fn value_name(arg: &Arg) -> Option<&str> {
    arg.get_value_names()?.first().map(|name| name.as_str())
}

/// Returns whether a value is an image, and may name a branch of it.
fn is_place(arg: &Arg) -> bool {
    value_name(arg).is_some_and(|name| name.starts_with("IMAGE[:BRANCH]"))
}

/// Returns the words that the last one can become. `branches` tells those of an image.
fn candidates(words: &[OsString], branches: impl Fn(&Path) -> Vec<String>) -> Vec<String> {
    let [_, before @ .., last] = words else { return Vec::new() };
    let mut command = Cli::command();
    command.build();
    let mut line = Line { command, pending: None, values: 0, image: None };
    before.iter().for_each(|word| line.read(word));
    let last = last.to_string_lossy();
    let image = line.image.as_ref().map(Path::new);
    let of_image = |before: &str| {
        let names = image.map(&branches).unwrap_or_default().into_iter();
        names.map(|name| format!("{before}{name}")).collect()
    };
    let all: Vec<String> = match (&line.pending, last.split_once('=')) {
        (Some(arg), _) if arg.get_id() == "options" => of_mounts(&last, of_image),
        (Some(arg), _) if line.is_branch(arg) => of_image(""),
        (None, Some((name, _))) if last.starts_with("--") => match line.option(name) {
            Some(arg) if line.is_branch(&arg) => of_image(&format!("{name}=")),
            _ => Vec::new(),
        },
        (None, _) if !last.starts_with('-') => match line.positional() {
            Some(arg) if line.is_branch(&arg) => of_image(""),
            Some(arg) if is_place(&arg) => of_places(&last, branches),
            _ => Vec::new(),
        },
        _ => Vec::new(),
    };
    // A line break would make two words of one.
    let fits = |word: &String| word.starts_with(&*last) && !word.contains('\n');
    all.into_iter().filter(fits).collect()
}

/// Returns the options of mounts that the last one behind `-o` can become.
fn of_mounts(text: &str, of_image: impl Fn(&str) -> Vec<String>) -> Vec<String> {
    let begun = text.rfind(',').map_or("", |at| &text[..=at]);
    if text[begun.len()..].starts_with("branch=") {
        return of_image(&format!("{begun}branch="));
    }
    options::names().map(|name| format!("{begun}{name}")).collect()
}

/// Returns the places IMAGE:BRANCH.
fn of_places(text: &str, branches: impl Fn(&Path) -> Vec<String>) -> Vec<String> {
    let Some((image, begun)) = text.rsplit_once(':') else { return Vec::new() };
    if begun.contains('/') {
        return Vec::new();
    }
    let names = branches(Path::new(image)).into_iter();
    names.map(|name| format!("{image}:{name}")).collect()
}

#[cfg(test)]
mod tests;
