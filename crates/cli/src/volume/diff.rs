//! `vfscale diff` and `vfscale adopt`: what branches differ in, and keeping one.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};
use vfscale::pool::{Changes, Difference, DifferenceKind};
use vfscale::{DiffOptions, Escaped};
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

    /// Print a patch that makes B of A, for `git apply` and `patch -p1`. What it can't tell is in
    /// lines that begin with #
    #[arg(long, conflicts_with_all = ["json", "name_only", "stat"])]
    patch: bool,

    /// Write a layer that makes B of A, for `vfscale apply`, container engines and tar, to a file
    /// or to the standard output
    #[arg(
        long, value_name = "FILE", num_args = 0..=1, require_equals = true,
        default_missing_value = "-", conflicts_with_all = ["json", "name_only", "stat", "patch"],
    )]
    tar: Option<PathBuf>,

    /// Compare B with the last state that it had in common with A: what it has changed
    #[arg(long)]
    base: bool,

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
    if let Some(file) = &args.tar {
        let count = layer(args, file).map_err(|failure| Failure::Diff(Box::new(failure)))?;
        return Ok(ExitCode::from(u8::from(count > 0)));
    }
    let Found { list: found, patch } =
        found(args).map_err(|failure| Failure::Diff(Box::new(failure)))?;
    let mut out = io::stdout().lock();
    written(if args.patch {
        out.write_all(&patch)
    } else if args.json {
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
    Ok(ExitCode::from(u8::from(!found.is_empty() || !patch.is_empty())))
}

/// Writes a layer to a file, which is there when it is whole, or to the standard output. Returns
/// the number of files in it.
fn layer(args: &DiffArgs, file: &Path) -> Result<u64, Failure> {
    let failed = |error| Failure::Write(file.to_owned(), error);
    if file.as_os_str() == "-" {
        let out = io::stdout().as_fd().try_clone_to_owned().map_err(failed)?;
        return write_layer(args, &File::from(out), file);
    }
    let name = file.file_name().unwrap_or_default();
    let mut part = OsString::from(format!(".{}.", std::process::id()));
    part.push(name);
    let part = file.with_file_name(part);
    let out = File::create_new(&part).map_err(failed)?;
    let count = write_layer(args, &out, file);
    let count = count.and_then(|count| {
        fs::rename(&part, file).map_err(failed)?;
        Ok(count)
    });
    if count.is_err() {
        // An error of this says no more than the first one.
        let _ = fs::remove_file(&part);
    }
    count
}

/// Writes a layer to a file; the process does that has the image open, if there is one. `name` is
/// for errors.
fn write_layer(args: &DiffArgs, mut out: &File, name: &Path) -> Result<u64, Failure> {
    let DiffArgs { image, a, b, base, paths, .. } = args;
    let ask = |dir: &Path| {
        elsewhere::sync_kernel(image, dir)?;
        let fields = paths.iter().map(|path| path.clone().into_os_string()).collect();
        elsewhere::ask(image, dir, |it| it.layer((a, b), *base, fields, out.as_fd()))
    };
    let here = || {
        let mut written = Ok(());
        let count = with_pool(image, Access::Read, |pool| {
            let options = DiffOptions::new().with_base(*base).paths(paths);
            pool.layer(a, b, &options, &mut |part| {
                written = out.write_all(part);
                written.is_ok()
            })
        })?;
        written.map_err(|error| Failure::Write(name.to_owned(), error))?;
        Ok(count)
    };
    at_server_or_here(image, COMMAND, ask, here)
}

/// The differences, or a patch, which tells of each of them.
#[derive(Default)]
struct Found {
    list: Vec<Difference>,
    patch: Vec<u8>,
}

impl Found {
    /// Adds what a reply tells; returns whether it tells something.
    fn take(&mut self, reply: Reply) -> bool {
        if let Reply::Text(part) = reply {
            self.patch.extend_from_slice(part.as_bytes());
            return true;
        }
        take(reply, &mut self.list)
    }
}

/// Returns the differences, which the process finds that has the image open, if there is one.
fn found(args: &DiffArgs) -> Result<Found, Failure> {
    let DiffArgs { image, a, b, base, patch, paths, .. } = args;
    let (a, b, with_base, as_patch) = (a.clone(), b.clone(), *base, *patch);
    let fields = paths.iter().map(|path| path.clone().into_os_string()).collect();
    let request = Request::Diff { a: a.clone(), b: b.clone(), with_base, as_patch, paths: fields };
    let ask = |dir: &Path| served(image, dir, &request);
    let options = DiffOptions::new().with_base(with_base).paths(paths);
    let here = || {
        with_pool(image, Access::Read, |pool| {
            let mut found = Found::default();
            if !as_patch {
                found.list = pool.diff_with(&a, &b, &options)?;
                return Ok(found);
            }
            pool.patch(&a, &b, &options, &mut |part| {
                found.patch.extend_from_slice(part);
                true
            })?;
            Ok(found)
        })
    };
    at_server_or_here(image, COMMAND, ask, here)
}

/// Has the process that serves the mount at `dir` compare branches of its image.
fn served(image: &Path, dir: &Path, request: &Request) -> Result<Found, Failure> {
    // First the data that the kernel holds back.
    elsewhere::sync_kernel(image, dir)?;
    let mut found = Found::default();
    elsewhere::ask(image, dir, |connection| connection.ask(request, |reply| found.take(reply)))?;
    Ok(found)
}

/// Returns whether two branches of the image that is mounted at `dir` differ.
pub(crate) fn differ(image: &Path, dir: &Path, a: &str, b: &str) -> Result<bool, Failure> {
    let (a, b, paths) = (a.to_owned(), b.to_owned(), Vec::new());
    let request = Request::Diff { a, b, with_base: false, as_patch: false, paths };
    Ok(!served(image, dir, &request)?.list.is_empty())
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
    let ask = |dir: &Path| {
        // First the data that the kernel holds back.
        elsewhere::sync_kernel(&args.image, dir)?;
        elsewhere::ask(&args.image, dir, |it| it.tell(&request))
    };
    let here = || {
        with_pool(&args.image, Access::Write, |pool| {
            pool.adopt(&args.parent, &args.child)?;
            pool.reap()
        })
    };
    at_server_or_here(&args.image, COMMAND, ask, here)?;
    Ok(ExitCode::SUCCESS)
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
