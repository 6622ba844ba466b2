//! `vfscale diff` and `vfscale adopt`: what branches differ in, and keeping one.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};
use vfscale::pool::{Changes, Difference, DifferenceKind};

use super::reached::{Access, mount_of_locked, with_pool};
use super::show::written;
use crate::error::Failure;
use crate::served::compare;
use crate::{elsewhere, mounts};

/// The command to use if another process has the image open, and no mount of it is found.
const COMMAND: &str = "diff DIR A B";

#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// Print JSON instead of words
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
        found.iter().try_for_each(|difference| {
            out.write_all(&words(difference)).and_then(|()| out.write_all(b"\n"))
        })
    })?;
    Ok(ExitCode::from(u8::from(!found.is_empty())))
}

/// Returns the differences, which the process finds that has the image open, if there is one.
fn found(args: &DiffArgs) -> Result<Vec<Difference>, Failure> {
    let DiffArgs { image, a, b, .. } = args;
    let Some(dir) = mount_of_locked(image, COMMAND)? else {
        return with_pool(image, Access::Read, |pool| pool.diff(a, b));
    };
    // First the data that the kernel holds back.
    mounts::sync_kernel(image, &dir)?;
    let mut found = Vec::new();
    let take = |message: &[OsString]| {
        let difference = compare::difference(message);
        let is_one = difference.is_some();
        found.extend(difference);
        is_one
    };
    let asked = elsewhere::ask(image, ["diff", a, b], take)?;
    asked.map(|()| found).ok_or_else(|| no_server(image))
}

/// Returns the failure for an image that is mounted, whose server takes no requests.
fn no_server(image: &Path) -> Failure {
    let why = "it is mounted, and its server compares no branches for this user, or it has none";
    Failure::Branch(image.to_owned(), why.into())
}

/// Gives a branch the contents of its child.
pub(crate) fn adopt(args: &AdoptArgs) -> Result<ExitCode, Failure> {
    if mount_of_locked(&args.image, COMMAND)?.is_some() {
        let request = ["adopt", args.parent.as_str(), args.child.as_str()];
        let asked = elsewhere::ask(&args.image, request, |_| false)?;
        asked.ok_or_else(|| no_server(&args.image))?;
        return Ok(ExitCode::SUCCESS);
    }
    with_pool(&args.image, Access::Write, |pool| {
        pool.adopt(&args.parent, &args.child)?;
        pool.reap()
    })?;
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

/// Returns a line with the bytes of the paths as they are, but for line breaks.
pub(super) fn words(difference: &Difference) -> Vec<u8> {
    let path = shown(&difference.path);
    let join = |parts: &[&[u8]]| parts.concat();
    match &difference.kind {
        DifferenceKind::Added => join(&[b"added ", &path]),
        DifferenceKind::Removed => join(&[b"removed ", &path]),
        DifferenceKind::Moved { from } => join(&[b"moved ", &shown(from), b" to ", &path]),
        DifferenceKind::Changed(changes) => {
            join(&[b"changed ", &path, b" (", parts(changes).join(", ").as_bytes(), b")"])
        }
        other => join(&[format!("{other:?} ").as_bytes(), &path]),
    }
}

/// Returns the bytes of a path, with line breaks and backslashes escaped.
fn shown(path: &Path) -> Vec<u8> {
    let escaped = path.as_os_str().as_bytes().iter().flat_map(|byte| match byte {
        b'\n' => b"\\n".to_vec(),
        b'\\' => b"\\\\".to_vec(),
        byte => vec![*byte],
    });
    escaped.collect()
}

fn as_json(difference: &Difference) -> Value {
    let path = difference.path.to_string_lossy();
    match &difference.kind {
        DifferenceKind::Added => json!({ "path": path, "kind": "added" }),
        DifferenceKind::Removed => json!({ "path": path, "kind": "removed" }),
        DifferenceKind::Moved { from } => {
            json!({ "path": path, "kind": "moved", "from": from.to_string_lossy() })
        }
        DifferenceKind::Changed(changes) => {
            json!({ "path": path, "kind": "changed", "parts": parts(changes) })
        }
        other => json!({ "path": path, "kind": format!("{other:?}") }),
    }
}
