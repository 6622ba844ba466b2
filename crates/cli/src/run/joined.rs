//! A run whose file system another process serves: the one that has the image open.
//!
//! That process ends the mount if this one is killed.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use vfscale::Escaped;
use vfscale_command::say;
use vfscale_command::signals::Blocked;

use super::args::RunArgs;
use super::front::Inside;
use crate::child::exit_code;
use crate::elsewhere::temporary::{PATIENCE, say_forced};
use crate::elsewhere::visit::mounted;
use crate::elsewhere::{Left, Wanted};
use crate::error::Failure;
use crate::options::MountOptions;
use crate::source;

/// Runs the command in a branch of an image that another process serves. `None` if there is no such
/// process.
pub(super) fn join(
    args: &RunArgs,
    image: &Path,
    options: &MountOptions,
    arguments: &[OsString],
    inside: Inside<'_>,
) -> Result<Option<ExitCode>, Failure> {
    // The command is nothing to the server, but the command line needs one.
    let own = &arguments[..arguments.len().saturating_sub(args.words.command.len())];
    let arguments = &[own, &["true".into()]].concat();
    let (branch, attachment) =
        (source::branch_name(options), source::attachment(options, Some(image)));
    let is_trial = args.discard;
    let wanted = Wanted { image, branch: &branch, arguments, attachment, is_trial };
    let makes_pool = || {
        let image = Escaped::new(image);
        say(format_args!(
            "vfscale: {image} is mounted, and becomes a pool of branches now, which can't be undone"
        ));
    };
    let Some(asked) = wanted.ask_for_run(makes_pool)? else { return Ok(None) };
    let signals = Blocked::for_jobs().map_err(|e| Failure::System("pthread_sigmask", e))?;
    let (mounted, dir) = match mounted(asked, options) {
        Ok(mounted) => mounted,
        Err(failure) => {
            let _ = signals.restore();
            return Err(failure);
        }
    };
    tracing::info!("mounted at {}", mounted.dir().display());
    let path = mounted.dir().to_owned();
    let status = inside(&path, signals);
    match mounted.leave(PATIENCE) {
        Ok(Left::Used) => dir.leave(),
        Ok(Left::Ended) => {}
        Ok(Left::Forced) => say_forced(&path),
        Err(failure) => {
            // The command has run, whatever became of what it wrote: it must not run again.
            say(format_args!("vfscale: {failure}"));
            return status.map(|_| Some(ExitCode::FAILURE));
        }
    }
    Ok(Some(exit_code(status?)))
}
