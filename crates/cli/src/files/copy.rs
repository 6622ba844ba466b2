//! `vfscale cp`, `import` and `export`: copies between the host and an image.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use indicatif::ProgressBar;
use serde_json::json;
use vfscale::{Error, Escaped, Owners, Task, Transfer, Transferred};

use super::place::{self, Place};
use super::tree::shown;
use crate::error::Failure;
use crate::options::parse_owner;
use crate::output::{spinner, written};

/// Options of all copies.
#[derive(Debug, Args)]
struct CopyArgs {
    /// The owner and group of all copies, as two numbers, which then have neither set-id bits nor
    /// capabilities (default: owners of the sources; on the host you, unless you are root)
    #[arg(long, value_name = "UID:GID", value_parser = parse_owner)]
    owner: Option<(u32, u32)>,

    /// Leave extended attributes out, among them ACLs, which not every file system takes
    #[arg(long)]
    no_xattrs: bool,

    /// Make devices too. Without it they are counted as left out: a device of an image that
    /// somebody else has made is one of this machine
    #[arg(long)]
    devices: bool,

    /// Print the counts as JSON: "files" that were copied, their "bytes" without holes, and the
    /// files that were left out ("skipped")
    #[arg(long)]
    json: bool,

    /// Print nothing, and show no progress
    #[arg(long, short)]
    quiet: bool,

    /// The device of the log, if it is not in the volume
    #[arg(long, value_name = "PATH")]
    log_device: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct CpArgs {
    #[command(flatten)]
    copy: CopyArgs,

    /// Copy directories too, with all that is in them
    #[arg(long, short)]
    recursive: bool,

    /// The files of the host, or the places in an image
    #[arg(value_name = "SOURCE", required = true)]
    sources: Vec<OsString>,

    /// The place in an image, or the file or directory of the host
    #[arg(value_name = "TARGET")]
    target: OsString,
}

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    #[command(flatten)]
    copy: CopyArgs,

    /// The directory of the host
    #[arg(value_name = "DIR")]
    dir: PathBuf,

    /// The directory in the image: made if missing
    #[arg(value_name = place::FORM)]
    place: Place,
}

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    #[command(flatten)]
    copy: CopyArgs,

    /// The directory in the image
    #[arg(value_name = place::FORM)]
    place: Place,

    /// The directory of the host: made if missing
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

/// Copies files between the host and an image.
pub(crate) fn cp(args: &CpArgs) -> Result<ExitCode, Failure> {
    let sources = args.sources.iter().map(|text| Place::with_path(text));
    let sources: Vec<_> = sources.collect();
    let copied = match (Place::with_path(&args.target), &sources[..]) {
        (Some(target), sources) if sources.iter().all(Option::is_none) => into_image(args, &target),
        (None, sources) if sources.iter().all(Option::is_some) => {
            out_of_image(args, &sources.iter().flatten().collect::<Vec<_>>())
        }
        _ => Err(Failure::Usage(
            "the sources are to be on the host and the target in an image (IMAGE:/PATH), or the \
             other way round"
                .into(),
        )),
    };
    told(&args.copy, copied?)
}

/// Copies what is in a directory into an image.
pub(crate) fn import(args: &ImportArgs) -> Result<ExitCode, Failure> {
    let ImportArgs { copy, dir, place } = args;
    let from = directory(dir)?;
    let copied = place.write(copy.log_device.as_deref(), |tree| {
        let bar = spinner(copy.quiet, "copying");
        let to = tree.canonicalize(&place.path).unwrap_or_else(|_| place.path.clone());
        let done = tree.import(incoming(copy, &bar, &place.image), &from, &to);
        done.map_err(|error| failed(place, error))
    });
    told(copy, copied?)
}

/// Copies what is in a directory of an image to the host.
pub(crate) fn export(args: &ExportArgs) -> Result<ExitCode, Failure> {
    let ExportArgs { copy, dir, place } = args;
    let copied = place.read(copy.log_device.as_deref(), |tree| {
        let from = tree.canonicalize(&place.path).map_err(|error| place.failed(error))?;
        let found = tree.metadata(&from).map_err(|error| place.failed(error))?;
        if !found.is_dir() {
            return Err(no_directory(&from));
        }
        let bar = spinner(copy.quiet, "copying");
        let to = dir.canonicalize().unwrap_or_else(|_| dir.clone());
        let done = tree.export(outgoing(copy, &bar), &from, &to);
        done.map_err(|error| failed(place, error))
    });
    told(copy, copied?)
}

/// Copies what is in a directory into the new volume of an image.
pub(crate) fn fill(task: &Task, image: &Path, dir: &Path, quiet: bool) -> Result<(), Failure> {
    let copy = CopyArgs {
        owner: None,
        no_xattrs: false,
        devices: false,
        json: false,
        quiet,
        log_device: None,
    };
    let bar = spinner(quiet, "copying");
    let done = incoming(&copy, &bar, image).import(task, directory(dir)?, "/");
    done.map(drop).map_err(|error| Failure::Files(image.to_owned(), error))
}

fn into_image(args: &CpArgs, target: &Place) -> Result<Transferred, Failure> {
    let copy = &args.copy;
    target.write(copy.log_device.as_deref(), |tree| {
        let is_dir = tree.metadata(&target.path).is_ok_and(|found| found.is_dir());
        let bar = spinner(copy.quiet, "copying");
        let mut all = Transferred::default();
        for source in &args.sources {
            let from = Path::new(source);
            let found = fs::symlink_metadata(from).map_err(|e| Failure::Read(from.into(), e))?;
            check_source(from, found.is_dir(), args)?;
            let to = target_of(from, &target.path, is_dir, args)?;
            let done = tree.import(incoming(copy, &bar, &target.image), from, &to);
            add(&mut all, done.map_err(|error| failed(target, error))?);
        }
        Ok(all)
    })
}

fn out_of_image(args: &CpArgs, sources: &[&Place]) -> Result<Transferred, Failure> {
    let (copy, target) = (&args.copy, Path::new(&args.target));
    let is_dir = fs::metadata(target).is_ok_and(|found| found.is_dir());
    let bar = spinner(copy.quiet, "copying");
    let mut all = Transferred::default();
    for sources in sources.chunk_by(|a, b| a.is_beside(b)) {
        sources[0].read(copy.log_device.as_deref(), |tree| {
            for source in sources {
                let from = &source.path;
                let found = tree.symlink_metadata(from).map_err(|error| source.failed(error))?;
                check_source(from, found.is_dir(), args)?;
                let to = target_of(from, target, is_dir, args)?;
                let done = tree.export(outgoing(copy, &bar), from, &to);
                add(&mut all, done.map_err(|error| failed(source, error))?);
            }
            Ok(())
        })?;
    }
    Ok(all)
}

/// Returns the options of a copy into an image.
fn incoming<'a>(copy: &CopyArgs, bar: &'a ProgressBar, image: &Path) -> Transfer<'a> {
    let transfer = transfer(copy, bar, Owners::Source);
    match fs::metadata(image) {
        Ok(found) => transfer.except(found.dev(), found.ino()),
        Err(_) => transfer,
    }
}

/// Returns the options of a copy to the host.
fn outgoing<'a>(copy: &CopyArgs, bar: &'a ProgressBar) -> Transfer<'a> {
    let is_root = rustix::process::geteuid().is_root();
    transfer(copy, bar, if is_root { Owners::Source } else { Owners::Copier })
}

fn transfer<'a>(copy: &CopyArgs, bar: &'a ProgressBar, owners: Owners) -> Transfer<'a> {
    let owners = copy.owner.map_or(owners, |(uid, gid)| Owners::Fixed(uid, gid));
    let transfer = Transfer::new().owners(owners).xattrs(!copy.no_xattrs).devices(copy.devices);
    transfer.replace(true).on_file(|done, path| {
        if !bar.is_hidden() {
            let (files, path) = (done.files, Escaped::new(shown(path)));
            bar.set_message(format!("{files} files, {} MiB: {path}", done.bytes >> 20));
        }
    })
}

/// Refuses a directory that is not to be copied.
fn check_source(from: &Path, is_dir: bool, args: &CpArgs) -> Result<(), Failure> {
    let shown = Escaped::new(from);
    if is_dir && !args.recursive {
        return Err(Failure::Usage(format!(
            "{shown} is a directory; -r copies it with its contents"
        )));
    }
    Ok(())
}

/// Returns the path of the copy: in the target if that is a directory.
fn target_of(from: &Path, target: &Path, is_dir: bool, args: &CpArgs) -> Result<PathBuf, Failure> {
    if !is_dir {
        return match args.sources.len() {
            1 => Ok(target.to_owned()),
            _ => Err(no_directory(Path::new(&args.target))),
        };
    }
    let is_dots = from.as_os_str().as_bytes().ends_with(b"/.");
    match from.file_name().filter(|_| !is_dots) {
        Some(name) => Ok(target.join(name)),
        None => Err(Failure::Usage(format!(
            "{} has no name for its copy; `vfscale import` and `export` copy what is in a directory",
            Escaped::new(from)
        ))),
    }
}

/// Returns the path of a directory of the host without symbolic links.
fn directory(dir: &Path) -> Result<PathBuf, Failure> {
    let found = dir.canonicalize().map_err(|e| Failure::Read(dir.to_owned(), e))?;
    if found.is_dir() { Ok(found) } else { Err(no_directory(dir)) }
}

fn no_directory(path: &Path) -> Failure {
    Failure::Usage(format!("{} is no directory", Escaped::new(path)))
}

fn add(all: &mut Transferred, done: Transferred) {
    all.files += done.files;
    all.bytes += done.bytes;
    all.skipped += done.skipped;
}

fn failed(place: &Place, error: Error) -> Failure {
    if error.call().contains("setxattr") {
        let why = format!("{error}; --no-xattrs copies without extended attributes");
        return Failure::Refused(place.image.clone(), why);
    }
    place.failed(error)
}

/// Tells what was copied.
fn told(copy: &CopyArgs, done: Transferred) -> Result<ExitCode, Failure> {
    let Transferred { files, bytes, skipped, .. } = done;
    let mut out = io::stdout().lock();
    written(match (copy.json, copy.quiet) {
        (true, _) => {
            let value = json!({ "files": files, "bytes": bytes, "skipped": skipped });
            writeln!(out, "{value:#}")
        }
        (_, true) => Ok(()),
        _ if skipped > 0 => writeln!(
            out,
            "{files} files with {bytes} bytes copied; left out, as sockets and devices: {skipped}"
        ),
        _ => writeln!(out, "{files} files with {bytes} bytes copied"),
    })
}
