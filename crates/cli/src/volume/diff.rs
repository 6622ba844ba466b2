//! `vfscale diff` and `vfscale adopt`: what branches differ in, and keeping one.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};
use vfscale::Escaped;
use vfscale::pool::{Changes, Difference, DifferenceKind};
use vfscale_fuse::control::{Reply, Request};

use crate::elsewhere;
use crate::elsewhere::branches::{Access, at_server_or_here, with_pool};
use crate::error::Failure;
use crate::output::{file_members, path_members, written};

/// The command to use if another process has the image open, and no mount of it is found.
const COMMAND: &str = "diff DIR A B";

#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// Print JSON instead of words. A path that is not UTF-8 has its bytes beside it, in
    /// hexadecimal ("path_bytes", "from_bytes")
    #[arg(long)]
    json: bool,

    /// Print only the path of each file
    #[arg(long, conflicts_with = "json")]
    name_only: bool,

    /// Print only how many files there are of each kind
    #[arg(long, conflicts_with_all = ["json", "name_only"])]
    stat: bool,

    /// The image file or block device, mounted or not
    #[arg(value_name = "IMAGE")]
    image: PathBuf,

    /// A branch
    #[arg(value_name = "A")]
    a: String,

    /// The branch that it is compared with
    #[arg(value_name = "B")]
    b: String,

    /// Tell only what is at these paths from the root of the volume, or below them, or was moved
    /// from there
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct AdoptArgs {
    /// The branch that takes the contents of CHILD
    #[arg(long, value_name = "PARENT", default_value = vfscale::pool::MAIN)]
    parent: String,

    /// The image file or block device. Other branches of it may be mounted
    #[arg(value_name = "IMAGE")]
    image: PathBuf,

    /// The branch that was forked from PARENT; its name is free afterwards
    #[arg(value_name = "CHILD")]
    child: String,
}

/// Prints the differences. Exits as diff(1) does: 0 without differences, 1 with some, 2 for an
/// error.
pub(crate) fn diff(args: &DiffArgs) -> Result<ExitCode, Failure> {
    let mut found = found(args).map_err(|failure| Failure::Diff(Box::new(failure)))?;
    let paths: Vec<PathBuf> = args.paths.iter().map(|path| Path::new("/").join(path)).collect();
    found.retain(|difference| paths.is_empty() || is_at(difference, &paths));
    let mut out = io::stdout().lock();
    written(if args.json {
        let value: Value = found.iter().map(as_json).collect();
        let text = serde_json::to_string_pretty(&value).map_err(io::Error::from);
        text.and_then(|text| writeln!(out, "{text}"))
    } else if args.stat {
        totals(&found).map_or(Ok(()), |totals| writeln!(out, "{totals}"))
    } else if args.name_only {
        found.iter().try_for_each(|found| writeln!(out, "{}", Escaped::new(&found.path)))
    } else {
        found.iter().try_for_each(|difference| writeln!(out, "{}", words(difference)))
    })?;
    Ok(ExitCode::from(u8::from(!found.is_empty())))
}

/// Returns the differences, which the process finds that has the image open, if there is one.
fn found(args: &DiffArgs) -> Result<Vec<Difference>, Failure> {
    let DiffArgs { image, a, b, .. } = args;
    let request = Request::Diff(a.clone(), b.clone());
    let ask = |dir: &Path| {
        // First the data that the kernel holds back.
        elsewhere::sync_kernel(image, dir)?;
        let mut found = Vec::new();
        elsewhere::ask(image, dir, |connection| {
            connection.ask(&request, |reply| take(reply, &mut found))
        })?;
        Ok(found)
    };
    let here = || with_pool(image, Access::Read, |pool| pool.diff(a, b));
    at_server_or_here(image, COMMAND, ask, here)
}

/// Adds the difference that a reply tells; returns whether it tells one.
pub(super) fn take(reply: Reply, found: &mut Vec<Difference>) -> bool {
    let is_one = matches!(reply, Reply::Difference(_));
    if let Reply::Difference(difference) = reply {
        found.push(difference);
    }
    is_one
}

/// Gives a branch the contents of its child.
pub(crate) fn adopt(args: &AdoptArgs) -> Result<ExitCode, Failure> {
    let request = Request::Adopt(args.parent.clone(), args.child.clone());
    let ask = |dir: &Path| elsewhere::ask(&args.image, dir, |it| it.tell(&request));
    let here = || {
        with_pool(&args.image, Access::Write, |pool| {
            pool.adopt(&args.parent, &args.child)?;
            pool.reap()
        })
    };
    at_server_or_here(&args.image, COMMAND, ask, here)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns whether a difference is at one of these paths, or below it.
fn is_at(difference: &Difference, paths: &[PathBuf]) -> bool {
    let from = match &difference.kind {
        DifferenceKind::Moved { from } => Some(from),
        _ => None,
    };
    let mut places = [&difference.path].into_iter().chain(from);
    places.any(|place| paths.iter().any(|path| place.starts_with(path)))
}

/// Returns how many differences there are of each kind, in words; `None` without any.
fn totals(found: &[Difference]) -> Option<String> {
    let kinds = ["added", "removed", "replaced", "moved", "changed"];
    let count = |kind| found.iter().filter(|it| name_of(&it.kind) == kind).count();
    let some = kinds.map(|kind| (count(kind), kind)).into_iter().filter(|(count, _)| *count > 0);
    some.map(|(count, kind)| format!("{count} {kind}")).reduce(|all, one| format!("{all}, {one}"))
}

/// Returns the name of a kind.
fn name_of(kind: &DifferenceKind) -> &'static str {
    match kind {
        DifferenceKind::Added => "added",
        DifferenceKind::Removed => "removed",
        DifferenceKind::Replaced => "replaced",
        DifferenceKind::Moved { .. } => "moved",
        DifferenceKind::Changed(_) => "changed",
        _ => "other",
    }
}

/// Returns the names of the parts that differ.
fn parts(changes: &Changes) -> Vec<&'static str> {
    let all = [
        (changes.content, "content"),
        (changes.attributes, "attributes"),
        (changes.xattrs, "extended attributes"),
    ];
    all.into_iter().filter(|(differs, _)| *differs).map(|(_, name)| name).collect()
}

/// Returns a line, with escaped paths.
pub(super) fn words(difference: &Difference) -> String {
    let (path, name) = (Escaped::new(&difference.path), name_of(&difference.kind));
    match &difference.kind {
        DifferenceKind::Moved { from } => format!("{name} {} to {path}", Escaped::new(from)),
        DifferenceKind::Changed(changes) => {
            format!("{name} {path} ({})", parts(changes).join(", "))
        }
        _ => format!("{name} {path}"),
    }
}

fn as_json(difference: &Difference) -> Value {
    let mut members = path_members("path", &difference.path);
    members.push(("kind".to_owned(), name_of(&difference.kind).into()));
    members.extend(file_members(difference.mode, difference.size));
    match &difference.kind {
        DifferenceKind::Moved { from } => members.extend(path_members("from", from)),
        DifferenceKind::Changed(changes) => {
            members.push(("parts".to_owned(), json!(parts(changes))));
        }
        _ => {}
    }
    Value::Object(members.into_iter().collect())
}
