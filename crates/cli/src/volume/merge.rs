//! `vfscale merge`: what one branch has changed, in another one.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde_json::{Value, json};
use vfscale::{Conflict, ConflictKind, Escaped, MergeOptions, Merged, Strategy};
use vfscale_fuse::control::{Reply, Request};

use crate::elsewhere;
use crate::elsewhere::branches::{Access, at_server_or_here, with_pool};
use crate::error::Failure;
use crate::output::{path_members, written};

#[derive(Debug, Args)]
pub(crate) struct MergeArgs {
    /// The branch that takes the changes, which must not be mounted
    #[arg(long, value_name = "BRANCH", default_value = vfscale::pool::MAIN)]
    into: String,

    /// The way to decide conflicts: the file of FROM stands beside (both), INTO's or FROM's is
    /// taken (ours, theirs), or nothing is changed at all (fail)
    #[arg(long, default_value = Strategy::Both.name(), value_parser = strategies())]
    strategy: Strategy,

    /// Only tell what would be done
    #[arg(long)]
    dry_run: bool,

    /// Print JSON instead of words
    #[arg(long)]
    json: bool,

    /// The image file or block device. Other branches of it may be mounted
    #[arg(value_name = "IMAGE")]
    image: PathBuf,

    /// The branch whose changes are taken
    #[arg(value_name = "FROM")]
    from: String,
}

fn strategies() -> impl TypedValueParser<Value = Strategy> {
    PossibleValuesParser::new(Strategy::ALL.map(Strategy::name))
        .map(|name| Strategy::ALL.into_iter().find(|it| it.name() == name).unwrap_or_default())
}

/// Merges, and prints what was done. Exits as git merge does.
pub(crate) fn merge(args: &MergeArgs) -> Result<ExitCode, Failure> {
    let merged = merged(args).map_err(|failure| Failure::Diff(Box::new(failure)))?;
    let mut out = io::stdout().lock();
    written(if args.json {
        let text = serde_json::to_string_pretty(&as_json(&merged)).map_err(io::Error::from);
        text.and_then(|text| writeln!(out, "{text}"))
    } else {
        print(&mut out, args, &merged)
    })?;
    Ok(ExitCode::from(u8::from(!merged.conflicts.is_empty())))
}

/// Has the process merge that has the image open, if there is one.
fn merged(args: &MergeArgs) -> Result<Merged, Failure> {
    let MergeArgs { image, from, into, strategy, dry_run, .. } = args;
    let (strategy, dry_run) = (*strategy, *dry_run);
    let request = Request::Merge { from: from.clone(), into: into.clone(), strategy, dry_run };
    let ask = |dir: &Path| {
        // First the data that the kernel holds back.
        elsewhere::sync_kernel(image, dir)?;
        let (mut merged, mut conflicts) = (Merged::default(), Vec::new());
        elsewhere::ask(image, dir, |connection| {
            connection.ask(&request, |reply| match reply {
                Reply::Conflict(conflict) => {
                    conflicts.push(conflict);
                    true
                }
                Reply::Merged(done) => {
                    merged = done;
                    true
                }
                _ => false,
            })
        })?;
        Ok(Merged { conflicts, ..merged })
    };
    let here = || {
        let access = if dry_run { Access::Read } else { Access::Write };
        with_pool(image, access, |pool| {
            let options = MergeOptions::new().strategy(strategy).dry_run(dry_run);
            let merged = pool.merge(from, into, options)?;
            if !dry_run {
                pool.reap()?;
            }
            Ok(merged)
        })
    };
    at_server_or_here(image, "merge DIR FROM", ask, here)
}

fn print(out: &mut impl Write, args: &MergeArgs, merged: &Merged) -> io::Result<()> {
    for conflict in &merged.conflicts {
        writeln!(out, "conflict {}", words(conflict, args))?;
    }
    let Merged { added, removed, moved, changed, texts, is_done, .. } = merged;
    let done = match (is_done, args.dry_run) {
        (true, _) => "done",
        (false, true) => "planned",
        (false, false) if args.strategy == Strategy::Fail && !merged.conflicts.is_empty() => {
            "nothing was changed"
        }
        (false, false) => "nothing to do",
    };
    writeln!(
        out,
        "{done}: {added} added, {removed} removed, {moved} moved, {changed} changed, {texts} of \
         them by lines, {} conflicts",
        merged.conflicts.len()
    )
}

/// Returns a line, with escaped paths.
fn words(conflict: &Conflict, args: &MergeArgs) -> String {
    let what = match conflict.kind {
        ConflictKind::Content => "both have changed the contents",
        ConflictKind::Attributes => "both have changed the attributes",
        ConflictKind::Xattrs => "both have changed an extended attribute",
        ConflictKind::Removed => "one has changed it, the other one has removed it",
        ConflictKind::Renamed => "both have renamed it",
        ConflictKind::Name => "both have given the name to different files",
        ConflictKind::Loop => "both have moved directories, each into the other",
        other => other.name(),
    };
    let path = Escaped::new(&conflict.path);
    let beside = conflict.beside.as_ref().map(|beside| {
        format!("; {} has {}", Escaped::new(beside), Escaped::new(&format!("{}'s", args.from)))
    });
    format!("{path}: {what}{}", beside.unwrap_or_default())
}

fn as_json(merged: &Merged) -> Value {
    let Merged { added, removed, moved, changed, texts, is_done, conflicts } = merged;
    let conflicts: Vec<Value> = conflicts.iter().map(conflict_as_json).collect();
    json!({
        "added": added, "removed": removed, "moved": moved, "changed": changed, "texts": texts,
        "done": is_done, "conflicts": conflicts,
    })
}

fn conflict_as_json(conflict: &Conflict) -> Value {
    let mut members = path_members("path", &conflict.path);
    members.push(("kind".to_owned(), conflict.kind.name().into()));
    if let Some(beside) = &conflict.beside {
        members.extend(path_members("beside", beside));
    }
    Value::Object(members.into_iter().collect())
}
