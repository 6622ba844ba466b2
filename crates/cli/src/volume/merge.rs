//! `vfscale merge` and `vfscale rebase`: what one branch has changed, in another one.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde_json::{Value, json};
use vfscale::{Conflict, ConflictKind, Escaped, MergeOptions, Merged, Pool, PoolError, Strategy};
use vfscale_fuse::control::{Reply, Request};

use crate::elsewhere;
use crate::elsewhere::branches::{Access, at_server_or_here, with_pool};
use crate::error::Failure;
use crate::output::{path_members, written};

/// Options of both commands.
#[derive(Debug, Args)]
pub(crate) struct HowArgs {
    /// The way to decide conflicts: the file of the branch stands beside that of the tree which
    /// takes its changes (both), the tree's or the branch's is taken (ours, theirs), or nothing is
    /// changed at all (fail)
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
}

#[derive(Debug, Args)]
pub(crate) struct MergeArgs {
    /// The branch that takes the changes, mounted or not
    #[arg(long, value_name = "BRANCH", default_value = vfscale::pool::MAIN)]
    into: String,

    #[command(flatten)]
    how: HowArgs,

    /// The branch whose changes are taken
    #[arg(value_name = "FROM")]
    from: String,
}

#[derive(Debug, Args)]
pub(crate) struct RebaseArgs {
    /// The branch that it is put onto, which stays as it is and may be mounted
    #[arg(long, value_name = "NEWBASE")]
    onto: String,

    #[command(flatten)]
    how: HowArgs,

    /// The branch that gets another base, which must not be mounted
    #[arg(value_name = "BRANCH")]
    branch: String,
}

/// Puts a branch onto another one, and prints what was done as a merge does.
pub(crate) fn rebase(args: RebaseArgs) -> Result<ExitCode, Failure> {
    let RebaseArgs { onto, how, branch } = args;
    join(&MergeArgs { into: onto, how, from: branch }, true)
}

fn strategies() -> impl TypedValueParser<Value = Strategy> {
    PossibleValuesParser::new(Strategy::ALL.map(Strategy::name))
        .map(|name| Strategy::ALL.into_iter().find(|it| it.name() == name).unwrap_or_default())
}

/// Merges, and prints what was done. Exits as git merge does.
pub(crate) fn merge(args: &MergeArgs) -> Result<ExitCode, Failure> {
    join(args, false)
}

fn join(args: &MergeArgs, is_rebase: bool) -> Result<ExitCode, Failure> {
    let merged = merged(args, is_rebase).map_err(|failure| Failure::Diff(Box::new(failure)))?;
    let mut out = io::stdout().lock();
    written(if args.how.json {
        let text = serde_json::to_string_pretty(&as_json(&merged)).map_err(io::Error::from);
        text.and_then(|text| writeln!(out, "{text}"))
    } else {
        print(&mut out, args, &merged)
    })?;
    Ok(ExitCode::from(u8::from(!merged.conflicts.is_empty())))
}

type Act = fn(&Pool, &str, &str, MergeOptions) -> Result<Merged, PoolError>;

/// Has the process merge that has the image open, if there is one.
fn merged(args: &MergeArgs, is_rebase: bool) -> Result<Merged, Failure> {
    let MergeArgs { into, how, from } = args;
    let &HowArgs { strategy, dry_run, ref image, .. } = how;
    let (names, act): (_, Act) = match is_rebase {
        true => ("rebase DIR BRANCH --onto NEWBASE", Pool::rebase),
        false => ("merge DIR FROM", Pool::merge),
    };
    let (a, b) = (from.clone(), into.clone());
    let request = Request::Merge { from: a, into: b, strategy, dry_run, is_rebase };
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
            let merged = act(pool, from, into, options)?;
            if !dry_run {
                pool.reap()?;
            }
            Ok(merged)
        })
    };
    at_server_or_here(image, names, ask, here)
}

fn print(out: &mut impl Write, args: &MergeArgs, merged: &Merged) -> io::Result<()> {
    for conflict in &merged.conflicts {
        writeln!(out, "conflict {}", words(conflict, args))?;
    }
    if let Some(kept) = &merged.kept {
        writeln!(out, "{kept} has what the branch had")?;
    }
    let Merged { added, removed, moved, changed, texts, is_done, .. } = merged;
    let done = match (is_done, args.how.dry_run) {
        (true, _) => "done",
        (false, true) => "planned",
        (false, false) if args.how.strategy == Strategy::Fail && !merged.conflicts.is_empty() => {
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
    let Merged { added, removed, moved, changed, texts, kept, is_done, conflicts } = merged;
    let conflicts: Vec<Value> = conflicts.iter().map(conflict_as_json).collect();
    let mut value = json!({
        "added": added, "removed": removed, "moved": moved, "changed": changed, "texts": texts,
        "done": is_done, "conflicts": conflicts,
    });
    if let Some(kept) = kept {
        value["kept"] = kept.as_str().into();
    }
    value
}

fn conflict_as_json(conflict: &Conflict) -> Value {
    let mut members = path_members("path", &conflict.path);
    members.push(("kind".to_owned(), conflict.kind.name().into()));
    if let Some(beside) = &conflict.beside {
        members.extend(path_members("beside", beside));
    }
    Value::Object(members.into_iter().collect())
}
