//! `vfscale freeze`: holds a mounted volume still while a command runs.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use clap::Args;
use vfscale::Errno;

use crate::child::{exit_code, spawn};
use crate::error::{Failure, NOT_ALLOWED};
use crate::{elsewhere, options};

/// Default time after which the volume thaws, whatever the command does.
const LIMIT: Duration = Duration::from_secs(60);

#[derive(Debug, Args)]
pub(crate) struct FreezeArgs {
    /// The seconds after which the volume thaws though the command has not ended, which is an error
    /// then (default: 60, at most 3600)
    #[arg(long = "for", value_name = "SECONDS", value_parser = options::parse_seconds)]
    pub(crate) limit: Option<Duration>,

    /// A directory of the mount
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,

    /// The command and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    pub(crate) command: Vec<OsString>,
}

/// Freezes a mounted volume, runs the command, and returns its exit status. The volume thaws when
/// this process ends, however it does.
pub(crate) fn freeze(args: &FreezeArgs) -> Result<ExitCode, Failure> {
    let (dir, limit) = (&args.dir, args.limit.unwrap_or(LIMIT));
    elsewhere::check_replies(dir)?;
    // Most of the work, while calls go on.
    elsewhere::sync(dir)?;
    // The time that the mount counts begins later, and so ends later.
    let begun = Instant::now();
    let freeze = || vfscale_fuse::control::freeze(dir, limit).map(|()| Vec::new());
    let (_, _frozen) = elsewhere::held_request(freeze).map_err(|error| refused(dir, &error))?;
    let [program, arguments @ ..] = &args.command[..] else {
        return Err(Failure::Usage("no command given".into()));
    };
    let mut child = spawn(Command::new(program).args(arguments), program)?;
    let status = child.wait().map_err(|error| Failure::System("wait", error))?;
    if begun.elapsed() >= limit {
        let seconds = limit.as_secs_f64();
        let why = format!(
            "it thawed after {seconds} s, before the command had ended: what that has copied may \
             be useless (--for gives it more time)"
        );
        return Err(Failure::Freeze(dir.clone(), why));
    }
    Ok(exit_code(status))
}

/// Returns the meaning of an error that a mount has replied.
fn refused(dir: &Path, error: &io::Error) -> Failure {
    let words = match Errno::from_io_error(error) {
        Some(Errno::NOTTY) => "no file system of vfscale is mounted there",
        Some(Errno::OPNOTSUPP) => "only a volume is frozen, and no branch: the others go on",
        Some(Errno::PERM | Errno::ACCESS) => NOT_ALLOWED,
        Some(Errno::SRCH) => "its server can't see this process, which has other PIDs",
        Some(Errno::INVAL) => "the time is more than 0 s, and at most 3600 s",
        _ => return Failure::Freeze(dir.to_owned(), format!("it can't be frozen: {error}")),
    };
    Failure::Freeze(dir.to_owned(), words.into())
}
