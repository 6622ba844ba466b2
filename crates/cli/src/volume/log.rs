//! `vfscale log`: the history of a branch.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

use clap::Args;
use serde_json::{Value, json};
use vfscale::Escaped;
use vfscale::block::calendar;
use vfscale::pool::{LogEntry, LogKind};
use vfscale_fuse::control::{Reply, Request};

use crate::elsewhere;
use crate::elsewhere::branches::{Access, at_server_or_here, with_pool};
use crate::error::Failure;
use crate::output::written;

#[derive(Debug, Args)]
pub(crate) struct LogArgs {
    /// Draw the lines of the branches
    #[arg(long, conflicts_with = "json")]
    graph: bool,

    /// Print JSON instead of words
    #[arg(long)]
    json: bool,

    /// The image file or block device, mounted or not
    #[arg(value_name = "IMAGE")]
    image: PathBuf,

    /// The branch, or the checkpoint
    #[arg(value_name = "BRANCH", default_value = vfscale::pool::MAIN)]
    branch: String,
}

/// Prints the history of a branch.
pub(crate) fn log(args: &LogArgs) -> Result<ExitCode, Failure> {
    let LogArgs { image, branch, .. } = args;
    let ask = |dir: &Path| {
        let mut log = Vec::new();
        elsewhere::ask(image, dir, |connection| {
            connection.ask(&Request::Log(branch.clone()), |reply| match reply {
                Reply::Entry(entry) => {
                    log.push(entry);
                    true
                }
                _ => false,
            })
        })?;
        Ok(log)
    };
    let here = || with_pool(image, Access::Read, |pool| pool.log(branch));
    let log: Vec<LogEntry> = at_server_or_here(image, "log DIR BRANCH", ask, here)?;
    let mut out = io::stdout().lock();
    written(if args.json {
        let value: Value = log.iter().map(as_json).collect();
        let text = serde_json::to_string_pretty(&value).map_err(io::Error::from);
        text.and_then(|text| writeln!(out, "{text}"))
    } else if args.graph {
        draw(&mut out, &log)
    } else {
        log.iter().try_for_each(|entry| writeln!(out, "{}", words(entry)))
    })
}

/// Returns seconds since 1970, and nanoseconds; `None` for a time before that.
fn parts(time: SystemTime) -> Option<(i64, u32)> {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    Some((i64::try_from(since.as_secs()).ok()?, since.subsec_nanos()))
}

/// Returns date and time in words.
pub(super) fn moment(time: SystemTime) -> String {
    parts(time).map_or_else(String::new, |(seconds, _)| calendar::moment(seconds, ' '))
}

/// Returns a time as JSON has it.
pub(super) fn json_moment(time: Option<SystemTime>) -> Value {
    time.and_then(parts).map_or(Value::Null, |(seconds, nanos)| {
        format!("{}.{nanos:09}Z", calendar::moment(seconds, 'T')).into()
    })
}

fn names<'n>(names: impl Iterator<Item = &'n String>) -> String {
    names.map(|name| Escaped::new(name).to_string()).collect::<Vec<_>>().join(", ")
}

/// Returns a line: node, time, what happened, and the branches that are there.
fn words(entry: &LogEntry) -> String {
    let text = Escaped::message(&entry.text);
    let what = match entry.kind {
        LogKind::Merge => format!("merge of {}", names(entry.merges.iter().map(|it| &it.branch))),
        LogKind::Adoption if !entry.text.is_empty() => format!("adoption of {text}"),
        kind if entry.text.is_empty() => kind.name().to_owned(),
        kind => format!("{}: {text}", kind.name()),
    };
    let branches = match names(entry.branches.iter()) {
        names if names.is_empty() => names,
        names => format!(" ({names})"),
    };
    let time = entry.time.map_or_else(String::new, moment);
    format!("{:>6}  {time:<19}  {what}{branches}", entry.node)
}

fn as_json(entry: &LogEntry) -> Value {
    let LogEntry { node, kind, time, text, parent, merges, branches } = entry;
    let merge = |it: &vfscale::pool::LogMerge| json!({ "node": it.node, "branch": it.branch });
    json!({
        "node": node, "kind": kind.name(), "time": json_moment(*time), "text": text,
        "parent": parent, "branches": branches, "merges": merges.iter().map(merge).collect::<Value>(),
    })
}

/// Prints the entries with a line for each branch, as `git log --graph` does.
fn draw(out: &mut impl Write, log: &[LogEntry]) -> io::Result<()> {
    // The nodes to come, from the left to the right.
    let mut lines: Vec<u64> = Vec::new();
    for entry in log {
        let at = lines.iter().position(|node| *node == entry.node).unwrap_or_else(|| {
            lines.push(entry.node);
            lines.len() - 1
        });
        let marks = (0..lines.len()).map(|line| if line == at { "* " } else { "| " });
        writeln!(out, "{}{}", marks.collect::<String>(), words(entry))?;
        let is_told = |node: &u64| log.iter().any(|other| other.node == *node);
        let merged = entry.merges.iter().map(|merge| merge.node);
        let mut next: Vec<u64> = entry.parent.into_iter().chain(merged).filter(is_told).collect();
        next.retain(|node| !lines.contains(node));
        let is_joined = next.is_empty() && entry.parent.is_some();
        let before = "| ".repeat(at);
        for _ in 1..next.len() {
            writeln!(out, "{before}|\\")?;
        }
        if is_joined && at > 0 {
            writeln!(out, "{}|/", "| ".repeat(at - 1))?;
        }
        lines.splice(at..=at, next);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
