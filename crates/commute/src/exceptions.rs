//! The cases that are known to conflict, so that a new one is noticed.
//!
//! A list names cases by their readable names, one in a line, in alphabetical order. A name says which calls
//! a case makes and where it starts, and nothing of the library: it stays the same whatever is changed
//! there, be it a field's name or the line of a call. It changes with the model and the generator, as the
//! cases do; then the list is written anew, which shows in its difference what the change was.
//!
//! # Invariants
//!
//! * The list is exact: a case that conflicts without being on it and one on it that is free, or that was not
//!   run, are both differences. So it can only shrink with what is mended, and can't grow unnoticed.

use std::collections::BTreeSet;
use std::fmt;

use crate::report::Report;
use crate::runner;

/// What the list begins with.
const HEAD: &str = "\
# Cases in which calls that commute conflict on a cache line; docs/SCALING.md has the reasons.
# Written by: cargo run --release -- bench commute --sample 2000 --write-exceptions \\
#     crates/commute/exceptions.txt
";

/// Names of cases that may conflict.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exceptions(BTreeSet<String>);

/// In what a run differs from a list.
#[derive(Debug)]
pub struct Differences<'a> {
    /// Cases that conflict and are not on the list.
    pub new: Vec<&'a runner::Result>,
    /// Cases on the list that are free of conflicts.
    pub mended: Vec<&'a str>,
    /// Cases on the list that were not run.
    pub missing: Vec<&'a str>,
}

impl Exceptions {
    /// Those of a run.
    #[must_use]
    pub fn of(report: &Report) -> Exceptions {
        Exceptions(report.conflicting.iter().map(|result| result.name.clone()).collect())
    }

    /// Those of a text: its lines, but for empty ones and those that begin with `#`.
    #[must_use]
    pub fn parse(text: &str) -> Exceptions {
        let names = text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#'));
        Exceptions(names.map(String::from).collect())
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// In what a run of `cases` differs from the list.
    #[must_use]
    pub fn differences<'a>(
        &'a self,
        report: &'a Report,
        cases: &[crate::case::Case],
    ) -> Differences<'a> {
        let conflicting: BTreeSet<&str> =
            report.conflicting.iter().map(|result| result.name.as_str()).collect();
        let run: BTreeSet<&str> = cases.iter().map(|case| case.name.as_str()).collect();
        let free = self.0.iter().map(String::as_str).filter(|name| !conflicting.contains(name));
        let (mended, missing) = free.partition(|name| run.contains(name));
        let is_new = |result: &&runner::Result| !self.0.contains(&result.name);
        Differences { new: report.conflicting.iter().filter(is_new).collect(), mended, missing }
    }
}

/// The text of the list.
impl fmt::Display for Exceptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HEAD)?;
        self.0.iter().try_for_each(|name| writeln!(f, "{name}"))
    }
}

impl Differences<'_> {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.new.is_empty() && self.mended.is_empty() && self.missing.is_empty()
    }
}

/// Each difference, with what a new case conflicts on.
impl fmt::Display for Differences<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for result in &self.new {
            writeln!(f, "conflicts, and was free before: {}", result.name)?;
            for found in &result.conflicts {
                let (first, second) = (&found.first, &found.second);
                writeln!(f, "    on {}: {first}; {second}", found.owner)?;
            }
        }
        for name in &self.mended {
            writeln!(f, "free of conflicts, to be taken off the list: {name}")?;
        }
        for name in &self.missing {
            writeln!(f, "on the list, and no case of the sample: {name}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
