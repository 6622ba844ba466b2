//! `vfscale apply`: a layer or a patch becomes a commit of a branch.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde_json::json;
use vfscale::{Applied, ApplyOptions};

use crate::elsewhere;
use crate::elsewhere::branches::{Access, at_server_or_here, with_pool};
use crate::error::Failure;
use crate::files::place::Place;
use crate::output::written;

#[derive(Debug, Args)]
pub(crate) struct ApplyArgs {
    /// Take so many directories off the names in a patch
    #[arg(short = 'p', long, value_name = "NUMBER", default_value_t = 1)]
    strip: u64,

    /// Only try it
    #[arg(long)]
    dry_run: bool,

    /// Print JSON instead of words
    #[arg(long)]
    json: bool,

    /// The image file or block device, and the branch, mounted or not; main if none is
    /// given
    #[arg(value_name = "IMAGE[:BRANCH]")]
    place: Place,

    /// The layer or the patch; - for the standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Applies a layer or a patch, and prints what was done.
pub(crate) fn apply(args: &ApplyArgs) -> Result<ExitCode, Failure> {
    let applied = applied(args).map_err(|failure| Failure::Diff(Box::new(failure)))?;
    let Applied { is_layer, written: files, removed, untold, is_done } = applied;
    let kind = if is_layer { "layer" } else { "patch" };
    let mut out = io::stdout().lock();
    written(if args.json {
        let value = json!({
            "kind": kind, "written": files, "removed": removed, "untold": untold, "done": is_done,
        });
        let text = serde_json::to_string_pretty(&value).map_err(io::Error::from);
        text.and_then(|text| writeln!(out, "{text}"))
    } else {
        let done = match (is_done, args.dry_run) {
            (true, _) => "done",
            (false, true) => "tried",
            (false, false) => "nothing to do",
        };
        let lost = match untold {
            0 => String::new(),
            untold => format!("; {untold} changes are not in the patch, lines that begin with #"),
        };
        writeln!(out, "{done}: a {kind}, {files} written, {removed} removed{lost}")
    })
}

/// Has the process apply it that has the image open, if there is one.
fn applied(args: &ApplyArgs) -> Result<Applied, Failure> {
    let ApplyArgs { strip, dry_run, place, file, .. } = args;
    let (image, branch) = (&place.image, place.branch());
    let input = || {
        let opened = if file.as_os_str() == "-" {
            io::stdin().as_fd().try_clone_to_owned().map(File::from)
        } else {
            File::open(file)
        };
        opened.map_err(|error| Failure::Read(file.clone(), error))
    };
    let ask = |dir: &Path| {
        // First the data that the kernel holds back.
        elsewhere::sync_kernel(image, dir)?;
        let input = input()?;
        let options = (*strip, *dry_run);
        elsewhere::ask(image, dir, |connection| connection.apply(branch, options, input.as_fd()))
    };
    let here = || {
        let mut input = input()?;
        with_pool(image, Access::Write, |pool| {
            let strip = usize::try_from(*strip).unwrap_or(usize::MAX);
            let options = ApplyOptions::new().strip(strip).dry_run(*dry_run);
            let applied = pool.apply(branch, &mut input, options)?;
            pool.reap()?;
            Ok(applied)
        })
    };
    at_server_or_here(image, "apply DIR FILE", ask, here)
}
