//! `vfscale diff` and `vfscale adopt`: what branches differ in, and keeping one.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};
use vfscale::Escaped;
use vfscale::pool::{Changes, Difference, DifferenceKind};
use vfscale_fuse::control::{Reply, Request};

use super::reached::{Access, at_server_or_here, with_pool};
use crate::elsewhere;
use crate::error::Failure;
use crate::output::{path_members, written};

/// The command to use if another process has the image open, and no mount of it is found.
const COMMAND: &str = "diff DIR A B";

#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// Print JSON instead of words. A path that is not UTF-8 has its bytes beside it, in
    /// hexadecimal ("path_bytes", "from_bytes")
    #[arg(long)]
    json: bool,

    /// The image file or block device, mounted or not
    #[arg(value_name = "IMAGE")]
    image: PathBuf,

    /// A branch
    #[arg(value_name = "A")]
    a: String,

    /// The branch that it is compared with
    #[arg(value_name = "B")]
    b: String,
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
    let found = found(args).map_err(|failure| Failure::Diff(Box::new(failure)))?;
    let mut out = io::stdout().lock();
    written(if args.json {
        let value: Value = found.iter().map(as_json).collect();
        let text = serde_json::to_string_pretty(&value).map_err(io::Error::from);
        text.and_then(|text| writeln!(out, "{text}"))
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
    let path = Escaped::new(&difference.path);
    match &difference.kind {
        DifferenceKind::Added => format!("added {path}"),
        DifferenceKind::Removed => format!("removed {path}"),
        DifferenceKind::Replaced => format!("replaced {path}"),
        DifferenceKind::Moved { from } => format!("moved {} to {path}", Escaped::new(from)),
        DifferenceKind::Changed(changes) => {
            format!("changed {path} ({})", parts(changes).join(", "))
        }
        other => format!("{other:?} {path}"),
    }
}

fn as_json(difference: &Difference) -> Value {
    let mut members = path_members("path", &difference.path);
    let (kind, more) = match &difference.kind {
        DifferenceKind::Added => ("added".into(), Vec::new()),
        DifferenceKind::Removed => ("removed".into(), Vec::new()),
        DifferenceKind::Replaced => ("replaced".into(), Vec::new()),
        DifferenceKind::Moved { from } => ("moved".into(), path_members("from", from)),
        DifferenceKind::Changed(changes) => {
            ("changed".into(), vec![("parts".to_owned(), json!(parts(changes)))])
        }
        other => (format!("{other:?}").into(), Vec::new()),
    };
    members.push(("kind".to_owned(), kind));
    members.extend(more);
    Value::Object(members.into_iter().collect())
}
