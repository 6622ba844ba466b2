//! The cases that are known to conflict, to detect new ones.
//!
//! A list holds the readable names of cases, one per line, in alphabetical order. A name describes
//! the calls and the starting state but nothing of the library, so it survives all changes of the
//! library, such as a renamed field or a moved line. A change of the model or the generator may
//! change the names. The list is then rewritten, and its diff shows the effect of the change.
//!
//! # Invariants
//!
//! * The list is exact: a conflicting case missing from it, and a listed case that is free or was
//!   not run, are both differences. So the list shrinks with each fix and cannot grow unnoticed.

use std::collections::BTreeSet;
use std::fmt;

use crate::report::Report;
use crate::runner;

/// Header of the list.
const HEAD: &str = "\
# Cases in which calls that commute conflict on a cache line; docs/COMMUTATIVITY.md has the reasons.
# Written in lab/ by: cargo run --release -p vfscale-bench-cli -- commute --sample 2000 --write-exceptions \\
#     commute/exceptions.txt
";

/// Names of cases that may conflict.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exceptions(BTreeSet<String>);

/// Differences between a run and a list.
#[derive(Debug)]
pub struct Differences<'a> {
    /// Conflicting cases that are not on the list.
    pub new: Vec<&'a runner::CaseResult>,
    /// Listed cases that are free of conflicts.
    pub mended: Vec<&'a str>,
    /// Listed cases that were not run.
    pub missing: Vec<&'a str>,
}

impl Exceptions {
    /// Collects the conflicting cases of a run.
    #[must_use]
    pub fn of(report: &Report) -> Exceptions {
        Exceptions(report.conflicting.iter().map(|result| result.name.clone()).collect())
    }

    /// Parses a list. Empty lines and lines that begin with `#` are skipped.
    #[must_use]
    pub fn parse(text: &str) -> Exceptions {
        let names = text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#'));
        Exceptions(names.map(String::from).collect())
    }

    /// Returns the number of cases.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether the list is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Compares a run of `cases` with the list.
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
        let is_new = |result: &&runner::CaseResult| !self.0.contains(&result.name);
        Differences { new: report.conflicting.iter().filter(is_new).collect(), mended, missing }
    }
}

/// Formats the list with its header.
impl fmt::Display for Exceptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HEAD)?;
        self.0.iter().try_for_each(|name| writeln!(f, "{name}"))
    }
}

impl Differences<'_> {
    /// Returns whether there are no differences.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.new.is_empty() && self.mended.is_empty() && self.missing.is_empty()
    }
}

/// Formats each difference, with the conflicts of new cases.
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
            writeln!(f, "free of conflicts, remove from the list: {name}")?;
        }
        for name in &self.missing {
            writeln!(f, "on the list, but not a case of the sample: {name}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
