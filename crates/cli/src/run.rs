//! `vfscale run`: a command inside a file system of its own.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use vfscale::VolumeError;
use vfscale_command::say;
use vfscale_fuse::Mounted;
use vfscale_vfs::lockstat;

use crate::child::program;
use crate::elsewhere;
use crate::error::Failure;
use crate::options::MountOptions;
use crate::source::{self, Source};

use args::RunArgs;
use front::{Server, Side};
use temporary::TempDir;
use trial::Trial;

pub(crate) mod args;
mod front;
mod native;
mod temporary;
mod trial;

/// Time that processes left behind by the command get to leave the file system.
const PATIENCE: Duration = Duration::from_millis(500);

/// Runs the command; `arguments` are the command line that `args` were parsed from.
pub(crate) fn run(args: RunArgs, arguments: &[OsString]) -> Result<ExitCode, Failure> {
    let mut options = args.serve.merged_options();
    if options.remount {
        return Err(Failure::Usage("`-o remount` goes with `vfscale mount`".into()));
    }
    let (program, _) = program(&args.words.command)?;
    if program.as_bytes().starts_with(b"-") {
        let program = program.display();
        let why = format!("`{program}` is no command: write `vfscale run IMAGE -- COMMAND`");
        return Err(Failure::Usage(why));
    }
    // The files are those of the command, whoever runs it.
    options.allow_other.get_or_insert(false);
    if args.native
        && let Some(status) = native::run(&args, &options)?
    {
        return Ok(status);
    }
    let server = match front::split()? {
        Side::Front(front) => return front.run(&args.words.command),
        Side::Server(server) => server,
    };
    let trial = args.discard.then(|| Trial::new(&args, &mut options)).transpose()?;
    let served = run_mounted(&args, &options, &server, arguments, trial.as_ref());
    if let Some(Err(error)) = trial.map(Trial::end) {
        say(format_args!(
            "vfscale: the branch of the command is left until the image is opened next: {error}"
        ));
    }
    served.map(|()| ExitCode::SUCCESS)
}

/// Mounts the file system, has the front run the command, and unmounts and
/// closes the file system.
fn run_mounted(
    args: &RunArgs,
    options: &MountOptions,
    server: &Server,
    arguments: &[OsString],
    trial: Option<&Trial>,
) -> Result<(), Failure> {
    let image = args.image.as_deref();
    let size = args.source.size.unwrap_or(source::IMAGE_SIZE);
    let opened = trial.and_then(|trial| trial.open(args, options));
    let source = opened.unwrap_or_else(|| {
        Source::open(&args.source, options, image.map(|path| (path, Some(size))), None)
    });
    let source = match (source, image) {
        (Err(failure), Some(image)) if !args.source.take_over => {
            return run_elsewhere(failure, image, args, options, (server, arguments));
        }
        (source, _) => source?,
    };
    let mut builder = source::builder(&source, &args.serve, options, image)?;
    if trial.is_some_and(Trial::is_in_memory) {
        // A branch would be in memory, too.
        builder = builder.first_branch(None);
    }
    let dir = TempDir::new(options.allow_other == Some(true))?;
    let mounted = builder.mount(dir.path())?;
    source.publish_mount(&mounted);
    tracing::info!("mounted at {}", dir.path().display());
    lockstat::record(args.lockstat);
    server.run_in(mounted.dir());
    unmount(mounted);
    if args.lockstat {
        lockstat::record(false);
        say(format_args!("{}", lockstat::Table::now().to_string().trim_end()));
    }
    drop(dir);
    match source.close() {
        // Changes that they make from now on are lost when this process exits.
        Err(Failure::Open(VolumeError::InUse { name, .. })) => {
            tracing::warn!("{name}: processes that the command left behind still use it");
        }
        closed => closed?,
    }
    Ok(())
}

/// Has the front run the command in a branch of an image that another process has open and serves.
/// `failure` is the error of opening the image.
fn run_elsewhere(
    failure: Failure,
    image: &Path,
    args: &RunArgs,
    options: &MountOptions,
    (server, arguments): (&Server, &[OsString]),
) -> Result<(), Failure> {
    if !elsewhere::is_locked(&failure) {
        return Err(failure);
    }
    let branch = source::branch_name(options);
    let attachment = source::attachment(options, Some(image));
    // The command is nothing to the server, but the command line needs one.
    let own = &arguments[..arguments.len().saturating_sub(args.words.command.len())];
    let arguments = &[own, &["true".into()]].concat();
    let wanted = elsewhere::Wanted { image, branch: &branch, arguments, attachment };
    let is_named = options.branch.is_some();
    let ready = wanted.ask(failure, is_named)?;
    let dir = TempDir::new(options.allow_other == Some(true))?;
    let mounted = ready.mount(dir.path())?;
    tracing::info!("mounted at {}", dir.path().display());
    server.run_in(mounted.dir());
    match mounted.unmounter().unmount_within(PATIENCE) {
        Ok(false) => mounted.wait(Some(elsewhere::PATIENCE))?,
        // The server serves them as long as they are there.
        Ok(true) => tracing::warn!(
            "processes that the command left behind used {}; it was unmounted under them",
            dir.path().display()
        ),
        Err(e) => say(format_args!("vfscale: cannot unmount {}: {e}", dir.path().display())),
    }
    drop(dir);
    Ok(())
}

fn unmount(mounted: Mounted) {
    let dir = mounted.dir().to_owned();
    match mounted.unmounter().unmount_within(PATIENCE) {
        Ok(false) => {}
        Ok(true) => tracing::warn!(
            "processes that the command left behind used {}; it was unmounted under them",
            dir.display()
        ),
        Err(e) => say(format_args!("vfscale: cannot unmount {}: {e}", dir.display())),
    }
}
